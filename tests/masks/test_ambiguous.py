"""Masks of grammars that may be in many rules at once: those of programming languages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import structspec
from structspec import grammars, ir
from structspec.automata.memory import Slot
from structspec.ir_codec import decode, encode
from structspec.masks.places import MANY_PAIRS
from tests.masks.test_places import check, vocabulary

PIECES = [
    *"()[]{}+-*/%<>=!&|^~,.:;#@ \n\t'\"_xyzin0123456789é中",
    *("==", "!=", "<=", ">=", "**", "//", "->", ":=", "+=", "()", "[]", "({", "))", "):\n", ", "),
    *("if", "in", "is", "or", "and", "not", "for", "else", "def ", "return ", "lambda ", "import "),
    *("select ", "from ", "where ", "SELECT", "FROM", " AS ", "count(", "LIKE '", "NULL", "IN ("),
    *("abc", "name", "self.", "x if ", " # say", "\n    ", '"""', "'s'", '"t"', "1.5", "0x", "e-3"),
    *("fé", "中文", " é"),
]


LARGE, SMALL = vocabulary(3, 1200, PIECES), vocabulary(4, 350, PIECES)

OPERATORS = ("+", "-", "*", "/", "%", "<", ">", "<=", "==", "and", "or", "in", "is", "|", "&", "^")
ATOMS = (
    "NUMBER",
    "TEXT",
    '"(" e0 ")"',
    '"[" [e0 ("," e0)*] "]"',
    '"not" e0',
    '"-" atom',
    '"lambda" NAME ":" e0',
    "NAME~2",
    '"{" (e0 ":" e0)~0..3 "}"',
    '"None"',
    '"x" "if" e0',
)
IGNORED = (
    "",
    "%ignore /[ \\t]+/\n",
    "%ignore /[ \\t]+/\n%ignore /#[^\\n]*/\n",
    "%ignore / +/\n%ignore /#.*?;/\n",
)


@st.composite
def expression_grammars(draw: st.DrawFn) -> str:
    """Levels of operators over atoms, as manuals of languages have them, with ignored text."""
    operators = draw(st.lists(st.sampled_from(OPERATORS), min_size=3, max_size=12, unique=True))
    others = draw(st.lists(st.sampled_from(ATOMS), min_size=3, max_size=len(ATOMS), unique=True))
    atoms = ["NAME", *others]  # without it no text might ever end
    lines = ["start: e0 | start e0" if draw(st.booleans()) else "start: e0"]
    for level, operator in enumerate(operators):
        above = f"e{level + 1}" if level + 1 < len(operators) else "atom"
        tail = draw(st.sampled_from((f'("{operator}" {above})*', f'["{operator}" e{level}]')))
        lines.append(f"e{level}: {above} {tail}")
    calls = ' ("(" [e0] ")" | "." NAME)*' if draw(st.booleans()) else ""
    lines.append("atom: " + " | ".join(f"{a}{calls if a == 'NAME' else ''}" for a in atoms))
    names = draw(st.sampled_from((r"/[a-z_]\w*/", r"/[a-z]+/", r"/[^\W\d]{1,9}/")))
    lines += [f"NAME: {names}", r"NUMBER: /\d+(\.\d+)?/", r"TEXT: /'[^'\n]*'|\"(\\.|[^\"\\])*\"/"]
    return "\n".join(lines) + "\n" + draw(st.sampled_from(IGNORED))


@given(grammar=expression_grammars(), seed=st.integers(0, 1 << 20))
@settings(max_examples=12, deadline=None)
def test_masks_of_expressions_match_the_automaton(grammar: str, seed: int) -> None:
    check(structspec.compile(grammar, syntax="lark").bind(SMALL), seed, 5)


@pytest.mark.parametrize("name", ["sql_select", "python_module", "python_expression"])
@pytest.mark.parametrize("seed", range(3))
def test_masks_of_ready_grammars_match_the_automaton(name: str, seed: int) -> None:
    check(grammars.load(name).bind(SMALL if seed else LARGE), seed, 12)


def test_what_a_text_leaves_behind_does_not_grow_with_its_contexts() -> None:
    """Rules are walked by themselves: a second function costs much less memory than the first."""
    constraint = grammars.load("python_module").bind(LARGE)
    automaton = constraint.cache.automaton
    grown = []
    for k in range(4):
        before = automaton.n_configurations
        state = constraint.start
        text = (
            f"def f{k}(a{k}, b=[{k}]):\n    # about {k}\n    return (a{k} + b[{k}] * {k}).run(k)\n"
        )
        for byte in text.encode():
            constraint.mask(state)
            state = constraint.advance(state, byte)
        grown.append(automaton.n_configurations - before)
    assert grown[0] < 60_000
    assert max(grown[1:]) < grown[0] / 3, grown


def test_the_grammars_here_do_reach_many_places_at_once() -> None:
    """Or the tests above would say nothing about configurations of many pairs."""
    constraint = grammars.load("python_module").bind(SMALL)
    state, automaton = constraint.start, constraint.cache.automaton
    for byte in b"x = y":
        state = constraint.advance(state, byte)
    start = automaton.memory.get(Slot.CONFIG_START)
    number = state & 0xFFFFFFFF
    assert (start[number + 1] - start[number]) // 2 >= MANY_PAIRS


def test_a_rule_that_is_called_stays_one_through_bytes() -> None:
    rule = ir.Rule("gap", called=True)
    grammar = ir.GrammarIR(
        {
            "root": ir.sequence((rule, ir.Bytes(b"a"), rule)),
            "gap": ir.Repeat(ir.Bytes(b" "), 0, None),
        },
        "root",
    )
    again = decode(encode(grammar))
    assert again.rules["root"] == grammar.rules["root"]
