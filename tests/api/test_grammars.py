"""The ready-made grammars compile and do what their titles say."""

import json

import pytest

pytest.importorskip("lark", reason="the extra 'grammars' is not installed: pip install lark")

import structspec
from structspec import grammars


@pytest.mark.parametrize("name", grammars.names())
def test_every_grammar_compiles(name):
    grammar = grammars.load(name)
    assert grammar.syntax == grammars.syntax(name) and not grammar.is_empty


def test_json_accepts_any_value_and_only_json():
    grammar = structspec.compile(grammars.read("json"))
    for text in ('{"a": [1, 2.5e3, null, {"b": "c\\n"}]}', "[]", '"x"', " true "):
        assert grammar.accepts(text), text
    for text in ("", "{", "[1,]", "nul", "01", "{'a': 1}"):
        assert not grammar.accepts(text), text


def test_tool_calls_need_a_name_and_arguments():
    grammar = structspec.compile(grammars.read("tool_calls"))
    call = {"name": "f", "arguments": {"x": [1, {"y": None}]}}
    assert grammar.accepts(json.dumps([call, call]))
    assert not grammar.accepts("[]")
    assert not grammar.accepts(json.dumps([{"name": "f"}]))


def test_an_unknown_name_lists_the_names():
    with pytest.raises(KeyError, match="json"):
        grammars.read("nope")
