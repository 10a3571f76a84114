"""The decoding loop: completeness, budgets, seeds, ends, interrupts, counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from structspec.decoding.loop import decode
from structspec.drafting import CombinedDraft, Draft, DraftBuilder, Request
from structspec.errors import (
    DraftError,
    ModelError,
    PromptError,
    TokenBudgetError,
    VocabularyError,
)
from structspec.forward.warp import Sampling
from structspec.models import Model
from structspec.vocab import Vocabulary

Bind = Callable[[str, Vocabulary], Any]
OBJECT = r'\{"name": "[a-z ]{1,20}", "and": (true|false), "then": [1-9][0-9]{0,5}\}'


@pytest.fixture(scope="module")
def constraint(byte_model: Model, bind: Bind) -> Any:
    return bind(OBJECT, byte_model.vocab)


@pytest.fixture(scope="module")
def prompt(byte_model: Model) -> list[int]:
    return byte_model.vocab.encode(b"and the hand")


@pytest.mark.parametrize("draft", [None, "forced", "lookup", "auto"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_complete_and_counted(
    byte_model: Model, constraint: Any, prompt: list[int], draft: Any, temperature: float
) -> None:
    seen: list[tuple[int, bytes]] = []
    output = decode(
        byte_model,
        prompt,
        constraint,
        sampling=Sampling(temperature=temperature),
        draft=draft,
        max_tokens=52,
        on_token=lambda token, data: seen.append((token, data)),
    )
    assert re.fullmatch(OBJECT, output.text.decode())
    assert byte_model.vocab.decode(output.tokens) == output.text
    assert [token for token, _ in seen] == list(output.tokens)
    assert b"".join(data for _, data in seen) == output.text
    stats = output.stats
    assert stats.tokens == len(output.tokens) <= 52
    assert stats.prompt_tokens == len(prompt)
    assert 0 <= stats.accepted <= stats.drafted
    assert stats.forwards == stats.steps
    # a step writes its accepted tokens and one more, forced tokens come free
    assert stats.tokens <= stats.forwards + stats.accepted + stats.forced
    assert (stats.drafted == 0) == (draft is None)
    if draft in ("forced", "auto"):
        assert stats.tokens_per_forward > 1.2


@pytest.mark.parametrize("draft", ["forced", "lookup", "auto"])
def test_greedy_speculation_writes_what_plain_greedy_writes(
    byte_model: Model, constraint: Any, draft: str
) -> None:
    greedy = Sampling(temperature=0.0)
    for start in (b"and", b"the hand", b'{"name": "', b"x"):
        ids = byte_model.vocab.encode(start)
        plain = decode(byte_model, ids, constraint, sampling=greedy, max_tokens=50)
        fast = decode(byte_model, ids, constraint, sampling=greedy, draft=draft, max_tokens=50)
        assert (fast.tokens, fast.text, fast.finish_reason) == (
            plain.tokens,
            plain.text,
            plain.finish_reason,
        )


def test_a_seed_reproduces_and_requests_differ(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    def run(seed: int, request: int = 0) -> Any:
        return decode(
            byte_model, prompt, constraint, draft="auto", seed=seed, request=request, max_tokens=50
        )

    assert run(7) == run(7)
    assert len({run(seed).text for seed in range(6)}) > 1
    assert len({run(7, request).text for request in range(6)}) > 1
    fresh = run(-1)
    assert run(fresh.seed) == fresh


def test_threads_share_model_constraint_and_draft_source(
    byte_model: Model, bind: Bind, prompt: list[int]
) -> None:
    source = CombinedDraft()

    def run(constraint: Any, seed: int) -> Any:
        return decode(byte_model, prompt, constraint, draft=source, seed=seed, max_tokens=50)

    alone = [run(bind(OBJECT, byte_model.vocab), seed) for seed in range(8)]
    shared = bind(OBJECT, byte_model.vocab)  # a cold cache, filled from several threads
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda seed: run(shared, seed), range(8))) == alone


def test_every_budget_from_the_certified_bound_on_is_kept(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    needed = constraint.distance(constraint.start)
    for budget in (needed, needed + 1, needed + 5):
        for seed in range(3):
            output = decode(
                byte_model, prompt, constraint, draft="auto", seed=seed, max_tokens=budget
            )
            assert len(output.tokens) <= budget
            assert re.fullmatch(OBJECT, output.text.decode())


def test_a_budget_below_the_bound_is_refused_before_the_first_token(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    needed = constraint.distance(constraint.start)
    with pytest.raises(TokenBudgetError) as caught:
        decode(byte_model, prompt, constraint, max_tokens=needed - 1)
    assert (caught.value.max_tokens, caught.value.needed) == (needed - 1, needed)


def test_the_window_caps_the_budget_and_the_text_stays_complete(
    byte_model: Model, constraint: Any
) -> None:
    needed = constraint.distance(constraint.start)
    ids = [97] * (byte_model.window - needed - 2)
    for seed in range(3):
        output = decode(byte_model, ids, constraint, draft="auto", seed=seed, max_tokens=10_000)
        assert len(output.tokens) <= needed + 2
        assert re.fullmatch(OBJECT, output.text.decode())


def test_a_prompt_that_leaves_no_room_names_both_numbers(
    byte_model: Model, constraint: Any
) -> None:
    with pytest.raises(PromptError, match=r"100 tokens .* 64"):
        decode(byte_model, [97] * 100, constraint)
    with pytest.raises(PromptError, match=r"60 tokens .* leaves 4 "):
        decode(byte_model, [97] * 60, constraint)
    with pytest.raises(PromptError, match="empty"):
        decode(byte_model, [], constraint)


def test_length_means_complete_with_the_budget_used_up(byte_model: Model, bind: Bind) -> None:
    many = bind("[a-z]*", byte_model.vocab)
    reasons = set()
    for seed in range(12):
        output = decode(byte_model, [97], many, seed=seed, max_tokens=3)
        reasons.add(output.finish_reason)
        assert (output.finish_reason == "length") == (len(output.tokens) == 3)
    assert "length" in reasons
    exact = decode(byte_model, [97], bind("abc", byte_model.vocab), max_tokens=3)
    assert (exact.text, exact.finish_reason) == (b"abc", "stop")


def test_a_budget_of_zero_holds_the_empty_text(byte_model: Model, bind: Bind) -> None:
    output = decode(byte_model, [97], bind("[a-z]*", byte_model.vocab), max_tokens=0)
    assert (output.tokens, output.finish_reason, output.stats.forwards) == ((), "length", 0)


def test_determined_text_takes_no_forward_at_all(tiny_model: Model, bind: Bind) -> None:
    vocab = Vocabulary([b"a", b"b", b"c", b"d", None, None], eos_ids=[4, 5])
    output = decode(tiny_model, [1], bind("abcd", vocab), draft="auto")
    assert (output.text, output.finish_reason) == (b"abcd", "stop")
    assert (output.stats.forwards, output.stats.forced) == (0, 4)


def test_several_end_tokens_all_end_the_text(tiny_model: Model, bind: Bind) -> None:
    vocab = Vocabulary([b"a", b"b", b"ab", b"ba", None, None], eos_ids=[4, 5])
    constraint = bind("[ab]*", vocab)
    for seed in range(10):
        output = decode(tiny_model, [1], constraint, draft="auto", seed=seed, max_tokens=20)
        assert not {4, 5} & set(output.tokens)


def test_complete_text_that_may_continue_lets_the_model_choose(
    tiny_model: Model, tiny_vocab: Vocabulary, bind: Bind
) -> None:
    constraint = bind("ab(ab)?", tiny_vocab)
    texts = {
        decode(tiny_model, [4], constraint, sampling=Sampling(temperature=3.0), seed=seed).text
        for seed in range(40)
    }
    assert texts == {b"ab", b"abab"}


@pytest.mark.parametrize("draft", [None, "auto"])
def test_a_stop_string_ends_where_the_text_is_complete(
    byte_model: Model, bind: Bind, draft: Any
) -> None:
    stopped = 0
    for seed in range(8):
        output = decode(
            byte_model,
            [97],
            bind("[ab]{4}([ab]{2})*", byte_model.vocab),
            draft=draft,
            stop=["ab", b"ba"],
            seed=seed,
            max_tokens=40,
        )
        text = output.text
        assert len(text) >= 4 and len(text) % 2 == 0
        if output.finish_reason == "stop_string":
            stopped += 1
            assert b"ab" in text or b"ba" in text
            # nothing was written after the first complete place behind the string
            ends = [m.end() for stop in (b"ab", b"ba") if (m := re.search(stop, text))]
            assert len(text) <= max(4, min(ends) + min(ends) % 2)
    assert stopped > 4


def test_an_empty_stop_string_is_refused(byte_model: Model, constraint: Any) -> None:
    with pytest.raises(ValueError, match="empty"):
        decode(byte_model, [97], constraint, stop=["x", ""])


def test_an_interrupt_keeps_what_was_written(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    written: list[bytes] = []

    def interrupt(token: int, data: bytes) -> None:
        written.append(data)
        if len(written) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        decode(byte_model, prompt, constraint, draft="auto", on_token=interrupt, max_tokens=50)
    partial = caught.value.partial_output  # type: ignore[attr-defined]
    assert partial.text == b"".join(written)
    assert (len(partial.tokens), partial.finish_reason) == (7, "error")


def test_nan_is_reported_with_what_was_written(byte_model: Model, constraint: Any) -> None:
    broken = Model(byte_model.model, None, name="broken", vocab=byte_model.vocab)
    calls = 0

    def poison(module: Any, args: Any, output: Any) -> Any:
        nonlocal calls
        calls += 1
        return output * float("nan") if calls > 3 else output

    handle = byte_model.model.lm_head.register_forward_hook(poison)
    try:
        with pytest.raises(ModelError, match="nan") as caught:
            decode(broken, [97], constraint, max_tokens=50)
    finally:
        handle.remove()
    assert caught.value.partial_output.text.startswith(b"{")  # type: ignore[attr-defined]


def test_a_vocabulary_wider_than_the_logits_is_refused(tiny_model: Model, bind: Bind) -> None:
    vocab = Vocabulary([b"a"] * 20, eos_ids=[19])
    with pytest.raises(VocabularyError, match="20 ids"):
        decode(tiny_model, [1], bind("a", vocab))


def test_logits_wider_than_the_vocabulary_are_never_written(tiny_model: Model, bind: Bind) -> None:
    vocab = Vocabulary([b"a", b"b", None], eos_ids=[2])
    for seed in range(5):
        output = decode(tiny_model, [1], bind("[ab]*", vocab), seed=seed, max_tokens=9)
        assert set(output.tokens) <= {0, 1}


def test_names_are_checked_before_any_work(byte_model: Model, constraint: Any) -> None:
    with pytest.raises(DraftError, match="blok"):
        decode(byte_model, [97], constraint, verifier="blok")
    with pytest.raises(DraftError, match="temperature 0"):
        decode(byte_model, [97], constraint, verifier="greedy")
    with pytest.raises(DraftError, match="lokup"):
        decode(byte_model, [97], constraint, draft="lokup")


class Recorder(CombinedDraft):
    """Checks, at every proposal, that state, context, budget and step are the committed ones."""

    def begin(self, request: Request) -> Any:
        inner = super().begin(request)
        seen: list[tuple[int, int]] = []

        class Checked:
            def propose(self, state: int, context: Any, left: int, step: int) -> Draft:
                output = context[len(request.prompt) :]
                expected = request.constraint.start
                for token in output:
                    expected = request.constraint.advance(expected, token)
                assert state == expected
                assert step == len(seen)
                seen.append((left, len(output)))
                assert left + len(output) == sum(seen[0])
                return inner.propose(state, context, left, step)

            def observe(self, draft: Draft, accepted: int) -> None:
                assert accepted <= len(draft)
                inner.observe(draft, accepted)

        return Checked()


def test_drafters_see_exactly_the_committed_text(byte_model: Model, bind: Bind) -> None:
    constraint = bind('[a-z]{1,3}: "(and|the)[a-z ]{0,9}"', byte_model.vocab)
    for seed in range(4):
        decode(byte_model, [97], constraint, draft=Recorder(), seed=seed, max_tokens=40)


class Illegal:
    """A drafter that ignores the grammar; the builder must hold the line."""

    def begin(self, request: Request) -> Any:
        class Drafter:
            def propose(self, state: int, context: Any, left: int, step: int) -> Draft:
                builder = DraftBuilder(request.constraint, state, left)
                noise = np.random.default_rng(step)
                builder.extend(int(t) for t in noise.integers(0, 260, 50))
                return builder.build()

            def observe(self, draft: Draft, accepted: int) -> None:
                pass

        return Drafter()


def test_nonsense_drafts_cost_time_only(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    greedy = Sampling(temperature=0.0)
    plain = decode(byte_model, prompt, constraint, sampling=greedy, max_tokens=50)
    assert (
        decode(
            byte_model, prompt, constraint, sampling=greedy, draft=Illegal(), max_tokens=50
        ).tokens
        == plain.tokens
    )


def test_sliding_windows_decode_like_a_fresh_forward(
    tiny_vocab: Vocabulary, sliding_model: Model, bind: Bind
) -> None:
    network = sliding_model.model
    model = Model(network, None, name="sliding", vocab=tiny_vocab)
    constraint = bind("(ab|ba|c){8,12}", tiny_vocab)
    greedy = Sampling(temperature=0.0)
    prompt = [0, 3, 4, 1, 2, 0, 1]
    plain = decode(model, prompt, constraint, sampling=greedy, max_tokens=30)
    fast = decode(model, prompt, constraint, sampling=greedy, draft="auto", max_tokens=30)
    assert fast.tokens == plain.tokens
    state, left, output = constraint.start, 30, list(prompt)
    for token in plain.tokens:  # and plain decoding is the argmax of an uncached forward
        logits = network(input_ids=torch.tensor([output]), use_cache=False).logits[0, -1]
        bits = np.unpackbits(constraint.mask(state, left).view(np.uint8), bitorder="little")
        legal = torch.from_numpy(bits[:6].astype(bool))
        assert token == int(logits.masked_fill(~legal, -torch.inf).argmax())
        state, left = constraint.advance(state, token), left - 1
        output.append(token)
