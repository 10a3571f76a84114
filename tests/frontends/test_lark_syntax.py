"""Lark grammars: every construct of the notation, our additions to it, and mistakes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("lark", reason="the extra 'grammars' is not installed: pip install lark")

import structspec
from structspec import ir
from structspec.errors import BudgetExceeded, SchemaError, UnsupportedFeature
from structspec.frontends.lark import load as load_module
from structspec.frontends.lark.load import load
from structspec.frontends.lark.lower import lower_lark

CORPUS = Path(__file__).parent.parent / "corpus" / "grammar.jsonl"
CASES = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines() if line]


def compile_lark(text: str, **options: object) -> structspec.Grammar:
    return structspec.compile(text, syntax="lark", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_corpus_grammar_has_exactly_its_language(case: dict) -> None:
    if case.get("must_refuse_grammar"):
        with pytest.raises(SchemaError) as caught:
            structspec.compile(case["grammar"], syntax=case["syntax"])
        assert caught.value.line and caught.value.column and str(caught.value).endswith("^")
        return
    grammar = structspec.compile(case["grammar"], syntax=case["syntax"])
    assert [text for text in case["valid"] if not grammar.accepts(text)] == []
    assert [text for text in case["invalid"] if grammar.accepts(text)] == []


@pytest.mark.parametrize(
    ("text", "valid", "invalid"),
    [
        ('start: "a" -> one | b -> two\n?b.2: "x" | c\n!c: "y"\n', ["a", "x", "y"], ["", "ab"]),
        (
            'start: list{WORD, ","}\nlist{x, sep}: x (sep x)*\nWORD: /[a-z]+/\n',
            ["a", "ab,c"],
            ["", "a,", ",a"],
        ),
        (
            'start: outer{inner, "x"}\nouter{t, y}: t{y} t{y}\ninner{z}: z | "(" z ")"\n',
            ["xx", "x(x)", "(x)(x)"],
            ["x", "(xx)"],
        ),
        (
            "%import common.ESCAPED_STRING\n%import common.INT\n%import common.WS_INLINE -> BLANK\n"
            "start: ESCAPED_STRING | INT\n%ignore BLANK\n",
            ['"a\\"b"', " 12 ", '""', '"\\\\"'],
            ["1 2", '"\\"', "x"],
        ),
        (
            '%import common.INT\n%override INT: "0"\n%extend INT: "1"\nstart: INT\n',
            ["0", "1"],
            ["2", "01"],
        ),
        (
            'start: A~3 | B~1..2\nA: "a"i\nB: /b.c/s\n',
            ["aAa", "b\nc", "bxcbyc"],
            ["aa", "b", "aaaa"],
        ),
        (
            'start: X\nX.5: /a  b # blanks\n c/x | "d".."f"\n',
            ["abc", "d", "f"],
            ["a", "g", "a b c"],
        ),
        ('start: ["a"] ["b"] _c\n_c: "c"?\n', ["", "abc", "b", "ac"], ["ba", "cc"]),
        ('start: T+\nT: "ab" | /[ab]c?/~2\n', ["ab", "acb", "bcac", "abab"], ["a", "c"]),
        (
            'start: "\\n" | "\\u00e9" | "\\\\" | "\\"" | "\\d"\n',
            ["\n", "é", "\\", '"', "\\d"],
            ["n", "d"],
        ),
    ],
)
def test_every_construct_of_the_notation_has_its_meaning(
    text: str, valid: list[str], invalid: list[str]
) -> None:
    grammar = compile_lark(text)
    assert [t for t in valid if not grammar.accepts(t)] == []
    assert [t for t in invalid if grammar.accepts(t)] == []


def test_a_bar_reaches_as_far_as_in_lark_and_the_report_says_so() -> None:
    from lark import Lark

    text = 'start: T U\nT: /a|b/ "c"\nU: /(?:x|[|])/ "z" | (/p|q/)+ "r"\n'
    grammar = compile_lark(text)
    parser = Lark(text, parser="earley", lexer="dynamic_complete")
    for case in ("axz", "bcxz", "acxz", "a|z", "apqr", "bcpr", "bxz", "apz"):
        try:
            parser.parse(case)
            expected = True
        except Exception:
            expected = False
        assert grammar.accepts(case) == expected, case
    assert [(e.pointer, e.keyword) for e in grammar.report if "bar" in e.note] == [("line 2", "|")]


def test_priorities_are_noted_since_they_choose_among_parses() -> None:
    report = compile_lark('start: a\na.3: B\nB.2: "b"\n').report
    noted = {entry.keyword: entry.note for entry in report}
    assert "priority" in noted["a"] and "priority" in noted["B"] and report.exact
    assert [entry.pointer for entry in report] == ["line 1", "line 2", "line 3"]


# -- our additions -------------------------------------------------------------------------------


def test_inline_schemas_are_lowered_by_the_schema_front_end() -> None:
    text = """start: "call " %json {
        "type": "object", "properties": {"n": {"type": "integer"}, "t": {"$ref": "#/$defs/t"}},
        "required": ["n"], "additionalProperties": false,
        "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}
    } end
    end: "." | %json {"const": "}"}
    """
    grammar = compile_lark(text, whitespace="compact")
    assert grammar.accepts('call {"n":1,"t":[[],[[]]]}.') and grammar.accepts('call {"n":-2}"}"')
    assert not grammar.accepts('call {"t":[]}.') and not grammar.accepts('call {"n": 1}.')
    assert compile_lark(text, whitespace="conventional").accepts('call {"n": 1}.')
    assert any(e.keyword == "required" and e.pointer.startswith("line 1") for e in grammar.report)


@pytest.mark.parametrize(
    ("schema", "kind", "said"),
    [
        ('{"type": "intger"}', SchemaError, "intger"),
        ('{"type": ', SchemaError, "JSON value"),
        ('{"minimum": "x"}', SchemaError, "minimum"),
    ],
)
def test_a_mistake_in_an_inline_schema_is_shown_where_it_stands(
    schema: str, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind) as caught:
        compile_lark(f'a: "x"\nstart: a %json {schema}\n')
    error = caught.value
    assert said in str(error) and error.line in (2, 3)  # type: ignore[attr-defined]
    assert str(error).endswith("^")


def test_special_tokens_stand_in_rules_and_equal_no_text() -> None:
    grammar = compile_lark('start: <|a|> TEXT %special "[B]" | <[7]>\nTEXT: /[^<]+/\n')
    a, b = ir.Special("<|a|>"), ir.Special("[B]")
    assert grammar.accepts_parts([a, "x", b]) and grammar.accepts_parts([ir.Special("<[7]>")])
    assert not grammar.accepts("<|a|>x[B]") and not grammar.accepts_parts([a, b])
    with pytest.raises(SchemaError, match="in rules") as caught:
        compile_lark("start: T\nT: <|a|>\n")
    assert (caught.value.line, caught.value.column) == (2, 4)


def test_terminals_are_closed_under_and_and_complement() -> None:
    grammar = compile_lark(
        "start: NAME | NUMBER\n"
        'NAME: /[a-z]+/ & ~("if" | "else") & ~/.*xx.*/\n'
        "NUMBER: /[0-9]{3,}/ & (/.*[05]/ | ~/[1-9]*/) | ~~/-/\n"
    )
    for text in ("iffy", "i", "xyx", "125", "103", "990", "-"):
        assert grammar.accepts(text), text
    for text in ("if", "else", "axxb", "123", "15", "", "A", "--"):
        assert not grammar.accepts(text), text


def test_a_tilde_before_a_number_is_still_a_count() -> None:
    grammar = compile_lark('start: A\nA: "a"~2 | ~/[^b]*/ & /[bc]~?2?/\n')
    assert grammar.accepts("aa") and grammar.accepts("b~2") and not grammar.accepts("c2")


def test_assertions_inside_a_terminal_are_exact() -> None:
    grammar = compile_lark(
        r"start: C ID" "\n" r"C: /\/\*(?:(?!\*\/).)*\*\//s" "\n" r"ID: /(?!x)\w+(?<!y)(?=z)z/"
    )
    assert grammar.accepts("/* a\n* */az") and not grammar.accepts("/* */ */az")
    assert not grammar.accepts("/**/xz") and not grammar.accepts("/**/yz")


def test_assertions_that_look_past_a_terminal_are_refused_or_widened() -> None:
    text = "start: IF NAME\nIF: /if\\b/\nNAME: /[a-z]+/\n"
    with pytest.raises(UnsupportedFeature) as caught:
        compile_lark(text)
    assert caught.value.keyword == "lookahead" and caught.value.line == 2
    assert "IF" in str(caught.value)
    widened = compile_lark(text, on_unsupported="widen")
    assert [entry.keyword for entry in widened.report.widened] == ["IF"]
    assert widened.accepts("ifx")


def test_imports_come_from_resources_and_our_additions_work_there() -> None:
    words = 'start: W\nW: /[a-z]+/ & ~"no"\nvalue: %json {"type": "null"} | <|x|>\n'
    grammar = compile_lark(
        "%import .lib.words.W\n%import .lib.words.value\nstart: W value\n",
        resources={"lib/words.lark": words},
        whitespace="compact",
    )
    assert grammar.accepts("yes null") is False and grammar.accepts("yesnull")
    assert not grammar.accepts("nonull") and not grammar.accepts("no")
    with pytest.raises(SchemaError, match="no grammar"):
        compile_lark("%import .lib.words.W\nstart: W\n")


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("start: a\n", 1, 8, "'a' used but not defined"),
        ('start: "a" B\n', 1, 12, "'B' used but not defined"),
        ('begin: "a"\n', 1, 1, "no rule 'start'"),
        ('strat: "a"\n', 1, 1, "did you mean 'strat'"),
        ('start: "a" start\n', 1, 1, "no text completes the rule 'start'"),
        ('start: a | b\na: b "x"\nb: a "y"\n', 1, 1, "no text completes"),
        ("start: A\nA: /a/ & /b/\n", 1, 1, "no text completes"),
        ('start: ("a"\n', 1, 12, "unexpected end of the line"),
        ('start: "a" ) "b"\n', 1, 12, ""),
        ('start: "a\n', 1, 8, ""),
        ("start: /a(/\n", 1, 8, "never closed"),
        (r"start: /\q/" "\n", 1, 8, "not an escape"),
        ('start: a\na: "x"\na: "y"\n', 3, 1, "defined more than once"),
        ('start: "a"~3..2\n', 1, 12, "out of order"),
        ("start: A\nA: B\nB: A\n", 2, 1, "ecursion"),
        ('start: t{"a"}\nt{x, y}: x y\n', 1, 8, "rguments"),
        ("start: t\nt{x}: x\n", 1, 1, "without its arguments"),
        ('start: "a" & "b"\n', 1, 12, "in terminals"),
        ('start: A\nA: & "b"\n', 2, 4, "between two parts"),
        ("%import nowhere.X\nstart: X\n", 1, 1, "no grammar"),
        ('start: A\nA: "b".."a"\n', 2, 4, "out of order"),
        ("start: \U0010fffe\n", 1, 8, "reserved"),
        ("", 1, 1, "no rule 'start'"),
        (r'start: "\u12"' "\n", 1, 8, "this escape is broken (truncated"),
        (r"start: /\xz/" "\n", 1, 8, "this escape is broken (truncated"),
        ('one: "a"\ntwo: "b"\n', 1, 1, "rules here: one, two"),
        (r'start: "a" | "x\ud800"' "\n", 1, 14, "U+D800 is not a character"),
        (r'start: "a".."\udfff"' "\n", 1, 13, "U+DFFF is not a character"),
        ('start: "\ud800"\n', 1, 9, "U+D800 is not a character"),
        ('start: "a\x00b"\n', 1, 8, "write \\x00"),
        ('start: A\nA: "x" | b\nb: "x"\n', 2, 10, "the terminal 'A' uses the rule 'b'"),
        ('start: "a" %json {"type": "foo"}\n', 1, 18, "line 1, column 18: in this schema"),
    ],
)
def test_a_mistake_is_an_error_with_line_column_and_a_caret(
    text: str, line: int, column: int, said: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_lark(text)
    error = caught.value
    assert said in str(error)
    assert (error.line, error.column) == (line, column), str(error)
    assert str(error).splitlines()[-1].strip() == "^"


@pytest.mark.parametrize(
    ("text", "keyword", "line"),
    [
        ('start: "a"~300000000\n', "repetition", 1),
        ("%declare A\nstart: A\n", "%declare A", 2),
        ("start: /(a)\\1/\n", "backreference", 1),
        ("start: A\nA: /a++/\n", "possessive quantifier", 2),
        ("start: /a{300000000}/\n", "repetition", 1),
        (f'start: "a"~{"9" * 5000}\n', "repetition", 1),
        ('\nstart: (("a"~10000)~10000)~10000\n', "repetition", 2),
        ('start: a~10000\na: b~10000\nb: "b"~10000\n', "repetition", 1),
        ("start: " + "(" * 20_000 + '"a"?' + ")*" * 20_000 + "\n", "(", 1),
    ],
)
def test_what_cannot_be_exact_is_refused_by_name_and_place(
    text: str, keyword: str, line: int
) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        compile_lark(text)
    assert (caught.value.keyword, caught.value.line) == (keyword, line)
    assert str(caught.value).splitlines()[-1].strip() == "^"


def test_templates_without_end_and_large_products_pass_a_budget() -> None:
    with pytest.raises(BudgetExceeded, match="templates"):
        compile_lark('start: t{"a"}\nt{x}: "b" | t{u{x}}\nu{y}: y "c"\n')
    with pytest.raises(BudgetExceeded) as caught:
        compile_lark('start: A\nA: ("a" & "a")~100000000\n')
    assert (caught.value.line, caught.value.column) == (2, 1)
    assert str(caught.value).splitlines()[-1].strip() == "^"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='aAb:=" \n|()[]{}*+?~.,%/\\x0<>!#&d8', max_size=30))
def test_any_text_lowers_or_raises_a_typed_error(text: str) -> None:
    with contextlib.suppress(SchemaError, UnsupportedFeature, BudgetExceeded):
        lower_lark('a: "x"\nA: "y"\nstart: ' + text)


def test_a_byte_order_mark_is_no_part_of_a_grammar() -> None:
    words = {"words.lark": '\ufeffX: "b"\n'}
    grammar = compile_lark('\ufeffstart: "a" X\n%import .words.X\n', resources=words)
    assert grammar.accepts("ab") and not grammar.accepts("\ufeffab")


def test_places_of_many_rules_cost_one_pass_over_the_text() -> None:
    """A search for every name takes a time that grows with the square of the file."""
    calls: list[str] = []
    chain = "".join(f'r{i}: "(" r{i + 1} ")"\n' for i in range(300)) + 'r300: "x"\n'
    loaded = load("start: r0\n" + chain)
    real = load_module.re.finditer
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_module.re, "finditer", lambda *args: calls.append("pass") or real(*args))
        places = [loaded.definition(f"r{i}") for i in range(301)]
    assert places == sorted(places) and places[0] == 10 and len(calls) == 1
    assert loaded.definition("missing") is None


def test_nested_nullables_and_large_counts_are_no_problem() -> None:
    grammar = compile_lark('start: (((x?)*)+)~2..50000\nx: y* |\ny: ("a"?)~0..3 x?\n')
    assert grammar.accepts("") and grammar.accepts("a" * 40) and not grammar.accepts("ab")
