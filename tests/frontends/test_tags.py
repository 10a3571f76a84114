"""Structural tags: free text, triggers, regions; against a scanner written independently."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import structspec
from structspec import ir
from structspec.frontends.tags import (
    AnyText,
    ConstString,
    Embedded,
    JSONSchema,
    Or,
    Regex,
    Repeat,
    Sequence,
    StructuralTag,
    Tag,
    TagsWithSeparator,
    Token,
    TriggeredTags,
    reasoning,
)


def compile_tag(source, **options):
    return structspec.compile(source, syntax="structural_tag", **options)


CALLS = TriggeredTags(
    (
        Tag("<f=a>", JSONSchema({"type": "integer"}), "</f>"),
        Tag("<f=b>", Regex("x+"), "</f>"),
    ),
    triggers=("<f=",),
)


def test_free_text_goes_on_until_the_trigger_and_again_behind_the_end():
    grammar = compile_tag(CALLS)
    for text in (
        "",
        "hi",
        "hi <f=a>1</f>",
        "<f=a>1</f> and <f=b>xx</f> done",
        "<<f=a>-7</f>",
        "<f",
    ):
        assert grammar.accepts(text), text
    for text in ("<f=c>1</f>", "<f=a>x</f>", "<f=a>1", "a <f= b", "<f=b></f>"):
        assert not grammar.accepts(text), text


def test_several_tag_beginnings_share_one_trigger():
    grammar = compile_tag(CALLS)
    assert grammar.accepts("<f=a>1</f>") and grammar.accepts("<f=b>x</f>")
    assert not grammar.accepts("<f=b>1</f>") and not grammar.accepts("<f=a>x</f>")


@pytest.mark.parametrize(
    ("options", "good", "bad"),
    [
        ({"at_least_one": True}, ["x<b>1</b>", "<b>1</b>x<b>2</b>"], ["", "x"]),
        ({"stop_after_first": True}, ["", "x", "x<b>1</b>"], ["<b>1</b>x", "<b>1</b><b>1</b>"]),
        (
            {"at_least_one": True, "stop_after_first": True},
            ["x<b>1</b>", "<b>1</b>"],
            ["", "x", "<b>1</b>x"],
        ),
        (
            {"at_least_one": True, "text_first": False},
            ["<b>1</b>", "<b>1</b>x<b>2</b>"],
            ["", "x<b>1</b>"],
        ),
        ({"excludes": ("!",)}, ["a<b>1</b>b"], ["a!", "<b>1</b>!"]),
    ],
)
def test_options_say_how_many_regions_there_are(options, good, bad):
    tag = Tag("<b>", JSONSchema({"type": "integer"}), "</b>")
    grammar = compile_tag(TriggeredTags((tag,), **options))
    assert [t for t in good if not grammar.accepts(t)] == []
    assert [t for t in bad if grammar.accepts(t)] == []


def test_text_in_a_tag_ends_at_the_first_occurrence_of_its_end():
    grammar = compile_tag(Tag("<t>", AnyText(), "aa"))
    assert [grammar.accepts("<t>" + t) for t in ("aa", "xaa", "abaa")] == [True] * 3
    assert [grammar.accepts("<t>" + t) for t in ("aaa", "aaxaa", "a", "")] == [False] * 4


def test_triggered_text_inside_a_tag_ends_at_the_end():
    inner = TriggeredTags((Tag("<i>", Regex("[0-9]"), "</i>"),))
    grammar = compile_tag(Tag("[", inner, ("]", "!")))
    for text in ("[]", "[a<i>1</i>b]", "[<i>1</i>!", "[a!"):
        assert grammar.accepts(text), text
    for text in ("[a]b", "[a]]", "[<i>]", "[<i>1</i>"):
        assert not grammar.accepts(text), text


def test_a_reasoning_block_stands_before_the_answer():
    answer = JSONSchema({"enum": ["yes", "no"]})
    optional = compile_tag(reasoning(answer))
    required = compile_tag(reasoning(answer, required=True))
    opened = compile_tag(reasoning(answer, opened=True))
    thought = 'hm, "maybe" </thin or <think> again'
    assert optional.accepts(f'<think>{thought}</think>"yes"') and optional.accepts('"no"')
    assert required.accepts(f'<think>{thought}</think>"yes"') and not required.accepts('"no"')
    assert opened.accepts(f'{thought}</think>"yes"') and not opened.accepts('"no"')
    for grammar in (optional, required, opened):
        assert not grammar.accepts('<think>a</think>b</think>"yes"')
        assert not grammar.accepts("<think>a</think>maybe")


def test_the_other_contents_mean_what_their_names_say():
    assert compile_tag(ConstString("é")).accepts("é")
    assert compile_tag(AnyText(max_chars=2)).accepts("é🙂")
    assert not compile_tag(AnyText(max_chars=2)).accepts("abc")
    either = compile_tag(Or((ConstString("a"), Sequence((ConstString("b"), Regex("c"))))))
    assert [either.accepts(t) for t in ("a", "bc", "b", "ac")] == [True, True, False, False]
    twice = compile_tag(Repeat(ConstString("ab"), 1, 2))
    assert [twice.accepts("ab" * n) for n in range(4)] == [False, True, True, False]
    tags = TagsWithSeparator((Tag("(", Regex("x"), ")"),), ", ", at_least_one=True)
    listed = compile_tag(tags)
    assert listed.accepts("(x)") and listed.accepts("(x), (x)")
    assert not listed.accepts("") and not listed.accepts("(x),(x)")
    lowered = structspec.frontends.jsonschema.lower_schema({"const": 1})[0]
    assert compile_tag(Embedded(lowered, "ir")).accepts("1")


def test_embedded_schemas_keep_their_references_apart():
    def tag(name, kind):
        schema = {"$ref": "#/$defs/v", "$defs": {"v": {"type": "array", "items": {"type": kind}}}}
        return Tag(f"<{name}>", JSONSchema(schema), "/")

    grammar = compile_tag(TriggeredTags((tag("a", "integer"), tag("b", "boolean"))))
    assert grammar.accepts("<a>[1]/<b>[true]/")
    assert not grammar.accepts("<a>[true]/") and not grammar.accepts("<b>[1]/")


def test_reports_and_refusals_name_the_place_in_the_tag_and_in_the_schema():
    tag = Tag("<a>", JSONSchema({"properties": {"x": {"type": "null"}}}), "</a>")
    report = compile_tag(TriggeredTags((tag,))).report
    assert {"/format/tags/0/content/json_schema/properties/x"} <= {e.pointer for e in report}
    with pytest.raises(
        structspec.SchemaError, match="at '/format/tags/0/content/json_schema': 'type'"
    ):
        compile_tag(TriggeredTags((Tag("<a>", JSONSchema({"type": "nul"}), "</a>"),)))
    with pytest.raises(structspec.SchemaError, match="/format/pattern"):
        compile_tag(Regex("("))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (TriggeredTags(()), "no tags"),
        (TriggeredTags((Tag("<a>", AnyText(), ">"),), triggers=("<b>",)), "no tag begins"),
        (TriggeredTags((Tag("<a>", AnyText(), ">"), Tag("b", AnyText(), ">")), ("<a",)), "reached"),
        (TriggeredTags((Tag("", AnyText(), ">"),)), "empty"),
        (TriggeredTags((Tag("xaby", AnyText(), ">"), Tag("ab", AnyText(), ">"))), "contains"),
        (TriggeredTags((Tag("ab", AnyText(), ">"),), excludes=("b",)), "contains"),
        (Tag("a", TriggeredTags((Tag("b", AnyText(), "c"),)), "b"), "two things"),
        (TriggeredTags((Tag("a", AnyText(), "b"),), text_first=False), "at_least_one"),
        (Repeat(ConstString("a"), 2, 1), "impossible"),
        (ConstString("\ud800"), "surrogate"),
    ],
)
def test_tags_that_cannot_work_are_schema_errors(source, message):
    with pytest.raises(structspec.SchemaError, match=message):
        compile_tag(StructuralTag(source))


def test_a_trigger_that_begins_another_fires_first():
    grammar = compile_tag(
        TriggeredTags((Tag("<f", Regex("1"), ">"), Tag("<f=", Regex("2"), ">"))),
    )
    assert grammar.accepts("a<f1>") and grammar.accepts("a<f=2>")
    assert not grammar.accepts("a<f2>") and not grammar.accepts("a<f=1>")


def scan(text: str, begins: list[str], triggers: list[str], start: int = 0) -> bool:
    """Whether each trigger, met from the left, is followed by a begin, some 1s and a full stop."""
    for end in range(start, len(text) + 1):
        fired = [t for t in triggers if text[start:end].endswith(t)]
        if not fired:
            continue
        (trigger,) = fired
        for begin in begins:
            if not begin.startswith(trigger):
                continue
            rest = re.compile(re.escape(begin) + r"1*\.").match(text, end - len(trigger))
            if rest and scan(text, begins, triggers, rest.end()):
                return True
        return False
    return True


@settings(max_examples=150, deadline=None)
@given(
    begins=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3, unique=True),
    texts=st.lists(st.text("ab1.", max_size=12), min_size=10, max_size=30),
    cut=st.integers(1, 4),
)
def test_random_triggers_and_texts_agree_with_a_scanner(begins, texts, cut):
    triggers = list(dict.fromkeys(begin[:cut] for begin in begins))
    tags = tuple(Tag(begin, Regex("1*"), ".") for begin in begins)
    try:
        grammar = compile_tag(TriggeredTags(tags, tuple(triggers)))
    except structspec.SchemaError:
        # refused exactly when one trigger lies inside another, not at its start
        assert any(a != b and b in a[1:] for a in triggers for b in triggers)
        return
    shortest = [t for t in triggers if not any(o != t and t.startswith(o) for o in triggers)]
    for text in texts:
        assert grammar.accepts(text) == scan(text, begins, shortest), (text, begins, triggers)


# -- special tokens -------------------------------------------------------------------------------

OPEN, CLOSE = Token("<|open|>"), Token("<|close|>")


def test_special_tokens_and_text_that_looks_like_them_are_different_markers():
    for begin, end in ((OPEN, CLOSE), (OPEN.name, CLOSE.name), (OPEN, CLOSE.name)):
        tag = Tag(begin, Regex("[0-9]+"), end)
        grammar = compile_tag(TriggeredTags((tag,), at_least_one=True))
        marks = [ir.Special(m.name) if isinstance(m, Token) else m for m in (begin, end)]
        assert grammar.accepts_parts(["hi ", marks[0], "12", marks[1], " there"])
        for first in (ir.Special(OPEN.name), OPEN.name):
            for last in (ir.Special(CLOSE.name), CLOSE.name):
                parts = ["hi ", first, "12", last]
                assert grammar.accepts_parts(parts) == ([first, last] == marks)


def test_a_reasoning_block_between_special_tokens_holds_any_text():
    answer = ConstString("yes")
    grammar = compile_tag(reasoning(answer, begin=OPEN, end=CLOSE, required=True))
    parts = [ir.Special(OPEN.name), f"{OPEN.name} {CLOSE.name} </think>", ir.Special(CLOSE.name)]
    assert grammar.accepts_parts([*parts, "yes"])
    assert not grammar.accepts_parts([*parts[:2], "yes"])
    assert not grammar.accepts_parts([*parts, ir.Special(CLOSE.name), "yes"])


def test_token_triggers_and_text_triggers_work_together():
    tags = (Tag(OPEN, Regex("1"), CLOSE), Tag("<a>", Regex("2"), "</a>"))
    grammar = compile_tag(TriggeredTags(tags))
    opened, closed = ir.Special(OPEN.name), ir.Special(CLOSE.name)
    assert grammar.accepts_parts(["x", opened, "1", closed, "<a>2</a>y", opened, "1", closed])
    assert not grammar.accepts_parts(["x", opened, "2", closed])
    assert not grammar.accepts_parts(["<a>2", closed])
    assert not grammar.accepts_parts([ir.Special("<|other|>")])


def test_a_bound_vocabulary_writes_the_special_token_and_never_its_text():
    tokens = [bytes((b,)) for b in range(256)] + [b"<|open|>", None, None, None]
    special = {"<|open|>": 257, "<|close|>": 258}
    vocab = structspec.Vocabulary(tokens, eos_ids=[259], special=special)
    tag = Tag(OPEN, AnyText(max_chars=20), CLOSE)
    constraint = compile_tag(tag).bind(vocab)
    assert constraint.allowed(constraint.start).tolist() == [257]
    inside = constraint.advance(constraint.start, 257)
    assert {256, 258} <= set(constraint.allowed(inside).tolist())  # text that looks like it is text
    assert 257 not in constraint.allowed(inside).tolist()
    after = constraint.advance(inside, 258)
    assert constraint.allowed(after).tolist() == [259]
    lacking = structspec.Vocabulary([*tokens[:257], None], eos_ids=[257])
    with pytest.raises(structspec.Unsatisfiable, match="open"):
        compile_tag(tag).bind(lacking)
