"""Lark's Python as a ready-made grammar, against Python's own tokenizer and parser."""

from __future__ import annotations

import ast
import io
import itertools
import token
import tokenize

import pytest

pytest.importorskip("lark", reason="the extra 'grammars' is not installed: pip install lark")

import structspec
from structspec import grammars
from structspec.bench.grammar_forms import spelled_out
from structspec.bench.grammars import QUERIES, python_texts


@pytest.fixture(scope="module")
def module() -> structspec.Grammar:
    return grammars.load("python_module")


def joins_lines_in_brackets(text: str) -> bool:
    depth = 0
    for found in tokenize.generate_tokens(io.StringIO(text).readline):
        if found.type == token.OP:
            depth += (found.string in "([{") - (found.string in ")]}")
        elif found.type == token.NL and depth:
            return True
    return False


def test_functions_of_the_standard_library_are_accepted(module: structspec.Grammar) -> None:
    judged = 0
    for text in itertools.islice(python_texts(), 120):
        ast.parse(text)
        if not joins_lines_in_brackets(text):
            assert module.accepts(text), text
            judged += 1
    assert judged >= 80


BROKEN = [
    "x = if\n",
    "def f(:\n    pass\n",
    "x = 'a'b'\n",
    'x = """a"""b"\n',
    "for = 1\n",
    "f(x=1 y)\n",
    "x = [1, 2\n",
    "x = (1]\n",
    "class:\n    pass\n",
    "if x\n    y\n",
    "x = 01\n",
    "x = 0x\n",
    "x = 'a\n",
    "import a.\n",
    "x +\n",
    "return return\n",
]


@pytest.mark.parametrize("text", BROKEN)
def test_what_python_refuses_as_syntax_is_refused(module: structspec.Grammar, text: str) -> None:
    with pytest.raises(SyntaxError):
        ast.parse(text)
    assert not module.accepts(text)


def test_statements_and_expressions_are_start_rules_of_their_own() -> None:
    expression = grammars.load("python_module", start="expression").accepts
    assert expression("[f(x) for x in y if not z]") and not expression("x = 1")
    statement = grammars.load("python_module", start="statement").accepts
    assert statement("x = 1\n") and not statement("x = 1\ny = 2\n")


def test_the_limits_that_the_file_names_are_true(module: structspec.Grammar) -> None:
    assert module.accepts("if x:\ny\n")  # in any indentation
    assert module.accepts("x = a if notb else c\n")  # a name, to Python
    assert module.accepts("x = a ifb else c\n")  # nothing, to Python
    assert not module.accepts("f(a,\n  b)\n")
    assert module.accepts("f(a, \\\n  b)\n")


@pytest.mark.parametrize("name", ["python_module", "sql_select"])
def test_a_grammar_that_is_spelled_out_keeps_its_language(name: str) -> None:
    grammar = grammars.load(name)
    again = structspec.compile(spelled_out(grammars.read(name)), syntax="lark")
    texts = [*QUERIES, *itertools.islice(python_texts(), 40), *BROKEN, "SELECT", "select 1 from t "]
    verdicts = [grammar.accepts(text) for text in texts]
    assert [again.accepts(text) for text in texts] == verdicts
    assert 10 < sum(verdicts) < len(texts)


def test_counts_templates_and_aliases_are_spelled_out() -> None:
    text = 'start: t{"a"} t{B}~2 -> x\nt{y}: y~1..2 [","]\nB: "b".."d" | /e/i\n%ignore " "\n'
    grammar = structspec.compile(text, syntax="lark")
    again = structspec.compile(spelled_out(text), syntax="lark")
    for case in ("a,bc", "aa bb, E,", "abc", "a b c d E ", "a", "aaabc", "a,,bc", "abcdbc"):
        assert again.accepts(case) == grammar.accepts(case), case
