"""Drafting with models: smaller ones, foreign ones, the target's own first layers."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from structspec.decoding.loop import decode, decode_many
from structspec.decoding.progress import Job
from structspec.drafting import EarlyExit, FirstOf, LookupDraft, ModelDraft, Request, draft_source
from structspec.drafting.alignment import Alignment
from structspec.drafting.early_exit import shortened
from structspec.drafting.output_head import Head
from structspec.errors import DraftError
from structspec.forward.rows import TargetRows
from structspec.forward.warp import Sampling
from structspec.models import Model
from structspec.packed import is_set
from structspec.verification.randomness import Randomness
from structspec.vocab import Vocabulary

Bind = Callable[[str, Vocabulary], Any]
PATTERN = r'\{"name": "[a-z ]{1,12}", "and": (true|false)\}'


def disturbed(model: Model, amount: float, **changes: Any) -> Model:
    """A draft that agrees with its target mostly."""
    network = copy.deepcopy(model.model)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in network.parameters():
            weight += amount * torch.randn(weight.shape, generator=noise, dtype=weight.dtype)
    return Model(network, None, **{"name": "disturbed", "vocab": model.vocab, **changes})


@pytest.fixture(scope="module")
def constraint(byte_model: Model, bind: Bind) -> Any:
    return bind(PATTERN, byte_model.vocab)


@pytest.fixture(scope="module")
def prompt(byte_model: Model) -> list[int]:
    return byte_model.vocab.encode(b"and the hand")


SOURCES: dict[str, Callable[[Model], Any]] = {
    "good": lambda model: ModelDraft(disturbed(model, 0.01)),
    "poor": lambda model: ModelDraft(disturbed(model, 1.0), length=6),
    "unmasked": lambda model: ModelDraft(disturbed(model, 0.1), masked=False),
    "without spans": lambda model: ModelDraft(disturbed(model, 0.1), spans=False, adaptive=False),
    "early exit": lambda model: EarlyExit(1),
    "look-up first": lambda model: FirstOf(LookupDraft(), EarlyExit(1)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_greedy_drafts_write_what_plain_greedy_writes(
    byte_model: Model, constraint: Any, prompt: list[int], source: str
) -> None:
    greedy = Sampling(temperature=0.0)
    draft = SOURCES[source](byte_model)
    for ids in (prompt, prompt[:1], prompt[4:]):
        plain = decode(byte_model, ids, constraint, sampling=greedy, max_tokens=50)
        fast = decode(byte_model, ids, constraint, sampling=greedy, draft=draft, max_tokens=50)
        assert (fast.tokens, fast.finish_reason) == (plain.tokens, plain.finish_reason)
        assert fast.stats.drafted > 0
    if source == "good":
        assert fast.stats.tokens_per_forward > 3


@pytest.mark.parametrize("source", SOURCES)
def test_sampled_texts_repeat_and_a_batch_changes_nothing(
    byte_model: Model, constraint: Any, prompt: list[int], source: str
) -> None:
    draft = SOURCES[source](byte_model)
    jobs = [Job(prompt[i:], constraint, max_tokens=45, seed=5, request=i) for i in range(4)]
    together = decode_many(byte_model, jobs, draft=draft, batch_size=3)
    for job, output in zip(jobs, together, strict=True):
        assert not isinstance(output, Exception)
        assert re.fullmatch(PATTERN, output.text.decode())
        alone = decode(
            byte_model,
            job.prompt_ids,
            constraint,
            draft=draft,
            max_tokens=45,
            seed=5,
            request=job.request,
        )
        assert alone == output


def test_every_draft_is_legal_and_drawn_from_its_rows(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    source = ModelDraft(disturbed(byte_model, 0.3), length=5)
    request = Request(constraint, prompt, Sampling(), Randomness(3), 0, byte_model)
    drafter = source.begin(request)
    sampled = 0
    for step in range(5):
        for draft in drafter.propose_several(constraint.start, prompt, 45, step, 3):
            state, left = constraint.start, 45
            assert draft.q is not None and draft.onehot is not None
            for i, token in enumerate(draft.tokens):
                mask = constraint.mask(state, left)
                assert is_set(mask, token) and np.array_equal(mask, draft.masks[i])
                legal = np.unpackbits(mask.view(np.uint8), bitorder="little").astype(bool)
                if not draft.onehot[i]:
                    row = draft.q[i].numpy()
                    assert row.sum() == pytest.approx(1.0) and row[token] > 0
                    assert not row[~legal[: len(row)]].any()
                    sampled += 1
                state, left = constraint.advance(state, token), left - 1
                assert draft.states[i] == state
    assert sampled > 40


def test_drafts_of_one_round_are_independent_and_share_the_forward(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    source = ModelDraft(disturbed(byte_model, 0.3), length=4, adaptive=False)
    drafter = source.begin(Request(constraint, prompt, Sampling(), Randomness(3), 0, byte_model))
    drafts = drafter.propose_several(constraint.start, prompt, 45, 0, 4)
    assert len({draft.tokens for draft in drafts}) > 1
    # the first one is what would be drafted alone: row 0 of the noise
    alone = source.begin(Request(constraint, prompt, Sampling(), Randomness(3), 0, byte_model))
    assert alone.propose(constraint.start, prompt, 45, 0).tokens == drafts[0].tokens
    assert drafter._rows.forwards == alone._rows.forwards


def test_the_length_counts_free_places_and_adapts(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    source = ModelDraft(disturbed(byte_model, 0.3), length=2, max_length=5)
    drafter = source.begin(Request(constraint, prompt, Sampling(), Randomness(1), 0, byte_model))
    sizes = []
    for step, share in enumerate([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]):
        draft = drafter.propose(constraint.start, prompt, 45, step)
        assert draft.onehot is not None
        free = [i for i, hot in enumerate(draft.onehot) if not hot]
        sizes.append(len(free))
        drafter.observe(draft, len(draft) if share else free[0])
    assert sizes == [2, 4, 5, 5, 3, 2]
    # the span `{"name": "` is drafted in front of the first free place
    assert byte_model.vocab.decode(draft.tokens).startswith(b'{"name": "')


def test_a_sparse_head_gives_the_law_of_the_whole(
    byte_model: Model, constraint: Any, prompt: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ModelDraft(disturbed(byte_model, 0.3), length=4)
    request = Request(constraint, prompt, Sampling(temperature=0.7), Randomness(3), 0, byte_model)
    sparse = source.begin(request)
    assert sparse._head is not None
    monkeypatch.setattr(Head, "of", lambda network: None)
    dense = source.begin(request)
    assert dense._head is None
    for step in range(4):
        one = sparse.propose(constraint.start, prompt, 45, step)
        two = dense.propose(constraint.start, prompt, 45, step)
        assert one.tokens == two.tokens
        torch.testing.assert_close(one.q, two.q)


def test_a_capped_head_is_not_taken_for_a_product() -> None:
    torch.manual_seed(0)
    config = transformers.Gemma2Config(
        vocab_size=12,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=0.1,
        initializer_range=0.6,
    )
    assert Head.of(transformers.Gemma2ForCausalLM(config).eval()) is None


def test_early_exit_leaves_the_targets_cache_alone(byte_model: Model, constraint: Any) -> None:
    rows = TargetRows(byte_model)
    row = rows.open()
    ids = byte_model.vocab.encode(b"and the")
    from structspec.forward.rows import Call

    rows.forward([Call(row, ids[:-1])])
    before = [layer.keys[row, :, : len(ids) - 1].clone() for layer in rows._cache.layers]  # type: ignore[union-attr]
    request = Request(constraint, ids, Sampling(), Randomness(3), 0, byte_model, rows, row)
    drafter = EarlyExit(1).begin(request)
    drafts = drafter.propose_several(constraint.start, ids, 45, 0, 2)
    assert all(len(draft) for draft in drafts)
    assert list(rows.ids(row)) == ids[:-1]
    for layer, keys in zip(rows._cache.layers, before, strict=True):  # type: ignore[union-attr]
        assert torch.equal(layer.keys[row, :, : len(ids) - 1], keys)
    drafter.close()
    assert list(rows._ids) == [row]


def test_a_shortened_model_is_the_first_layers_under_the_head(byte_model: Model) -> None:
    ids = torch.tensor([[97, 98, 99]])
    network = byte_model.model
    with torch.inference_mode():
        states = network(ids, output_hidden_states=True).hidden_states
        expected = network.lm_head(network.model.norm(states[1]))
        torch.testing.assert_close(shortened(network, 1)(ids).logits, expected)
    assert shortened(network, 1) is shortened(network, 1)
    assert len(network.model.layers) == 2


@pytest.mark.parametrize("layers", [0, 2, -1, True, "1"])
def test_early_exit_names_the_possible_layers(
    byte_model: Model, constraint: Any, prompt: list[int], layers: Any
) -> None:
    with pytest.raises(DraftError, match="1 to 1"):
        decode(byte_model, prompt, constraint, draft=EarlyExit(layers))


# -- foreign vocabularies ----------------------------------------------------------------------


def permuted(model: Model) -> Model:
    """The same model with its ids in another order, and some missing."""
    vocab = model.vocab
    order = np.random.default_rng(0).permutation(vocab.size)
    network = copy.deepcopy(model.model)
    with torch.no_grad():
        network.lm_head.weight.copy_(model.model.lm_head.weight[order])
        network.model.embed_tokens.weight.copy_(model.model.model.embed_tokens.weight[order])
    tokens = [vocab.tokens[i] for i in order]
    place = {int(old): new for new, old in enumerate(order)}
    special = {name: place[i] for name, i in vocab.special.items()}
    other = Vocabulary(tokens, [place[i] for i in vocab.eos_ids], special)
    return Model(network, None, name="permuted", vocab=other)


def test_a_draft_of_other_ids_drafts_the_same_bytes(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    other = permuted(byte_model)
    alignment = Alignment.of(byte_model.vocab, other.vocab)
    assert not alignment.identical
    assert other.vocab.decode(alignment.context(prompt)) == byte_model.vocab.decode(prompt)
    # the same model under other names: every sampled token is kept
    options: dict[str, Any] = {"max_tokens": 45, "seed": 2}
    output = decode(byte_model, prompt, constraint, draft=ModelDraft(other, spans=False), **options)
    same = decode(
        byte_model, prompt, constraint, draft=ModelDraft(byte_model, spans=False), **options
    )
    assert output.tokens == same.tokens
    assert output.stats.accepted == output.stats.drafted > 10


def test_a_draft_that_lacks_tokens_stays_lossless(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    vocab = byte_model.vocab
    tokens = [None if data in (b"e", b"{", b"an") else data for data in vocab.tokens]
    poor = Model(
        byte_model.model, None, name="poor", vocab=Vocabulary(tokens, vocab.eos_ids, vocab.special)
    )
    greedy = Sampling(temperature=0.0)
    plain = decode(byte_model, prompt, constraint, sampling=greedy, max_tokens=45)
    fast = decode(byte_model, prompt, constraint, sampling=greedy, draft=poor, max_tokens=45)
    assert fast.tokens == plain.tokens
    for seed in range(5):
        output = decode(byte_model, prompt, constraint, draft=poor, max_tokens=45, seed=seed)
        assert re.fullmatch(PATTERN, output.text.decode())


def test_a_vocabulary_that_shares_little_is_refused(
    byte_model: Model, tiny_model: Model, constraint: Any, prompt: list[int]
) -> None:
    with pytest.raises(DraftError, match=r"tiny writes only 5 of the target's \d+ tokens"):
        decode(byte_model, prompt, constraint, draft=tiny_model)


def test_equal_bytes_are_drafted_once() -> None:
    target = Vocabulary([b"a", b"a", b"b", None], eos_ids=[3])
    draft = Vocabulary([b"b", b"a", b"a", None], eos_ids=[3])
    assert Alignment.of(target, draft).to_draft.tolist() == [1, -1, 0, 3]


# -- bad input ---------------------------------------------------------------------------------


def test_a_draft_that_returns_nan_is_a_typed_error_and_loses_nothing(
    byte_model: Model, constraint: Any, prompt: list[int]
) -> None:
    draft = disturbed(byte_model, 0.01)
    calls = 0

    def poison(module: Any, args: Any, output: Any) -> Any:
        nonlocal calls
        calls += 1
        return output * float("nan") if calls > 4 else output

    handle = draft.model.model.norm.register_forward_hook(poison)
    try:
        with pytest.raises(DraftError, match=r"draft disturbed .*nan") as caught:
            decode(byte_model, prompt, constraint, draft=draft, max_tokens=45, seed=1)
    finally:
        handle.remove()
    assert len(caught.value.partial_output.tokens) > 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["length", "max_length", "limit"])
def test_lengths_below_one_are_refused(byte_model: Model, name: str) -> None:
    with pytest.raises(DraftError, match=f"{name}=0"):
        ModelDraft(byte_model, **{name: 0})


@pytest.mark.parametrize("source", ["good", "early exit"])
def test_drafts_stop_at_the_windows_edge(byte_model: Model, constraint: Any, source: str) -> None:
    draft = SOURCES[source](byte_model)
    needed = constraint.distance(constraint.start)
    assert byte_model.window is not None
    ids = [97] * (byte_model.window - needed - 1)
    for seed in range(3):
        output = decode(byte_model, ids, constraint, draft=draft, seed=seed, max_tokens=1000)
        assert len(output.tokens) <= needed + 1


def test_a_draft_with_a_smaller_window_drafts_as_far_as_it_sees(
    byte_model: Model, constraint: Any
) -> None:
    small = disturbed(byte_model, 0.01)
    small.window = 40  # type: ignore[misc]
    ids = [97] * 15
    greedy = Sampling(temperature=0.0)
    plain = decode(byte_model, ids, constraint, sampling=greedy, max_tokens=45)
    fast = decode(byte_model, ids, constraint, sampling=greedy, draft=small, max_tokens=45)
    assert fast.tokens == plain.tokens and 0 < fast.stats.drafted < 25


def test_names_and_models_become_sources(byte_model: Model, tiny_vocab: Vocabulary) -> None:
    assert draft_source("early-exit:3") == EarlyExit(3)
    source = draft_source(byte_model)
    assert isinstance(source, ModelDraft) and source.model is byte_model
    known = draft_source(byte_model.model)
    assert isinstance(known, ModelDraft) and known.model.model is byte_model.model
    stranger = copy.deepcopy(byte_model.model)
    with pytest.raises(DraftError, match=r"Model\.wrap"):
        draft_source(stranger)
    with pytest.raises(DraftError, match="early-exit:LAYERS"):
        draft_source("early-exit:x")
