"""Prompts: what is accepted, what is refused, and how the seam is healed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from structspec.decoding.healing import PrefixedConstraint, heal
from structspec.decoding.loop import decode
from structspec.errors import PromptError, TokenRejected
from structspec.models import Model
from structspec.prompt import encode_prompt
from structspec.vocab import Vocabulary

Bind = Callable[[str, Vocabulary], Any]


def allowed(constraint: Any, state: int, left: int | None = None) -> list[int]:
    bits = np.unpackbits(constraint.mask(state, left).view(np.uint8), bitorder="little")
    return [int(i) for i in np.flatnonzero(bits)]


def test_text_is_open_and_chat_is_not(byte_model: Model) -> None:
    text = encode_prompt(byte_model, "the hand")
    assert text.open and byte_model.vocab.decode(text.ids) == b"the hand"
    chat = encode_prompt(byte_model, [{"role": "user", "content": "hand"}])
    assert not chat.open
    assert chat.ids[-1] == byte_model.tokenizer.bos_token_id
    assert byte_model.vocab.decode(chat.ids) == b"user: handassistant: "


def test_continue_final_message_leaves_the_last_turn_open(byte_model: Model) -> None:
    messages = [
        {"role": "user", "content": "name?"},
        {"role": "assistant", "content": "It is "},
    ]
    prompt = encode_prompt(byte_model, messages, continue_final_message=True)
    assert prompt.open
    assert byte_model.vocab.decode(prompt.ids).endswith(b"assistant: It is ")


def test_ids_are_taken_as_they_are(byte_model: Model) -> None:
    prompt = encode_prompt(byte_model, [1, 2, 3])
    assert (prompt.ids, prompt.open) == ((1, 2, 3), False)
    assert encode_prompt(byte_model, np.array([1, 2])).ids == (1, 2)  # type: ignore[arg-type]
    assert encode_prompt(byte_model, np.array([[1, 2]])).ids == (1, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "empty"),
        ([], "empty"),
        ([{"content": "hi"}], 'message 0 has no "role"'),
        ([{"role": "user"}], "neither"),
        (["hi"], "message 0 is a str"),
        ([{"role": "forbidden", "content": "x"}], "no such role"),
        ([5, 100_000], "token 100000 at position 1"),
        ([-1], "token -1 at position 0"),
        (7, "not int"),
        (b"bytes", "not bytes"),
        (np.zeros((2, 2), int), "one prompt"),
    ],
)
def test_bad_prompts_are_refused_by_name(byte_model: Model, prompt: Any, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        encode_prompt(byte_model, prompt)


def test_messages_need_a_chat_template(byte_model: Model, byte_tokenizer: Any) -> None:
    import copy

    bare = copy.deepcopy(byte_tokenizer)
    bare.chat_template = None
    with pytest.raises(PromptError, match="no chat template"):
        encode_prompt(
            Model.wrap(byte_model.model, bare, name="bare"), [{"role": "user", "content": "x"}]
        )


def test_healing_takes_back_what_a_token_could_span(byte_model: Model, bind: Bind) -> None:
    vocab = byte_model.vocab
    ids = list(encode_prompt(byte_model, "say ").ids)
    healed_ids, healed = heal(ids, bind('"[a-z]*"', vocab))
    assert vocab.decode(healed_ids) == b"say"
    assert isinstance(healed, PrefixedConstraint) and healed.prefix == b" "
    first = {vocab.tokens[t] for t in allowed(healed, healed.start)}
    assert first == {b" ", b' "'}


def test_healing_reaches_over_several_tokens(bind: Bind) -> None:
    vocab = Vocabulary([b"a", b"b", b"c", b"abc", b"x", None], eos_ids=[5])
    ids, healed = heal([4, 0, 1], bind("c+", vocab))
    assert (ids, healed.prefix) == ([4], b"ab")
    assert allowed(healed, healed.start) == [0, 3]


def test_healing_needs_a_legal_continuation(bind: Bind) -> None:
    vocab = Vocabulary([b"a", b"b", b"c", b"abc", b"x", None], eos_ids=[5])
    constraint = bind("x+", vocab)
    ids, same = heal([4, 0, 1], constraint)
    assert ids == [4, 0, 1] and same is constraint


def test_healing_keeps_the_first_id_and_control_tokens(bind: Bind) -> None:
    vocab = Vocabulary([b"a", b"b", b"ab", None], eos_ids=[3])
    constraint = bind("b+", vocab)
    assert heal([0], constraint) == ([0], constraint)
    assert heal([0, 3], constraint) == ([0, 3], constraint)
    ids, healed = heal([3, 0], constraint)
    assert (ids, healed.prefix) == ([3], b"a")


def test_a_prefixed_constraint_writes_the_prefix_and_then_the_language(bind: Bind) -> None:
    vocab = Vocabulary([b"a", b"b", b"c", b"ab", b"bc", b"abc", b"bca", None], eos_ids=[7])
    base = bind("c(a|b)", vocab)
    constraint = PrefixedConstraint(base, b"ab")
    texts = set()

    def walk(state: int, text: bytes) -> None:
        for token in allowed(constraint, state):
            if token == 7:
                assert constraint.accepting(state)
                texts.add(text)
            else:
                walk(constraint.advance(state, token), text + (vocab.tokens[token] or b""))

    walk(constraint.start, b"")
    assert texts == {b"abca", b"abcb"}
    assert constraint.forced(constraint.start) == b"abc"
    out = np.zeros((2, 1), np.uint32)
    constraint.fill([constraint.start, base.start], out)
    assert np.array_equal(out[0], constraint.mask(constraint.start))
    assert np.array_equal(out[1], base.mask(base.start))
    with pytest.raises(TokenRejected):
        constraint.advance(constraint.start, 2)


def test_a_prefixed_constraints_distance_keeps_its_promise(bind: Bind) -> None:
    vocab = Vocabulary([b"a", b"b", b"c", b"ab", b"bc", b"abc", b"bca", None], eos_ids=[7])
    constraint = PrefixedConstraint(bind("c(a|b){1,3}", vocab), b"ab")
    assert constraint.distance(constraint.start) == 2  # "abc" and a letter, or "a" and "bca"
    seen = {constraint.start}
    waiting = [(constraint.start, 4)]
    while waiting:
        state, left = waiting.pop()
        tokens = [t for t in allowed(constraint, state, left) if t != 7]
        bound = constraint.distance(state)
        assert bound <= left
        if bound:
            reached = [constraint.advance(state, t) for t in tokens]
            assert min(constraint.distance(s) for s in reached) <= bound - 1
        for token in tokens:
            state_after = constraint.advance(state, token)
            assert constraint.distance(state_after) <= left - 1
            if state_after not in seen:
                seen.add(state_after)
                waiting.append((state_after, left - 1))


@pytest.mark.parametrize("draft", [None, "auto"])
def test_healed_output_leaves_out_the_prompts_bytes(
    byte_model: Model, bind: Bind, draft: Any
) -> None:
    prompt = encode_prompt(byte_model, "say ")
    for seed in range(4):
        ids, healed = heal(prompt.ids, bind('"[a-z]{1,5}"', byte_model.vocab))
        pieces: list[bytes] = []
        output = decode(
            byte_model,
            ids,
            healed,
            draft=draft,
            seed=seed,
            max_tokens=12,
            on_token=lambda token, data, pieces=pieces: pieces.append(data),
        )
        assert output.text[:1] == b'"' and output.text[-1:] == b'"'
        assert byte_model.vocab.decode(output.tokens) == b" " + output.text
        assert b"".join(pieces) == output.text


def test_a_prefixed_constraint_follows_bytes_across_the_seam(bind: Bind) -> None:
    vocab = Vocabulary([b"a", b"b", b"c", None], eos_ids=[3])
    base = bind("c[ab]*", vocab)
    constraint = PrefixedConstraint(base, b"ab")
    start = constraint.start
    assert constraint.advance_bytes(start, b"") == start
    assert constraint.advance_bytes(start, b"a") == constraint.advance(start, 0)
    assert constraint.advance_bytes(start, b"ab") == base.start
    behind = constraint.advance_bytes(start, b"abca")
    assert behind == base.advance_bytes(base.start, b"ca")
    assert constraint.advance_bytes(start, b"b") is None
    assert constraint.advance_bytes(start, b"abb") is None
