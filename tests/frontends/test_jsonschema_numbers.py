"""Bounds, multiples and constants of numbers against exact decimal arithmetic."""

from __future__ import annotations

import importlib.util
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import structspec
from structspec import ir
from structspec.errors import UnsupportedFeature
from structspec.frontends.jsonschema import SchemaOptions, lower_schema

_path = Path(__file__).parent / "ir_reference.py"
_spec = importlib.util.spec_from_file_location("ir_reference", _path)
assert _spec is not None and _spec.loader is not None
ir_reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ir_reference)

_PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")

bounds = st.one_of(
    st.integers(-120, 120),
    st.integers(-(10**19), 10**19),
    st.decimals(-100, 100, places=2),
    st.decimals(-1, 1, places=3),
)
texts = st.one_of(
    st.from_regex(r"-?[0-9]{1,3}(\.[0-9]{1,3})?", fullmatch=True),
    st.integers(-(10**20), 10**20).map(str),
    st.from_regex(r"-?[0-9.]{1,4}", fullmatch=True),
)


def compile_numbers(schema: dict[str, Any], spelling: Any = "any") -> ir.GrammarIR:
    return lower_schema(schema, SchemaOptions(whitespace="compact", spelling=spelling))[0]


def near(bound: int | Decimal | None) -> list[str]:
    """Texts around a bound: the bound itself, its neighbours, longer spellings."""
    if bound is None:
        return []
    value = Decimal(bound)
    found = [value, value + 1, value - 1, value * 10, value + Decimal("0.001"),
             value - Decimal("0.001"), Decimal(int(value))]  # fmt: skip
    plain = [format(v, "f") for v in found]
    return plain + [t + ("0" if "." in t else ".0") for t in plain]


def right(schema: dict[str, Any], text: str) -> bool:
    if not _PLAIN.fullmatch(text):
        return False
    value = Fraction(text)
    if schema["type"] == "integer" and value.denominator != 1:
        return False
    return (
        ("minimum" not in schema or value >= Fraction(schema["minimum"]))
        and ("maximum" not in schema or value <= Fraction(schema["maximum"]))
        and ("exclusiveMinimum" not in schema or value > Fraction(schema["exclusiveMinimum"]))
        and ("exclusiveMaximum" not in schema or value < Fraction(schema["exclusiveMaximum"]))
        and (
            "multipleOf" not in schema or (value / Fraction(schema["multipleOf"])).denominator == 1
        )
    )


@st.composite
def number_schemas(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["integer", "number"]))}
    for keyword in draw(
        st.lists(
            st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
            unique=True,
            max_size=3,
        )
    ):
        schema[keyword] = draw(bounds)
    return schema


@settings(max_examples=250, deadline=None)
@given(number_schemas(), st.lists(texts, min_size=4, max_size=12))
def test_bounds_agree_with_decimal_arithmetic(schema: dict[str, Any], drawn: list[str]) -> None:
    grammar = compile_numbers(schema)
    for bound in list(schema.values())[1:]:
        drawn = drawn + near(bound)
    for text in drawn:
        # "-0" and "-0.0" are fine wherever 0 is, which Fraction says by itself.
        assert ir_reference.accepts(grammar, text) == right(schema, text), text


@settings(max_examples=100, deadline=None)
@given(
    number_schemas(),
    st.one_of(
        st.integers(1, 60),
        st.sampled_from([Decimal(t) for t in ("0.1", "0.01", "0.25", "2.5", "0.3", "1.5", "7.2")]),
    ),
    st.lists(texts, min_size=4, max_size=12),
)
def test_multiples_agree_with_fractions(
    schema: dict[str, Any], multiple: int | Decimal, drawn: list[str]
) -> None:
    schema = schema | {"multipleOf": multiple}
    grammar = compile_numbers(schema)
    several = [format(Decimal(k) * Decimal(multiple), "f") for k in (-41, -1, 0, 1, 3, 117, 10**6)]
    for bound in list(schema.values())[1:]:
        drawn = drawn + near(bound)
    for text in [*drawn, *several]:
        assert ir_reference.accepts(grammar, text) == right(schema, text), text


@settings(max_examples=100, deadline=None)
@given(number_schemas(), st.lists(texts, min_size=4, max_size=12))
def test_canonical_spelling_writes_every_value_and_nothing_else(
    schema: dict[str, Any], drawn: list[str]
) -> None:
    grammar = compile_numbers(schema, "canonical")
    for text in drawn:
        accepted = ir_reference.accepts(grammar, text)
        assert not accepted or right(schema, text)
        if right(schema, text):
            value = Decimal(text)
            plain = format(value, "f").rstrip("0").rstrip(".") if "." in text else text
            assert ir_reference.accepts(grammar, "0" if value == 0 else plain), plain


def test_long_bounds_stay_small() -> None:
    schema = {"type": "integer", "minimum": -(10**18) - 7, "maximum": 9223372036854775807}
    grammar = compile_numbers(schema)
    assert len(grammar.rules) < 80
    fraction = {"type": "number", "minimum": 0.1234567890123, "maximum": 98765.4321098765}
    assert len(compile_numbers(fraction).rules) < 80


@pytest.mark.parametrize(
    ("value", "good", "bad"),
    [
        (1, ["1", "1.0", "1.00"], ["1.01", "01", "10", "-1"]),
        (4.2, ["4.2", "4.20"], ["4.21", "4", "4.02"]),
        (0, ["0", "-0", "0.0", "-0.0"], ["00", "0."]),
        (-7.0, ["-7", "-7.0"], ["7", "-7."]),
        (1e3, ["1000"], ["1", "100"]),
        (1e-7, ["0.0000001"], ["0.000001"]),
    ],
)
def test_a_constant_number_is_matched_by_value(
    value: float, good: list[str], bad: list[str]
) -> None:
    grammar = compile_numbers({"const": value})
    for text in good:
        assert ir_reference.accepts(grammar, text), text
    for text in bad:
        assert not ir_reference.accepts(grammar, text), text


