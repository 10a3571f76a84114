"""GBNF grammars: every construct of the notation, and mistakes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import structspec
from structspec import ir
from structspec.errors import BudgetExceeded, SchemaError, UnsupportedFeature
from structspec.frontends.gbnf import lower_gbnf


def compile_gbnf(text: str, **options: object) -> structspec.Grammar:
    return structspec.compile(text, syntax="gbnf", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "valid", "invalid"),
    [
        ('root ::= "a" | [b-d] # x\n  # y\nother ::= "z"', ["a", "b", "d"], ["e", "z", ""]),
        ('root ::=\n  "a" |\n  "b"\n', ["a", "b"], ["ab"]),
        ('root ::= (\n "a"\n # c\n "b" )+\n', ["ab", "abab"], ["a"]),
        ("root ::= [^a-c\\]]{2}", ["de", "é\n"], ["ad", "]d", "d"]),
        ("root ::= [a\\-z-]", ["a", "-", "z"], ["b"]),
        ('root ::= [^^]"^"[]^]'.replace("[]^]", "[\\]^]"), ["a^]", "b^^"], ["^^]"]),
        ("root ::= .{1,2}", ["\n", "😀a"], ["", "abc"]),
        (r'root ::= "\x41\u00e9\U0001F600\t\r\n\\\"\[\]\-"', ['Aé😀\t\r\n\\"[]-'], ["A"]),
        (
            'root ::= "ab"* "c"{0} x-1_y{2,} \nx-1_y ::= "d"{,2} "e"',
            ["abee", "dede", "ddee"],
            ["e"],
        ),
        ('root ::= "" | "a" root?', ["", "a", "aaa"], ["b"]),
        ('root::="a"\r\nb::="c"\r\n', ["a"], ["c"]),
        ('root ::= "a" | root "b" | root root "c"', ["a", "ab", "aac", "abac"], ["", "b", "ac"]),
        (
            'root ::= e "x"\ne ::= n root | "y" | ""\nn ::= m*\nm ::= n',
            ["x", "yx", "xx", "yxx"],
            ["", "y"],
        ),
    ],
)
def test_every_construct_of_the_notation_has_its_meaning(
    text: str, valid: list[str], invalid: list[str]
) -> None:
    grammar = compile_gbnf(text)
    assert [t for t in valid if not grammar.accepts(t)] == []
    assert [t for t in invalid if grammar.accepts(t)] == []


def test_tokens_are_special_tokens_and_no_text() -> None:
    grammar = compile_gbnf("root ::= <think> !</think>* </think> <[7]> .*")
    think, end, seven = map(ir.Special, ("<think>", "</think>", "<[7]>"))
    assert grammar.accepts_parts([think, "any </think>\n", end, seven, "x"])
    assert grammar.accepts_parts([think, end, seven])
    assert not grammar.accepts_parts([think, "a", end, "x"])
    assert not grammar.accepts("<think></think>")
    assert [e.keyword for e in grammar.report.with_status("narrowed")] == ["!</think>"]


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ('root ::= "a" tail\n', 1, 14, "'tail' is not defined"),
        ('root ::= rot\nroot2 ::= "a"', 1, 10, "did you mean"),
        ('rout ::= "a"', 1, 1, "did you mean 'rout'"),
        ("", 1, 1, "no rule 'root'"),
        ('root ::= "a" root', 1, 1, "no text completes the rule 'root'"),
        ("root ::= a\na ::= b\nb ::= a", 1, 1, "no text completes"),
        ("root ::= []", 1, 1, "no text completes"),
        (r'root ::= "\q"', 1, 11, r"unknown escape \q"),
        (r"root ::= [\d]", 1, 11, r"unknown escape \d"),
        (r'root ::= "\x4"', 1, 11, "hexadecimal"),
        (r'root ::= "\ud800"', 1, 11, "no"),
        (r'root ::= "\U00110000"', 1, 11, "not a character"),
        ('root ::= "a', 1, 10, "never closed"),
        ("root ::= [a", 1, 10, "never closed"),
        ('root ::= ("a"\n', 1, 10, "never closed"),
        ('root ::= "a")', 1, 13, "fits nothing"),
        ("root ::= *", 1, 10, "nothing to repeat"),
        ('root ::= "a" | {2}', 1, 16, "nothing to repeat"),
        ('root ::= "a"{3,2}', 1, 13, "out of order"),
        ('root ::= "a"{x}', 1, 13, "a count is"),
        ('root ::= "a"{1 2}', 1, 13, "a count is"),
        ("root ::= [z-a]", 1, 11, "out of order"),
        ('root ::= "a"\nroot ::= "b"', 2, 1, "already defined in line 1"),
        ('root = "a"', 1, 6, "expected '::='"),
        ('root ::= "a"\n\n  "b"', 3, 3, "expected a rule"),
        ("root ::= <>", 1, 10, "a token is written"),
        ('root ::= "a" ::= "b"', 1, 14, "fits nothing"),
        ('one ::= "a"\ntwo ::= "b"', 1, 1, "rules here: one, two"),
        ('root ::= "\ud800"', 1, 11, "U+D800 is not a character"),
        ("root ::= [a\udfff]", 1, 12, "U+DFFF is not a character"),
    ],
)
def test_a_mistake_is_an_error_with_line_column_and_a_caret(
    text: str, line: int, column: int, said: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_gbnf(text)
    error = caught.value
    assert said in str(error)
    assert (error.line, error.column) == (line, column), str(error)
    assert str(error).splitlines()[-1].strip() == "^"


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ('root ::= "a"{999999999}', "repetition"),
        (f'root ::= "a"{{{"9" * 5000}}}', "repetition"),
        ('root ::= (("a"{10000}){10000}){10000}', "repetition"),
        ("root ::= a{10000}\na ::= b{10000}\nb ::= [b]{10000}", "repetition"),
        ("root ::= !<a>", "!<a>"),
        ("root ::= !<a>{3}", "!<a>"),
        ("root ::= " + "(" * 300 + '"a"' + ")" * 300, "("),
    ],
)
def test_what_cannot_be_exact_is_refused_by_name_and_place(text: str, keyword: str) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        compile_gbnf(text)
    assert caught.value.keyword == keyword and caught.value.line == 1


def test_a_byte_order_mark_is_no_part_of_a_grammar() -> None:
    assert compile_gbnf('\ufeffroot ::= "a"').accepts("a")


def test_another_start_rule_may_be_named() -> None:
    text = 'root ::= "a"\nother ::= "b" root'
    assert compile_gbnf(text, start="other").accepts("ba")
    with pytest.raises(SchemaError, match="no rule 'third'"):
        compile_gbnf(text, start="third")


def test_deep_recursion_and_long_chains_are_no_problem() -> None:
    chain = "\n".join(f"r{i} ::= r{i + 1}" for i in range(5000))
    grammar = compile_gbnf(f'root ::= r0\n{chain}\nr5000 ::= "x" root?')
    assert grammar.accepts("x" * 5000) and not grammar.accepts("xy")
    nested = compile_gbnf('root ::= "(" root ")" | ""')
    assert nested.accepts("(" * 3000 + ")" * 3000) and not nested.accepts("(" * 3000 + ")" * 2999)


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet='rot:=" \n|()[]{}*+?a-z\\x0,<>!#.^', max_size=30).map("root ::= ".__add__))
def test_any_text_lowers_or_raises_a_typed_error(text: str) -> None:
    with contextlib.suppress(SchemaError, UnsupportedFeature, BudgetExceeded):
        lower_gbnf(text)
