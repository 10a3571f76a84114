"""Spelling of characters and strings, lengths in code points, excluded strings."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import structspec
from structspec import ir
from structspec.frontends.jsonschema import SchemaOptions, lower_schema, spell, spell_text

_path = Path(__file__).parent / "ir_reference.py"
_spec = importlib.util.spec_from_file_location("ir_reference", _path)
assert _spec is not None and _spec.loader is not None
ir_reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ir_reference)

characters = st.characters(exclude_categories=["Cs"])
strings = st.text(st.one_of(characters, st.sampled_from('"\\/\n\t\x00\x1f\x7fé😀')), max_size=8)


def accepts(node: ir.Node, text: str) -> bool:
    return bool(ir_reference.accepts(ir.GrammarIR({"root": node}, "root"), text))


def compiled(schema: Any, **policies: Any) -> ir.GrammarIR:
    return lower_schema(schema, SchemaOptions(whitespace="compact", **policies))[0]


def escaped(text: str, upper: bool) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = (units[i : i + 2].hex() for i in range(0, len(units), 2))
    return '"' + "".join("\\u" + (pair.upper() if upper else pair) for pair in pairs) + '"'


@settings(max_examples=200, deadline=None)
@given(strings, strings)
def test_a_text_is_spelled_as_json_dumps_spells_it_and_no_other_text_is(
    text: str, other: str
) -> None:
    canonical = json.dumps(text, ensure_ascii=False)
    for spelling in ("any", "canonical"):
        node = spell_text(text, spelling)  # type: ignore[arg-type]
        assert accepts(node, canonical)
        assert accepts(node, json.dumps(other, ensure_ascii=False)) == (text == other)
    for upper in (False, True):
        assert accepts(spell_text(text), escaped(text, upper))
    assert accepts(spell_text(text, "canonical"), escaped(text, False)) == (
        escaped(text, False) == canonical
    )


@settings(max_examples=300, deadline=None)
@given(characters, characters, characters)
def test_a_range_spells_exactly_its_characters(first: str, last: str, probe: str) -> None:
    low, high = sorted((ord(first), ord(last)))
    clipped = [(low, min(high, 0xD7FF)), (max(low, 0xE000), high)]
    ranges = tuple((a, b) for a, b in clipped if a <= b)
    node = spell(ranges)
    for character in (probe, first, last):
        inside = low <= ord(character) <= high
        assert accepts(node, json.dumps(character, ensure_ascii=False)[1:-1]) == inside
        assert accepts(node, escaped(character, True)[1:-1]) == inside
        assert accepts(node, escaped(character, False)[1:-1]) == inside


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 5), st.integers(0, 7), strings, st.booleans())
def test_length_counts_code_points(low: int, high: int, text: str, escape: bool) -> None:
    grammar = compiled({"type": "string", "minLength": low, "maxLength": high})
    spelled = escaped(text, False) if escape else json.dumps(text, ensure_ascii=False)
    right = low <= len(text) <= high
    if low <= high:
        assert ir_reference.accepts(grammar, spelled) == right
    else:
        assert grammar.rules[grammar.start] == ir.NOTHING


@settings(max_examples=150, deadline=None)
@given(st.lists(strings, min_size=1, max_size=4), strings, st.integers(0, 4))
def test_excluded_strings_are_the_only_ones_missing(
    excluded: list[str], probe: str, low: int
) -> None:
    grammar = compiled({"type": "string", "minLength": low, "not": {"enum": excluded}})
    for text in (*excluded, probe, probe + "a", excluded[0][:-1]):
        right = text not in excluded and len(text) >= low
        assert ir_reference.accepts(grammar, json.dumps(text, ensure_ascii=False)) == right


@pytest.mark.parametrize("text", ['"\n"', '"\x00"', '"\\x"', '"\\u12"', '"', '""x', "'a'"])
def test_what_is_no_json_string_is_refused(text: str) -> None:
    for spelling in ("any", "canonical"):
        assert not ir_reference.accepts(compiled({"type": "string"}, spelling=spelling), text)


def test_a_lone_surrogate_in_a_constant_is_spelled_by_its_escape() -> None:
    grammar = compiled({"const": "a\ud800"})
    assert ir_reference.accepts(grammar, '"a\\ud800"')
    assert ir_reference.accepts(grammar, '"a\\uD800"')
    assert ir_reference.accepts(compiled({"const": "\ud83d\ude00"}), '"😀"')


def test_other_spellings_are_marked_as_variants() -> None:
    assert spell_text("k") == ir.Sequence(
        (
            ir.Bytes(b'"'),
            ir.Choice(
                (
                    ir.Bytes(b"k"),
                    ir.Variant(ir.Sequence((ir.Bytes(b"\\u006"), ir.Chars(((66, 66), (98, 98)))))),
                )
            ),
            ir.Bytes(b'"'),
        )
    )


def test_large_documents_share_the_escapes_of_a_character() -> None:
    words = [f"word{i:04d}" for i in range(1000)]
    grammar = compiled({"enum": words})
    assert "escape-0077" in grammar.rules
    assert ir_reference.accepts(grammar, '"\\u0077ord0999"')
    assert not ir_reference.accepts(grammar, '"word1000"')


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (r"^(?=.*\d)(?=.*[a-z]).{4,}$", ["abc1", "1zzzz"], ["abcd", "1234", "a1"]),
        (r"^(?!.*admin)[a-z]+$", ["adm", "root"], ["admin", "xadminx"]),
        (r"(?<!\\)\$", ["$", "a$"], ["\\$", "a"]),
    ],
)
def test_lookaround_in_patterns_is_exact(pattern: str, right: list[str], wrong: list[str]) -> None:
    grammar = structspec.compile({"type": "string", "pattern": pattern})
    assert [text for text in right if not grammar.accepts(json.dumps(text))] == []
    assert [text for text in wrong if grammar.accepts(json.dumps(text))] == []