def test_an_enum_of_many_numbers_is_exact() -> None:
    values = [n * n for n in range(300)] + [0.5, 2.25]
    grammar = compile_numbers({"enum": values})
    for text in ("0", "1", "4", "89401", "0.5", "2.250"):
        assert ir_reference.accepts(grammar, text)
    for text in ("2", "3", "89400", "0.25"):
        assert not ir_reference.accepts(grammar, text)


def test_draft_4_integers_have_no_fraction_and_boolean_bounds() -> None:
    draft4 = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}
    grammar = compile_numbers({**draft4, "maximum": 3, "exclusiveMaximum": True})
    assert ir_reference.accepts(grammar, "2")
    assert not ir_reference.accepts(grammar, "3")
    assert not ir_reference.accepts(grammar, "2.0")


def test_floats_count_by_their_shortest_decimal() -> None:
    grammar = compile_numbers({"type": "number", "minimum": 0.1, "maximum": 0.3})
    assert ir_reference.accepts(grammar, "0.1")
    assert ir_reference.accepts(grammar, "0.3")
    assert not ir_reference.accepts(grammar, "0.30000000000000001")


def test_numbers_too_long_to_write_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="digits"):
        lower_schema('{"type": "number", "maximum": 1e99999999}', SchemaOptions())


def test_multiples_beyond_the_budget_are_refused_not_dropped() -> None:
    schema = {"type": "integer", "multipleOf": 1_000_003}
    with pytest.raises(UnsupportedFeature) as caught:
        compile_numbers(schema)
    assert caught.value.keyword == "multipleOf"


def test_mutually_exclusive_bounds_leave_nothing() -> None:
    grammar = compile_numbers({"type": "number", "minimum": 2, "exclusiveMaximum": 2})
    assert grammar.rules[grammar.start] == ir.NOTHING


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"multipleOf": 0.5}},
        {"type": "integer", "not": {"multipleOf": 3}},
        {"multipleOf": 0.25, "not": {"multipleOf": 0.5}, "minimum": -3},
        {"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]},
    ],
)
def test_what_must_not_divide_is_decided_digit_by_digit(schema: Any) -> None:
    grammar = compile_numbers(schema)
    for thousandth in range(-6500, 13000, 125):
        value = Fraction(thousandth, 1000)
        text = format(Decimal(thousandth) / 1000, "f")
        assert bool(ir_reference.accepts(grammar, text)) == _satisfies(schema, value), text
        assert bool(ir_reference.accepts(grammar, text + ("0" if "." in text else ".0"))) == (
            _satisfies(schema, value)
        )
    assert bool(ir_reference.accepts(grammar, "-0")) == _satisfies(schema, Fraction(0))


def _satisfies(schema: Any, value: Fraction) -> bool:
    if schema.get("type") == "integer" and value.denominator != 1:
        return False
    if "minimum" in schema and value < schema["minimum"]:
        return False
    if "multipleOf" in schema and (value / Fraction(str(schema["multipleOf"]))).denominator != 1:
        return False
    if "not" in schema and _satisfies(schema["not"], value):
        return False
    return "oneOf" not in schema or sum(_satisfies(sub, value) for sub in schema["oneOf"]) == 1


@pytest.mark.parametrize("keyword", ["minimum", "exclusiveMinimum"])
def test_negative_bounds_longer_than_the_decimal_context_are_exact(keyword: str) -> None:
    bound = "-0.12345678901234567890123456789012345"
    grammar = structspec.compile(f'{{"{keyword}": {bound}}}')
    assert grammar.accepts(bound) == (keyword == "minimum")
    assert not grammar.accepts(bound + "1")
    assert grammar.accepts(bound[:-1])


@pytest.mark.parametrize(
    ("schema", "low", "high"),
    [
        ({"minimum": 0}, True, None),
        ({"exclusiveMinimum": 0}, False, None),
        ({"maximum": 0}, None, True),
        ({"exclusiveMaximum": 0}, None, False),
    ],
)
def test_exponents_are_spelled_where_only_the_sign_is_bounded(
    schema: dict[str, Any], low: bool | None, high: bool | None
) -> None:
    grammar = structspec.compile({"type": "number", **schema})
    mantissas = ("1", "20", "0.5", "3.25", "0.001", "0", "0.0", "0.000", "10.0")
    for text in (sign + m + e for sign in ("", "-") for m in mantissas for e in ("e-06", "E+2")):
        value = Decimal(text)
        expected = (value > 0 if low is not None else value < 0) or (
            value == 0 and bool(low if low is not None else high)
        )
        assert grammar.accepts(text) == expected, text
    for text in ("1e", "e5", "1e+", "00e1", ".5e1", "1.e1"):
        assert not grammar.accepts(text)


def test_in_draft_4_what_is_no_integer_may_have_its_value() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "not": {"type": "integer"}}
    grammar = compile_numbers(schema)
    for text, right in {"1.0": True, "0.000": True, "-0.0": True, "1.5": True, "1": False}.items():
        assert ir_reference.accepts(grammar, text) == right, text
    twice = {**schema, "not": {"not": {"type": "integer"}}}
    for text, right in {"1.0": False, "1": True, "1.5": False}.items():
        assert ir_reference.accepts(compile_numbers(twice), text) == right, text
