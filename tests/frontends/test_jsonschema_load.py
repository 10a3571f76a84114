"""Documents, dialects, references, errors and the report."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import pytest

from structspec import ir
from structspec.errors import SchemaError, UnsupportedFeature
from structspec.frontends.jsonschema import SchemaOptions, lower_schema
from structspec.report import Entry, Report

_path = Path(__file__).parent / "ir_reference.py"
_spec = importlib.util.spec_from_file_location("ir_reference", _path)
assert _spec is not None and _spec.loader is not None
ir_reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ir_reference)


def accepts(schema: Any, text: str, **policies: Any) -> bool:
    grammar, _ = lower_schema(schema, SchemaOptions(**policies))
    return bool(ir_reference.accepts(grammar, text))


# Errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "strin"}, ""),
        ({"properties": {"a/b": {"type": 3}}}, "/properties/a~1b"),
        ({"properties": []}, ""),
        ({"items": [{"type": "null"}]}, ""),
        ({"required": "a"}, ""),
        ({"minLength": -1}, ""),
        ({"maxItems": 1.5}, ""),
        ({"multipleOf": 0}, ""),
        ({"anyOf": []}, ""),
        ({"allOf": [{"type": "null"}, 3]}, "/allOf/1"),
        ({"$defs": {"unused": {"minimum": "3"}}}, "/$defs/unused"),
        ({"not": None}, ""),
        ([], ""),
        ({"const": float("nan")}, "/const"),
        ({"enum": [object()]}, "/enum/0"),
        ({"$ref": "#/$defs/missing"}, ""),
        ({"items": {"$ref": "#/items/0/x"}}, "/items"),
        ({"$ref": "#anchor"}, ""),
        ({"$ref": "other.json"}, ""),
        ({"$ref": "#/title", "title": "t"}, ""),
        ({"items": {"$id": 5}}, "/items"),
        ({"properties": {"a": {"$id": ["a"]}, "b": {"$ref": "#/properties/a"}}}, "/properties/a"),
        (
            {"items": {"$schema": "http://json-schema.org/draft-07/schema#", "$id": {}}},
            "/items",
        ),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "items": {"id": 5}}, "/items"),
        ({"$id": "http://a.example/", "items": {"$id": "http://["}}, "/items"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_pointer(schema: Any, pointer: str) -> None:
    with pytest.raises(SchemaError) as caught:
        lower_schema(schema, SchemaOptions())
    assert caught.value.pointer == pointer


def test_a_reference_to_nowhere_is_quoted() -> None:
    with pytest.raises(SchemaError, match=r"other\.json.*nothing is fetched"):
        lower_schema({"$ref": "other.json"}, SchemaOptions())


@pytest.mark.parametrize(
    ("text", "line", "column"), [("{", 1, 2), ('{"a":\n  tru}', 2, 3), ("", 1, 1), ("{} {}", 1, 4)]
)
def test_broken_json_text_tells_line_and_column(text: str, line: int, column: int) -> None:
    with pytest.raises(SchemaError) as caught:
        lower_schema(text, SchemaOptions())
    assert (caught.value.line, caught.value.column) == (line, column)


def test_text_nested_too_deep_for_the_parser_is_refused() -> None:
    with pytest.raises(SchemaError, match="nested deeper"):
        lower_schema('{"not":' * 100_000 + "{}" + "}" * 100_000, SchemaOptions())


@pytest.mark.parametrize(
    ("schema", "keyword", "pointer"),
    [
        ({"type": "string", "pattern": r"(a)\1"}, "pattern", ""),
        ({"items": {"format": "idn-hostname"}}, "format", "/items"),
        ({"properties": {"a": {"patternProperties": {r"(a)\1": False}}}}, "patternProperties",
         "/properties/a"),
        ({"uniqueItems": True}, "uniqueItems", ""),
        ({"contains": {"type": "null"}, "minContains": 9999}, "contains", ""),
        ({"$schema": "https://example.org/mine"}, "$schema", ""),
        ({"$ref": "#"}, "$ref", ""),
        ({"allOf": [{"$ref": "#"}]}, "$ref", "/allOf/0"),
        ({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
         "anyOf", "/$defs/a"),
    ],
)  # fmt: skip
def test_what_cannot_be_exact_is_refused_by_name(schema: Any, keyword: str, pointer: str) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        lower_schema(schema, SchemaOptions())
    assert (caught.value.keyword, caught.value.pointer) == (keyword, pointer)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "pattern": "a"},
        {"type": "array", "patternProperties": {"x": {}}},
        {"patternProperties": {}},
        {"uniqueItems": False},
        {"uniqueItems": True, "maxItems": 1},
        {"minProperties": 0},
        {"type": "integer", "format": "date"},
        {"type": "integer", "multipleOf": 1},
        {"allOf": [{"pattern": "a"}, {"type": "null"}]},
        {"$defs": {"unused": {"pattern": "a"}}},
        {"contains": True},
        {"unevaluatedProperties": False, "properties": {"a": {}}},
    ],
)
def test_keywords_without_effect_are_not_refused(schema: Any) -> None:
    lower_schema(schema, SchemaOptions())


def test_unknown_policies_are_refused() -> None:
    with pytest.raises(ValueError, match="whitespace='none'"):
        SchemaOptions(whitespace="none")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="default_dialect"):
        lower_schema({}, SchemaOptions(default_dialect="draft-99"))


# Dialects and references -------------------------------------------------------------------


def test_a_dialect_decides_what_a_keyword_means() -> None:
    seven = {"$schema": "http://json-schema.org/draft-07/schema#"}
    pair = {**seven, "items": [{"type": "null"}], "additionalItems": False}
    assert accepts(pair, "[null]")
    assert not accepts(pair, "[null,null]")
    assert not accepts(pair, "[1]")
    assert accepts({**seven, "prefixItems": [{"type": "null"}]}, "[1]")
    draft4 = "http://json-schema.org/draft-04/schema#"
    assert accepts({"const": 1}, "2", default_dialect=draft4)
    assert not accepts({"const": 1}, "2")
    assert accepts({**seven, "dependencies": {"a": ["b"]}}, '{"a":1,"b":2}')
    assert not accepts({**seven, "dependencies": {"a": ["b"]}}, '{"a":1}')


def test_references_reach_ids_anchors_and_resources() -> None:
    schema = {
        "$id": "https://example.org/root",
        "properties": {
            "a": {"$ref": "#here"},
            "b": {"$ref": "inner"},
            "c": {"$ref": "https://example.org/elsewhere#/$defs/n"},
        },
        "$defs": {
            "x": {"$anchor": "here", "type": "null"},
            "y": {"$id": "inner", "$ref": "#/$defs/z", "$defs": {"z": {"type": "boolean"}}},
        },
    }
    resources = {"https://example.org/elsewhere": {"$defs": {"n": {"const": 0.5}}}}
    assert accepts(schema, '{"a":null,"b":true,"c":0.5}', resources=resources)
    assert not accepts(schema, '{"a":1}', resources=resources)
    assert not accepts(schema, '{"b":1}', resources=resources)
    assert not accepts(schema, '{"c":1}', resources=resources)


def test_equal_references_in_different_resources_stay_apart() -> None:
    schema = {
        "$defs": {
            "a": {"$id": "https://e.org/a", "$ref": "#/$defs/n", "$defs": {"n": {"const": 1}}},
            "b": {"$id": "https://e.org/b", "$ref": "#/$defs/n", "$defs": {"n": {"const": 2}}},
        },
        "prefixItems": [{"$ref": "https://e.org/a"}, {"$ref": "https://e.org/b"}],
    }
    assert accepts(schema, "[1,2]")
    assert not accepts(schema, "[1,1]")


def test_the_metaschema_itself_is_available() -> None:
    schema = {"$ref": "http://json-schema.org/draft-07/schema#/definitions/nonNegativeInteger"}
    assert accepts(schema, "3")
    assert not accepts(schema, "-3")


def test_true_is_not_one() -> None:
    assert not accepts({"const": 1}, "true")
    assert not accepts({"enum": [True]}, "1")
    assert accepts({"enum": [{"a": 1.0}]}, '{"a":1}')


def test_a_schema_that_nothing_satisfies_starts_with_nothing() -> None:
    for schema in (
        False,
        {"type": "string", "const": 5},
        {"properties": {"a": False}, "required": ["a"], "type": "object"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    ):
        grammar, _ = lower_schema(schema, SchemaOptions())
        assert grammar.rules[grammar.start] == ir.NOTHING


# Policies ----------------------------------------------------------------------------------


def test_whitespace_policies_allow_what_they_say() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {"type": "null"}}}}
    compact = '{"a":[null,null]}'
    conventional = '{"a": [null, null]}'
    pretty = '\n{ "a"\t:\r\n[ null , null ] } '
    expected = {
        "compact": (True, False, False),
        "conventional": (False, True, False),
        "flexible": (True, True, True),
    }
    for policy, verdicts in expected.items():
        for text, verdict in zip((compact, conventional, pretty), verdicts, strict=True):
            assert accepts(schema, text, whitespace=policy) == verdict
    assert accepts(schema, "{" + " " * 32 + "}")
    assert not accepts(schema, "{" + " " * 33 + "}")
    assert not accepts(schema, "\u00a0{}")


def test_key_order_is_a_policy() -> None:
    schema = {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "required": ["c"]}
    assert accepts(schema, '{"a":null,"b":null,"c":1,"d":1}')
    assert not accepts(schema, '{"b":null,"a":null,"c":1}')
    assert accepts(schema, '{"d":1,"c":1,"b":null,"a":null}', key_order="any")
    assert not accepts(schema, '{"b":null,"a":null}', key_order="any")


# Metaschemas of one's own -------------------------------------------------------------------

_VOCABULARY = "https://json-schema.org/draft/2020-12/vocab/"


def _metaschema(*vocabularies: str, **required: bool) -> dict[str, Any]:
    return {
        "$id": "https://example.com/meta",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$vocabulary": {
            **{_VOCABULARY + name: True for name in vocabularies},
            **{f"https://example.com/{name}": flag for name, flag in required.items()},
        },
    }


def test_keywords_without_a_vocabulary_are_annotations() -> None:
    schema = {
        "$schema": "https://example.com/meta",
        "properties": {"a": False, "b": {"minimum": 3, "items": {"maxLength": 1}}},
        "required": ["c"],
    }
    resources = {"https://example.com/meta": _metaschema("core", "applicator", mine=False)}
    grammar, report = lower_schema(schema, SchemaOptions(resources=resources, key_order="any"))
    assert ir_reference.accepts(grammar, '{"b":["long",1]}')
    assert ir_reference.accepts(grammar, '{"b":1}')
    assert not ir_reference.accepts(grammar, '{"a":1}')
    (entry,) = report.for_keyword("minimum")
    assert (entry.pointer, entry.status) == ("/properties/b", "annotation")
    assert "vocabulary" in entry.note
    assert report.for_keyword("required")[0].status == "annotation"


def test_an_embedded_resource_may_have_a_metaschema_of_its_own() -> None:
    schema = {
        "minimum": 1,
        "anyOf": [{"$id": "inner", "$schema": "https://example.com/meta", "maximum": 2}],
    }
    resources = {"https://example.com/meta": _metaschema("core", "applicator")}
    grammar, _ = lower_schema(schema, SchemaOptions(resources=resources))
    assert ir_reference.accepts(grammar, "3") and not ir_reference.accepts(grammar, "0")


def test_vocabularies_that_are_demanded_and_unknown_are_refused() -> None:
    schema = {"$schema": "https://example.com/meta", "minimum": 3}
    resources = {"https://example.com/meta": _metaschema("core", mine=True)}
    with pytest.raises(UnsupportedFeature, match=r"example\.com/mine") as caught:
        lower_schema(schema, SchemaOptions(resources=resources))
    assert caught.value.keyword == "$vocabulary"
    with pytest.raises(UnsupportedFeature, match="unknown dialect"):
        lower_schema(schema, SchemaOptions())


def test_a_metaschema_may_assert_formats_only_if_the_caller_does() -> None:
    schema = {"$schema": "https://example.com/meta", "format": "ipv4"}
    resources = {"https://example.com/meta": _metaschema("core", "format-assertion")}
    grammar, _ = lower_schema(schema, SchemaOptions(resources=resources))
    assert not ir_reference.accepts(grammar, '"a"')
    with pytest.raises(UnsupportedFeature, match="asserts formats"):
        lower_schema(schema, SchemaOptions(resources=resources, assert_formats=False))


# The report --------------------------------------------------------------------------------


def test_every_keyword_gets_an_entry() -> None:
    schema = {
        "title": "t",
        "type": "object",
        "nullable": True,
        "properties": {
            "a": {"type": "integer", "minimum": 1, "default": 3},
            "a/b": {"oneof": [], "format": "made-up"},
        },
    }
    _, report = lower_schema(schema, SchemaOptions())
    found = {(entry.pointer, entry.keyword): entry.status for entry in report}
    assert found == {
        ("", "title"): "annotation",
        ("", "type"): "exact",
        ("", "nullable"): "annotation",
        ("", "properties"): "narrowed",
        ("/properties/a", "type"): "narrowed",
        ("/properties/a", "minimum"): "narrowed",
        ("/properties/a", "default"): "annotation",
        ("/properties/a~1b", "oneof"): "annotation",
        ("/properties/a~1b", "format"): "annotation",
    }
    assert "did you mean 'oneOf'" in report.for_keyword("oneof")[0].note
    assert report.exact
    assert str(report).splitlines()[0].split() == ["status", "keyword", "pointer", "note"]
    assert len(str(report).splitlines()) == len(report) + 1


def test_declared_order_and_repeated_keys_are_reported_where_they_occur() -> None:
    schema = {
        "properties": {
            "open": {"type": "object", "minProperties": 2, "properties": {"a": {}, "b": {}}},
            "closed": {"minProperties": 1, "properties": {"a": {}}, "additionalProperties": False},
            "named": {"required": ["x", "y"]},
        },
    }
    _, report = lower_schema(schema, SchemaOptions())
    found = {(entry.pointer, entry.keyword): entry for entry in report}
    assert found["/properties/open", "properties"].status == "narrowed"
    assert "in this order" in found["/properties/open", "properties"].note
    assert "repeats an undeclared key" in found["/properties/open", "minProperties"].note
    assert found["/properties/closed", "minProperties"].note == ""
    assert found["/properties/closed", "properties"].status == "exact"
    assert found["/properties/named", "required"].status == "narrowed"
    _, report = lower_schema(schema, SchemaOptions(key_order="any"))
    found = {(entry.pointer, entry.keyword): entry for entry in report}
    assert found["/properties/open", "properties"].status == "exact"
    assert found["/properties/named", "required"].status == "exact"
    assert "repeats an undeclared key" in found["/properties/open", "minProperties"].note


def test_a_report_is_written_when_it_is_first_read() -> None:
    calls: list[int] = []

    def entries() -> list[Entry]:
        calls.append(1)
        return [Entry("", "type", "exact")]

    report = Report(entries)
    assert not calls
    assert len(report) == 1 and report == Report((Entry("", "type", "exact"),)) and len(calls) == 1


def test_widening_reports_every_dropped_occurrence() -> None:
    word = {"type": "string", "pattern": r"^(a)\1"}
    schema = {"properties": {"x": word, "y": word, "z": {"not": word}}}
    grammar, report = lower_schema(schema, SchemaOptions(on_unsupported="widen"))
    assert {entry.pointer for entry in report.widened} >= {"/properties/x", "/properties/y"}
    assert not report.exact
    assert ir_reference.accepts(grammar, '{"x":"b"}')
    assert not ir_reference.accepts(grammar, '{"x":1}')
    # Under `not`, dropping the keyword alone would forbid strings that the schema allows.
    assert ir_reference.accepts(grammar, '{"z":"b"}')


def test_unknown_formats_can_be_refused() -> None:
    lower_schema({"format": "made-up"}, SchemaOptions())
    with pytest.raises(UnsupportedFeature, match="made-up"):
        lower_schema({"format": "made-up"}, SchemaOptions(unknown_formats="refuse"))
    _, report = lower_schema({"format": "date"}, SchemaOptions(assert_formats=False))
    assert report.with_status("annotation")[0].keyword == "format"


def test_a_report_counts_and_filters() -> None:
    report = Report((Entry("", "type", "exact"), Entry("/a", "title", "annotation", "n")))
    assert report.counts() == {"exact": 1, "annotation": 1}
    assert report.at("/a") == report.with_status("annotation")
    assert len(report) == 2


# Size --------------------------------------------------------------------------------------


def _nested(depth: int) -> Any:
    schema: Any = {"type": "null"}
    for level in range(depth):
        keyword = ("items", "additionalProperties", "allOf", "anyOf")[level % 4]
        schema = {keyword: [schema] if keyword.endswith("Of") else schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "properties": {f"property_{i}": {"type": "string"} for i in range(20_000)},
            "required": [f"property_{i}" for i in range(0, 20_000, 3)],
            "additionalProperties": False,
        },
        {"type": "string", "maxLength": 1_000_000},
        {"type": "array", "maxItems": 1_000_000, "minItems": 999_999},
        {"enum": [f"value number {i} of a large enumeration" for i in range(20_000)]},
        {"enum": [{"id": i, "tags": [i, None]} for i in range(1_000)]},
        {"prefixItems": [{"type": "integer"}] * 2_000},
        _nested(2_000),
    ],
    ids=["properties", "length", "items", "enum", "containers", "prefix", "depth"],
)
def test_large_schemas_compile_in_seconds(schema: Any) -> None:
    start = time.perf_counter()
    lower_schema(schema, SchemaOptions())
    assert time.perf_counter() - start < 60


def test_equal_subschemas_share_one_rule() -> None:
    record = {"type": "object", "properties": {"a": {"type": "integer"}}}
    one, _ = lower_schema({"properties": {"x": record}}, SchemaOptions())
    many = json.loads(json.dumps({"properties": {f"x{i}": record for i in range(50)}}))
    shared, _ = lower_schema(many, SchemaOptions())
    assert len(shared.rules) == len(one.rules)


def test_numbers_under_names_of_other_drafts_are_no_identifiers() -> None:
    for schema in (
        {"items": {"id": 5, "type": "null"}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "items": {"$id": 5}},
        {"properties": {"$id": {"type": "null"}}, "items": {"const": {"$id": 5}}},
    ):
        lower_schema(schema, SchemaOptions())
