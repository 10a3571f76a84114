"""Drafts that follow what earlier answers wrote: the same texts, fewer forwards, nothing leaks."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import structspec  # noqa: E402
from structspec.decoding.loop import decode, decode_many  # noqa: E402
from structspec.decoding.progress import Job  # noqa: E402
from structspec.drafting import CombinedDraft, Request  # noqa: E402
from structspec.drafting.habits import Habits  # noqa: E402
from structspec.forward.sampling import Sampling  # noqa: E402
from structspec.history import History  # noqa: E402
from structspec.models import Model  # noqa: E402
from structspec.vocab import Vocabulary  # noqa: E402

PATTERN = "[abc]{12}(a|b|c)*"
GREEDY = Sampling(temperature=0)


@pytest.fixture
def pair(make_llama: Callable[..., Any], tiny_vocab: Vocabulary) -> tuple[Model, Model]:
    """One network of its own twice: without a history, and with one."""
    network = make_llama(6, seed=4)
    return tuple(  # type: ignore[return-value]
        Model(network, None, name=name, vocab=tiny_vocab, history=name == "with")
        for name in ("without", "with")
    )


def text(model: Model, prompt: Sequence[int], constraint: Any, **options: Any) -> Any:
    options = {"sampling": GREEDY, "draft": "auto", "max_tokens": 16} | options
    return decode(model, prompt, constraint, **options)


def test_the_surest_context_decides_and_the_longest_of_equals() -> None:
    history = History()
    for token in (1, 1, 2):
        history.learn(0, 5, (8, 9), token)
    assert history.guess(0, 5, (8, 9)) == (1, 0.5)
    history.learn(0, 5, (7, 9), 2)
    history.learn(0, 5, (7, 9), 2)
    assert history.guess(0, 5, (7, 9))[0] == 2, "twice in this context, three of five in others"
    assert history.guess(0, 5, ()) == (2, 0.5)
    assert history.guess(0, 6, (8, 9)) == history.guess(1, 5, (8, 9)) == (-1, 0.0)


def test_new_habits_replace_old_ones() -> None:
    history = History()
    for token in [1] * 20 + [2] * 8:
        history.learn(0, 5, (), token)
    assert history.guess(0, 5, ()) == (2, 8 / 9)


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), max_size=300))
def test_no_more_contexts_than_allowed_are_kept(entries: int, seen: list[tuple[int, int]]) -> None:
    history = History(entries)
    for state, token in seen:
        history.learn(0, state, (), token)
        assert len(history) <= max(entries, 2) + 1
        assert history.guess(0, state, ())[0] >= 0, "what was just learnt is there"
    history.clear()
    assert len(history) == 0


def test_owners_are_told_apart_and_not_kept_alive() -> None:
    class Owner:
        pass

    history, one, other = History(), Owner(), Owner()
    assert history.number(one) == history.number(one) != history.number(other)
    del one
    gc.collect()
    assert len(history._numbers) == 1


def test_copies_begin_anew() -> None:
    history = History(10)
    history.learn(0, 1, (), 2)
    for other in (copy.copy(history), copy.deepcopy(history), pickle.loads(pickle.dumps(history))):
        assert len(other) == 0 and other._half == history._half


def test_greedy_texts_are_the_same_and_take_fewer_forwards(
    pair: tuple[Model, Model], bind: Callable[..., Any], tiny_vocab: Vocabulary
) -> None:
    without, with_ = pair
    constraint = bind(PATTERN, tiny_vocab)
    forwards = {"without": 0, "with": 0}
    for prompt in ([0, 1], [1, 1, 4], [0, 1], [2, 0, 3], [0, 1], [4, 4]):
        outputs = [text(model, prompt, constraint) for model in (without, with_)]
        assert outputs[0].tokens == outputs[1].tokens
        for model, output in zip(pair, outputs, strict=True):
            forwards[model.name] += output.stats.forwards
    assert forwards["with"] < forwards["without"]


def test_a_text_that_was_written_before_is_drafted_whole(
    pair: tuple[Model, Model], bind: Callable[..., Any], tiny_vocab: Vocabulary
) -> None:
    """Three times, so that it is sure; its end is learnt too."""
    constraint = bind("(a|b|c){10}", tiny_vocab)
    stats = [text(pair[1], [0, 1, 2], constraint, max_tokens=10).stats for _ in range(4)]
    assert stats[3].forwards <= 2 < stats[0].forwards


def test_requests_of_a_batch_share_it(
    pair: tuple[Model, Model], bind: Callable[..., Any], tiny_vocab: Vocabulary
) -> None:
    constraint = bind(PATTERN, tiny_vocab)
    prompts = [[0, 1], [1, 1, 4], [0, 1], [2, 0, 3], [0, 1], [4, 4], [0, 1]]
    jobs = [Job(prompt, constraint, GREEDY, 16) for prompt in prompts]
    found = [decode_many(model, jobs, draft="auto", batch_size=3) for model in pair]
    texts = [[o.tokens for o in outputs] for outputs in found]  # type: ignore[union-attr]
    assert texts[0] == texts[1]
    assert pair[1].history is not None and len(pair[1].history) > 0


def test_only_what_was_asked_for_is_remembered(
    make_llama: Callable[..., Any], byte_tokenizer: Any
) -> None:
    network = make_llama(len(byte_tokenizer), seed=5)
    off = Model.wrap(network, byte_tokenizer, name="off", history=False)
    assert off.history is None and Model.known(network).history is None  # type: ignore[union-attr]
    on = Model.wrap(network, byte_tokenizer, name="on")
    known = Model.known(network)
    assert known is not None and known.history is on.history is not None
    on.history = None
    assert known.history is None, "all of a network share it"


def test_a_prefix_that_is_healed_has_the_same_habits(
    byte_model: Model, bind: Callable[..., Any]
) -> None:
    """Behind it the states are those of the constraint itself."""
    from structspec.decoding.healing import PrefixedConstraint

    history, constraint = History(), bind("[ab]+", byte_model.vocab)
    habits = [
        Habits(history, Request(c, [1], GREEDY, steady=True))
        for c in (constraint, PrefixedConstraint(constraint, b"a"))
    ]
    assert habits[0]._grammar == habits[1]._grammar


def test_states_that_are_gone_end_a_request_quietly(
    bind: Callable[..., Any], tiny_vocab: Vocabulary
) -> None:
    constraint = bind(PATTERN, tiny_vocab)
    constraint = constraint.with_cache(constraint.new_cache())
    drafter = CombinedDraft().begin(
        Request(constraint, [0], GREEDY, steady=True, model=type("M", (), {"history": History()}))
    )
    context = [0]
    drafter.propose(constraint.start, context, 16, 0)
    context.append(0)
    constraint.cache.compact([])
    drafter.close()


def test_drafts_hold_no_more_rows_than_cost_little(
    make_llama: Callable[..., Any], bind: Callable[..., Any], tiny_vocab: Vocabulary
) -> None:
    """Our own products multiply eight at once."""
    from structspec.models import quicken

    network = make_llama(6, dtype=torch.float32)
    model = Model(network, None, name="quick", vocab=tiny_vocab, history=True)
    constraint, context = bind("(ab){20}", tiny_vocab), [0]

    def longest() -> int:
        drafter = CombinedDraft().begin(
            Request(constraint, context, GREEDY, model=model, steady=True)
        )
        return len(drafter.propose(constraint.start, context, 40, 0))

    assert longest() > 7
    quicken(network)
    assert longest() == 7


def test_threads_may_share_it() -> None:
    history = History(200)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(3000):
                history.learn(seed % 2, i % 150, (i % 7,), i % 5)
                token, share = history.guess(seed % 2, i % 150, (i % 7,))
                assert token == -1 or (0 <= token < 5 and 0 < share < 1)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures and len(history) <= 201


def test_calls_of_one_function_are_answered_in_fewer_forwards(
    make_llama: Callable[..., Any], byte_tokenizer: Any
) -> None:
    """Through `generate`: equal types share their grammar, and so its states."""
    model = Model.wrap(make_llama(len(byte_tokenizer), 512, 1), byte_tokenizer, name="bytes")
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["abc", "bcd", "cde"]}, "flag": {"type": "boolean"}},
        "required": ["kind", "flag"],
        "additionalProperties": False,
    }
    options = {"temperature": 0, "max_tokens": 40}
    results = [structspec.generate(model, f"call {i}", dict(schema), **options) for i in range(5)]
    model.history = None
    alone = [structspec.generate(model, f"call {i}", dict(schema), **options) for i in range(5)]
    assert [r.text for r in results] == [r.text for r in alone]
    assert sum(r.stats.forwards for r in results) < sum(r.stats.forwards for r in alone)
