"""The two JSON forms of structural tags, as the field writes them."""

from __future__ import annotations

import json

import pytest

import structspec
from structspec.frontends.tags import Tag, Token, read_structural_tag

TAGS = [
    {
        "type": "tag",
        "begin": "<f=a>",
        "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
        "end": "</f>",
    },
    {
        "type": "tag",
        "begin": "<f=b>",
        "content": {"type": "regex", "pattern": "x+"},
        "end": ["</f>", "</b>"],
    },
]


def accepts(form, text):
    source = {"type": "structural_tag", "format": form}
    return structspec.compile(source, syntax="structural_tag").accepts(text)


# verdicts of XGrammar 0.2.9 on the same forms and texts
VERDICTS = {
    (False, False): "tttttfttt",
    (False, True): "tttffftft",
    (True, False): "ffttffftf",
    (True, True): "fftffffff",
}
TEXTS = [
    "",
    "hi <f",
    "<f=a>1</f>",
    "<f=a>1</f> hi",
    "hi <f=a>1</f> yo <f=b>xx</f>",
    "<f=c>",
    "<<f=a>1</f>",
    "<f=a>1</f><f=b>x</f>",
    "hi <f=b>x</b>",
]


@pytest.mark.parametrize(("one", "stop"), VERDICTS)
def test_triggered_tags_mean_what_they_mean_elsewhere(one, stop):
    form = {
        "type": "triggered_tags",
        "triggers": ["<f="],
        "tags": TAGS,
        "at_least_one": one,
        "stop_after_first": stop,
    }
    verdicts = "".join("t" if accepts(form, text) else "f" for text in TEXTS)
    assert verdicts == VERDICTS[one, stop]


def test_the_older_form_with_structures_is_read():
    source = {
        "type": "structural_tag",
        "structures": [
            {"begin": "<function=f>", "schema": {"type": "object"}, "end": "</function>"},
            {"begin": "<function=g>", "schema": {"type": "null"}, "end": "</function>"},
        ],
        "triggers": ["<function="],
    }
    for form in (source, json.dumps(source)):
        grammar = structspec.compile(form, syntax="structural_tag")
        assert grammar.accepts('I call <function=f>{"a": 1}</function> now')
        assert grammar.accepts("<function=g>null</function>")
        assert not grammar.accepts("<function=g>{}</function>")
        assert not grammar.accepts("<function=h>null</function>")


def test_the_other_formats_of_the_newer_form_are_read():
    digit = {"type": "regex", "pattern": "[0-9]"}
    assert accepts({"type": "optional", "content": digit}, "")
    assert not accepts({"type": "plus", "content": digit}, "")
    assert accepts({"type": "star", "content": digit}, "123")
    assert accepts({"type": "repeat", "min": 2, "max": -1, "content": digit}, "123")
    assert not accepts({"type": "repeat", "min": 2, "max": 2, "content": digit}, "123")
    parts = [{"type": "const_string", "value": "a"}, {"type": "any_text", "excludes": ["b"]}]
    assert accepts({"type": "sequence", "elements": parts}, "axyz")
    assert not accepts({"type": "sequence", "elements": parts}, "axyb")
    assert accepts({"type": "or", "elements": parts}, "xy")
    separated = {"type": "tags_with_separator", "tags": TAGS, "separator": ","}
    assert accepts(separated, "<f=a>1</f>,<f=b>x</f>") and not accepts(separated, "x")
    dispatch = {"type": "dispatch", "rules": [["!", digit], ["?", digit]], "loop": False}
    assert accepts(dispatch, "what?1") and not accepts(dispatch, "what?1 more")
    assert accepts({**dispatch, "loop": True}, "what?1 more!2") and not accepts(dispatch, "a?b")


def test_tokens_are_read_by_name():
    source = {
        "type": "structural_tag",
        "format": {
            "type": "tag",
            "begin": {"type": "token", "token": "<|a|>"},
            "content": {"type": "any_text"},
            "end": {"type": "token", "token": "<|b|>"},
        },
    }
    tag = read_structural_tag(source).format
    assert isinstance(tag, Tag)
    assert (tag.begin, tag.end) == (Token("<|a|>"), Token("<|b|>"))


@pytest.mark.parametrize(
    ("form", "named", "pointer"),
    [
        ({"type": "any_tokens"}, "any_tokens", "/format"),
        ({"type": "exclude_token", "exclude_tokens": []}, "exclude_token", "/format"),
        ({"type": "token_dispatch", "rules": []}, "token_dispatch", "/format"),
        ({"type": "qwen_xml_parameter", "json_schema": {}}, "qwen_xml_parameter", "/format"),
        ({"type": "token", "token": 7}, "token", "/format"),
        ({"type": "any_text", "max_tokens": 5}, "max_tokens", "/format"),
        ({"type": "json_schema", "json_schema": {}, "style": "glm_xml"}, "style", "/format"),
        ({"type": "json_schema", "json_schema": {}, "any_order": True}, "any_order", "/format"),
        (
            {"type": "sequence", "elements": [{"type": "const_string", "value": "", "new": 1}]},
            "new",
            "/format/elements/0",
        ),
    ],
)
def test_parts_that_cannot_be_exact_are_refused_by_name(form, named, pointer):
    with pytest.raises(structspec.UnsupportedFeature) as caught:
        accepts(form, "")
    assert (caught.value.keyword, caught.value.pointer) == (named, pointer)


@pytest.mark.parametrize(
    ("source", "pointer"),
    [
        ({"type": "x"}, "/type"),
        ({"type": "structural_tag"}, ""),
        ({"type": "structural_tag", "format": {"type": "nothing"}}, "/format/type"),
        ({"type": "structural_tag", "format": {"type": "regex"}}, "/format/pattern"),
        ({"type": "structural_tag", "structures": 1, "triggers": []}, "/structures"),
        (
            {"type": "structural_tag", "format": {"type": "repeat", "min": 1.5, "max": 2}},
            "/format/min",
        ),
    ],
)
def test_malformed_forms_are_schema_errors_with_the_pointer(source, pointer):
    with pytest.raises(structspec.SchemaError) as caught:
        structspec.compile(source, syntax="structural_tag")
    assert caught.value.pointer == pointer


def test_text_that_is_no_json_is_located():
    with pytest.raises(structspec.SchemaError, match="line 2, column 1"):
        structspec.compile('{"type":\n}', syntax="structural_tag")
