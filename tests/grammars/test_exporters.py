"""Grammars written as GBNF and as Lark: compiled again they have the same language."""

from __future__ import annotations

import random
import re

import pytest

pytest.importorskip("lark", reason="the extra 'grammars' is not installed: pip install lark")

from earley_reference import Recogniser
from lark import Lark
from random_grammars import grammar as random_grammar
from random_grammars import mutated, texts

import structspec
from structspec import grammars, ir
from structspec.errors import BudgetExceeded, Unsatisfiable, UnsupportedFeature
from structspec.frontends.gbnf import to_gbnf
from structspec.frontends.lark import to_lark
from structspec.ir_codec import decode
from structspec.sampling import sample

MEMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}, "c": {"type": "null"}},
    "required": ["a"],
}
SCHEMAS = [
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"type": "string", "pattern": "^(ab|c)*$", "maxLength": 7},
    {"type": "string", "maxLength": 3000},
    {"type": "integer", "minimum": -3, "maximum": 120, "multipleOf": 3},
    {"enum": ["é\n\"\\", 1.5, None, {"k": []}]},
    {**MEMBERS, "additionalProperties": False},
    {**MEMBERS, "additionalProperties": {"type": "integer"}},
    {**MEMBERS, "additionalProperties": {"type": "integer"}, "maxProperties": 2},
    {**MEMBERS, "additionalProperties": {"type": "null"}, "minProperties": 3, "maxProperties": 4},
    {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"},
]  # fmt: skip


def check(grammar: structspec.Grammar, seed: int, count: int = 60) -> None:
    """Both written forms have the verdict of the grammar on its texts and their mutations."""
    gbnf = structspec.compile(grammar.to_gbnf(), syntax="gbnf")
    lark = structspec.compile(grammar.to_lark(), syntax="lark")
    rng = random.Random(seed)
    samples = [text.decode() for text in sample(grammar, count, seed=seed, max_bytes=60)]
    back = [text.decode() for text in sample(gbnf, count // 2, seed=seed, max_bytes=60)]
    for text in [*samples, *back, *(mutated(rng, t) for t in samples), *texts(rng, count // 2)]:
        expected = grammar.accepts(text)
        assert gbnf.accepts(text) == expected, text
        assert lark.accepts(text) == expected, text


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_a_schema_keeps_its_language_in_both_notations(number: int, order: str) -> None:
    grammar = structspec.compile(
        SCHEMAS[number],
        key_order=order,  # type: ignore[arg-type]
        whitespace="compact",
        spelling="canonical" if number % 2 else "any",
    )
    check(grammar, seed=number)


@pytest.mark.parametrize("name", ["arithmetic", "chess_san", "gbnf", "iso_datetime", "xml_tags"])
def test_a_ready_grammar_keeps_its_language_in_both_notations(name: str) -> None:
    check(grammars.load(name), seed=5, count=40)


def test_random_grammars_keep_their_language_in_both_notations() -> None:
    rng = random.Random(7)
    done = 0
    while done < 25:
        try:
            grammar = structspec.compile(random_grammar(rng, ordered=True), syntax="lark")
        except structspec.SchemaError:
            continue  # no text at all
        check(grammar, seed=done, count=20)
        done += 1


def test_lark_itself_reads_what_is_written_for_it() -> None:
    grammar = structspec.compile(SCHEMAS[5], whitespace="compact", spelling="canonical")
    reference = Recogniser(grammar.to_lark())
    parser = Lark(grammar.to_lark(), parser="earley", lexer="dynamic_complete")
    for text in ('{"a":12}', '{"a":-1,"b":"y","c":null}', '{"a":0,"c":null}'):
        assert reference.accepts(text) and parser.parse(text) and grammar.accepts(text)
    for text in ("{}", '{"a":01}', '{"c":null,"a":1}', '{"a":1,"a":1}', '{"a":1,}'):
        assert not reference.accepts(text) and not grammar.accepts(text)


def test_large_counts_are_split_for_llama_cpp_and_stay_exact() -> None:
    for low, high in ((0, 4321), (2500, 2500), (1500, None), (1200, 3400)):
        rules = ir.GrammarIR({"r": ir.Repeat(ir.Bytes(b"a"), low, high)}, "r")
        text = to_gbnf(rules)
        counts = [int(n) for pair in re.findall(r"\{(\d*),?(\d*)\}", text) for n in pair if n]
        assert counts and max(counts) <= 1000
        grammar = structspec.compile(text, syntax="gbnf")
        for size in (0, 1, 1199, 1200, 1499, 1500, 2499, 2500, 2501, 3400, 3401, 4321, 4322):
            expected = low <= size and (high is None or size <= high)
            assert grammar.accepts("a" * size) == expected, (low, high, size)


def test_what_cannot_be_written_is_refused_by_name() -> None:
    many = {"type": "object", "properties": {f"k{i}": {} for i in range(20)}}
    with pytest.raises(BudgetExceeded, match="members") as caught:
        structspec.compile(many, key_order="any").to_gbnf()
    assert caught.value.needed and caught.value.needed > caught.value.limit
    structspec.compile(many, key_order="declared").to_gbnf()
    with pytest.raises(Unsatisfiable):
        structspec.compile(False).to_lark()
    with pytest.raises(UnsupportedFeature, match="no characters"):
        to_lark(ir.GrammarIR({"r": ir.Bytes(b"\xff")}, "r"))
    special = ir.GrammarIR({"r": ir.Sequence((ir.Special("[B]"), ir.Special("<|a|>")))}, "r")
    with pytest.raises(UnsupportedFeature, match="special token"):
        to_gbnf(special)
    again = structspec.compile(to_lark(special), syntax="lark")
    assert again.accepts_parts([ir.Special("[B]"), ir.Special("<|a|>")])


def test_a_grammar_that_was_saved_with_its_rules_can_be_written_out() -> None:
    for source in (*SCHEMAS, True):
        grammar = structspec.compile(source, key_order="any")
        again = structspec.Grammar.from_bytes(grammar.to_bytes(rules=True))
        assert again.grammar_ir == grammar.grammar_ir
    assert again.to_gbnf() == grammar.to_gbnf() and again.to_lark() == grammar.to_lark()
    special = structspec.compile('start: <|a|> "b"~2..3 | %json {"type": "null"}\n', syntax="lark")
    again = structspec.Grammar.from_bytes(special.to_bytes(rules=True))
    assert again.grammar_ir == special.grammar_ir


def test_a_grammar_that_was_saved_without_rules_says_how_to_get_them() -> None:
    again = structspec.Grammar.from_bytes(structspec.compile({"type": "null"}).to_bytes())
    for write in (again.to_gbnf, again.to_lark):
        with pytest.raises(structspec.SerializationError, match=r"to_bytes\(rules=True\)"):
            write()
    assert again.accepts("null")


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"nodes": [], "rules": {"s": 0}, "start": "s"},
        {"nodes": [["Repeat", 0, 1, None]], "rules": {"s": 0}, "start": "s"},
        {"nodes": [["Nope", 1]], "rules": {"s": 0}, "start": "s"},
        {"nodes": [["Bytes", "\u1234"]], "rules": {"s": 0}, "start": "s"},
        {"nodes": [["Bytes", "a"]], "rules": {"s": 0}, "start": "t"},
        {"nodes": [["Bytes", "a"]], "rules": {"s": True}, "start": "s"},
        {"nodes": 3, "rules": [], "start": "s"},
    ],
)
def test_broken_rules_in_saved_bytes_are_a_typed_error(value: dict) -> None:
    with pytest.raises(structspec.SerializationError):
        decode(value)
