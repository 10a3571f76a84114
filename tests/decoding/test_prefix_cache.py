"""Prompts that begin like earlier ones: the same laws, fewer tokens read, nothing stale."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import structspec  # noqa: E402
import structspec.prefix_cache  # noqa: E402
from structspec.forward.rows import Call, TargetRows  # noqa: E402
from structspec.forward.slots import SlotCache  # noqa: E402
from structspec.models import Model  # noqa: E402
from structspec.prefix_cache import FEWEST, Prefix, PrefixCache  # noqa: E402

ROOM = 1 << 20
LONG = [i % 5 for i in range(24)]


@pytest.fixture
def caching(make_llama: Callable[..., Any]) -> Model:
    """A float64 Llama of its own, window 64, that keeps what it has read."""
    return Model(make_llama(6), None, name="caching", prefix_cache=ROOM)


def reference(model: Model, ids: list[int]) -> Any:
    with torch.inference_mode():
        return model.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]


def read(model: Model, ids: list[int], taps: tuple[int, ...] = ()) -> tuple[Any, int, TargetRows]:
    """The logits behind some ids on new rows, and how many ids were known; the row is given back"""
    rows = TargetRows(model)
    rows.taps = taps
    row = rows.open()
    (logits,) = rows.forward([Call(row, ids)])
    known = rows.reused(row)
    rows.close(row)
    return logits[-1], known, rows


def test_the_common_beginning_is_read_once(caching: Model) -> None:
    assert read(caching, LONG)[1] == 0
    for ids, known in (
        (LONG, 23),  # the last one is always read: its logits are asked for
        ([*LONG, 3, 1], 24),
        ([*LONG[:20], 4, 4, 4], 20),
        ([*LONG[: FEWEST - 1], 4, 4, 4], 0),
        ([4, *LONG], 0),
    ):
        logits, found, _ = read(caching, ids)
        assert found == known
        torch.testing.assert_close(logits, reference(caching, ids))


def test_drafts_of_a_reused_row_are_rolled_back_as_ever(caching: Model) -> None:
    read(caching, LONG)
    rows = TargetRows(caching)
    row, other = rows.open(), rows.open()
    rows.forward([Call(row, [*LONG, 2, 2, 2], 4), Call(other, [*LONG[:18], 1])])
    assert (rows.reused(row), rows.reused(other)) == (23, 18)
    rows.keep(row, 3, [0])
    (logits,) = rows.forward([Call(row, [0])])
    torch.testing.assert_close(logits[0], reference(caching, [*LONG, 2, 0]))
    rows.close(row)
    assert rows.open() == row
    assert rows.reused(row) == 0


def test_what_is_kept_is_no_view_of_a_row(caching: Model) -> None:
    _, _, rows = read(caching, LONG)
    with torch.inference_mode():
        for layer in rows._cache.layers:  # type: ignore[union-attr]
            layer.keys.fill_(7.0)
    logits, known, _ = read(caching, [*LONG, 1])
    assert known == 24
    torch.testing.assert_close(logits, reference(caching, [*LONG, 1]))


def _in_place(network: Any) -> None:
    with torch.no_grad():
        network.model.layers[0].mlp.up_proj.weight.mul_(1.5)


def _replaced(network: Any) -> None:
    old = network.model.layers[1].self_attn.k_proj
    old.weight = torch.nn.Parameter(old.weight * 1.5)


def _loaded(network: Any) -> None:
    network.load_state_dict({k: 1.5 * v for k, v in network.state_dict().items()})


def _trained(network: Any) -> None:
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.1)
    network(input_ids=torch.tensor([LONG])).logits.square().mean().backward()
    optimizer.step()


def _steered(network: Any) -> None:
    network.model.layers[0].register_forward_hook(lambda _, given, made: made * 1.5)


def _prepared(network: Any) -> None:
    def scaled(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return (given[0] * 1.5, *given[1:])

    network.model.layers[1].mlp.register_forward_pre_hook(scaled)


def _patched(network: Any) -> None:
    mlp = network.model.layers[1].mlp
    original = mlp.forward
    mlp.forward = lambda x: 1.5 * original(x)


def _buffered(network: Any) -> None:
    network.model.rotary_emb.inv_freq.mul_(0.5)


@pytest.mark.parametrize(
    "change", [_in_place, _replaced, _loaded, _trained, _steered, _prepared, _patched, _buffered]
)
def test_changed_weights_use_nothing_of_the_old_ones(
    caching: Model, change: Callable[[Any], None]
) -> None:
    read(caching, LONG)
    change(caching.model)
    logits, known, _ = read(caching, [*LONG, 1])
    assert known == 0
    torch.testing.assert_close(logits, reference(caching, [*LONG, 1]))
    assert read(caching, [*LONG, 1, 2])[1] == 25


@pytest.mark.parametrize("change", [_in_place, _replaced, _loaded, _steered])
def test_a_text_that_a_change_came_upon_halfway_is_not_kept(
    caching: Model, change: Callable[[Any], None]
) -> None:
    rows = TargetRows(caching)
    row = rows.open()
    rows.forward([Call(row, LONG)])
    change(caching.model)
    other = rows.open()  # may have copied from the first
    rows.forward([Call(other, [*LONG, 2])])
    rows.forward([Call(row, [1])])
    rows.close(row)
    rows.close(other)
    logits, known, _ = read(caching, [*LONG, 1, 2])
    assert known == 0
    torch.testing.assert_close(logits, reference(caching, [*LONG, 1, 2]))
    assert read(caching, [*LONG, 1, 2])[1] == 25


def test_a_hook_that_is_gone_is_noticed(caching: Model) -> None:
    handle = caching.model.model.layers[0].register_forward_hook(lambda _, given, made: made * 1.5)
    read(caching, LONG)
    handle.remove()
    logits, known, _ = read(caching, [*LONG, 1])
    assert known == 0
    torch.testing.assert_close(logits, reference(caching, [*LONG, 1]))


def test_asking_for_hidden_states_is_no_change(caching: Model) -> None:
    """transformers leaves hooks that only note what passes."""
    read(caching, LONG)
    with torch.inference_mode():
        caching.model(input_ids=torch.tensor([LONG]), output_hidden_states=True)
    assert read(caching, [*LONG, 1])[1] == 24


class Adapted(torch.nn.Module):
    """A linear layer with adapters, switched as PEFT's layers are."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base = base
        self._active_adapter: list[str] = ["a"]
        self._disable_adapters = False
        self.merged_adapters: list[str] = []
        self.scaling = {"a": 1.5, "b": 2.5}

    def forward(self, x: Any) -> Any:
        factor = 1.0 if self._disable_adapters else self.scaling[self._active_adapter[0]]
        return self.base(x) * factor


def test_a_switched_adapter_is_noticed(caching: Model) -> None:
    layer = caching.model.model.layers[0].mlp
    layer.up_proj = Adapted(layer.up_proj)
    known = []
    for change in (
        {"_active_adapter": ["a"]},
        {"_active_adapter": ["b"]},
        {"_disable_adapters": True},
        {"_disable_adapters": False},
        {"scaling": {"a": 1.5, "b": 0.5}},
        {},
    ):
        layer.up_proj.__dict__.update(change)
        logits, found, _ = read(caching, LONG)
        torch.testing.assert_close(logits, reference(caching, LONG))
        known.append(found)
    assert known == [0, 0, 0, 0, 0, 23]


def test_memory_that_is_used_again_is_no_sign_of_the_same_weights(
    caching: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What allocators of accelerators do every time: the address and the version are as before.
    monkeypatch.setattr(torch.Tensor, "data_ptr", lambda self: 0)
    weight = caching.model.model.layers[1].self_attn.k_proj.weight
    for _ in range(6):
        read(caching, LONG)
        for _ in range(2):
            weight.data = weight.data * 1.5
        assert read(caching, LONG)[1] == 0


def test_texts_with_nan_are_not_kept(caching: Model) -> None:
    weight = caching.model.model.layers[0].mlp.down_proj.weight
    with torch.no_grad():
        saved = weight.clone()
        weight.fill_(torch.nan)
    read(caching, LONG)
    assert len(caching.prefix_cache) == 0
    with torch.no_grad():
        weight.copy_(saved)
    logits, known, _ = read(caching, LONG)
    assert known == 0
    torch.testing.assert_close(logits, reference(caching, LONG))


def test_tapped_layers_come_along(caching: Model) -> None:
    taps = (1, 2)
    read(caching, LONG)
    assert read(caching, [*LONG, 1], taps)[1] == 0, "kept without the tapped layers"
    rows = TargetRows(caching)
    rows.taps = taps
    row = rows.open()
    rows.forward([Call(row, [*LONG, 1, 3])])
    assert rows.reused(row) == 25
    plain = TargetRows(Model(caching.model, None, name="plain"))
    plain.taps = taps
    other = plain.open()
    plain.forward([Call(other, [*LONG, 1, 3])])
    torch.testing.assert_close(rows.features(row), plain.features(other))


def test_nothing_is_kept_unless_asked_for(make_llama: Callable[..., Any]) -> None:
    model = Model.wrap(make_llama(6), None)
    read(model, LONG)
    assert read(model, LONG)[1] == 0
    assert model.prefix_cache.n_bytes == 0


def test_clear_and_a_smaller_budget(caching: Model) -> None:
    read(caching, LONG)
    assert caching.prefix_cache.n_bytes > 0
    caching.prefix_cache.clear()
    assert read(caching, LONG)[1] == 0
    most = caching.prefix_cache.n_bytes
    read(caching, [3, *LONG[1:]])
    caching.prefix_cache.max_bytes = most
    assert 0 < caching.prefix_cache.n_bytes <= most
    caching.prefix_cache.max_bytes = 0
    assert caching.prefix_cache.n_bytes == len(caching.prefix_cache) == 0
    read(caching, LONG)
    assert len(caching.prefix_cache) == 0
    with pytest.raises(ValueError, match="negative"):
        caching.prefix_cache.max_bytes = -1


def test_no_memory_for_copies_is_no_error(caching: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    read(caching, LONG)

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(SlotCache, "copy_out", full)
    logits, known, _ = read(caching, [*LONG, 1])
    assert known == 24
    torch.testing.assert_close(logits, reference(caching, [*LONG, 1]))
    assert len(caching.prefix_cache) == 0, "what is kept makes room"
    logits, known, _ = read(caching, LONG)
    assert known == 0


def test_what_is_known_is_not_copied_again(caching: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []
    plain = SlotCache.copy_out

    def spy(self: SlotCache, row: int, count: int) -> Any:
        copies.append(count)
        return plain(self, row, count)

    monkeypatch.setattr(SlotCache, "copy_out", spy)
    for ids in (LONG, LONG, LONG[:20], LONG[:4], [*LONG, 1]):
        read(caching, ids)
    assert copies == [24, 25]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_models_are_copied_without_what_they_keep(
    caching: Model, copied: Callable[[Model], Model]
) -> None:
    read(caching, LONG)
    other = copied(caching)
    assert len(other.prefix_cache) == 0
    assert other.prefix_cache.max_bytes == ROOM
    assert read(other, LONG)[1] == 0
    assert read(other, [*LONG, 1])[1] == 24
    _in_place(other.model)
    logits, known, _ = read(other, LONG)
    assert known == 0
    torch.testing.assert_close(logits, reference(other, LONG))
    assert read(caching, LONG)[1] == 23


@pytest.mark.parametrize("wrong", [-1, 2.5, True, "256 MiB", None])
def test_a_wrong_budget_is_refused(tiny_model: Model, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="prefix_cache"):
        Model(tiny_model.model, None, name="n", prefix_cache=wrong)


# -- the store by itself --------------------------------------------------------------------------


def prefix(ids: list[int]) -> Prefix:
    """Twelve bytes a token: one layer whose keys and values are the ids."""
    keys = torch.tensor(ids, dtype=torch.float32)[None, :, None]
    return Prefix(ids, [keys, torch.cat([keys, keys], 2)])


def test_the_budget_holds_and_the_longest_unused_goes_first() -> None:
    cache = PrefixCache(None, 12 * 100)
    texts = [[number] * 40 for number in range(3)]
    for text in texts[:2]:
        cache.keep(prefix(text))
    assert cache.longest(texts[0])[1] == 40
    cache.keep(prefix(texts[2]))
    assert cache.n_bytes <= cache.max_bytes
    assert [cache.longest(text)[1] for text in texts] == [40, 0, 40]


def test_a_text_that_goes_on_replaces_its_beginning() -> None:
    cache = PrefixCache(None, ROOM)
    short, long = [1] * 20, [1] * 20 + [2] * 20
    cache.keep(prefix(short))
    cache.keep(prefix(long))
    assert len(cache) == 1
    cache.keep(prefix(short))
    assert len(cache) == 1
    assert cache.longest(long)[1] == 40


def test_of_a_text_beyond_the_budget_the_beginning_stays() -> None:
    cache = PrefixCache(None, 12 * 30)
    text = list(range(50))
    cache.keep(prefix(text))
    found, count = cache.longest(text)
    assert found is not None and count == 30
    assert found.stores[0][0, :, 0].tolist() == text[:30]
    assert cache.n_bytes == 12 * 30


def test_equal_texts_with_and_without_taps_stand_side_by_side() -> None:
    cache = PrefixCache(None, ROOM)
    text = [1] * 20
    tapped = Prefix(text, prefix(text).stores, (1,), torch.zeros(20, 3))
    for one in (prefix(text), tapped):
        cache.keep(one)
    for _ in range(2):
        for taps, features in (((1,), tapped.features), ((), None), ((), None)):
            found, count = cache.longest([*text, 2], taps)
            assert found is not None and count == 20
            assert found.features is features


def test_random_texts_are_found_as_by_comparing_all() -> None:
    rng = random.Random(5)
    cache = PrefixCache(None, ROOM)
    kept: list[list[int]] = []
    for _ in range(150):
        base = rng.choice(kept) if kept and rng.random() < 0.7 else []
        ids = base[: rng.randrange(60)] + [rng.randrange(3) for _ in range(rng.randrange(1, 40))]
        want = max((structspec.prefix_cache.common_prefix(ids, other) for other in kept), default=0)
        found, count = cache.longest(ids)
        assert count == (want if want >= FEWEST else 0)
        if found is not None:
            assert found.ids[:count] == ids[:count]
            assert found.stores[0][0, :count, 0].tolist() == ids[:count]
        cache.keep(prefix(ids))
        if len(ids) >= FEWEST:
            kept.append(ids)


def test_threads_share_a_cache(caching: Model) -> None:
    texts = [[*LONG[:20], number, *LONG[:10]] for number in range(4)]
    expected = [reference(caching, text) for text in texts]
    failures: list[str] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            number = rng.randrange(4)
            logits, _, _ = read(caching, texts[number])
            if not torch.allclose(logits, expected[number], atol=1e-9):
                failures.append(f"text {number}")
            if rng.random() < 0.2:
                caching.prefix_cache.clear()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# -- whole answers --------------------------------------------------------------------------------


@pytest.mark.parametrize("draft", [None, "auto", "early-exit:1", "forks"])
def test_answers_are_those_of_a_model_that_keeps_nothing(byte_model: Model, draft: Any) -> None:
    keeping = Model.wrap(byte_model.model, byte_model.tokenizer, prefix_cache=ROOM)
    schema = {"enum": ["the", "an and", 12, None]}
    prompts = ["the and a banana " * 3 + end for end in ("a", "an", "the", "")]
    for repeat in range(2):
        for i, prompt in enumerate(prompts):
            options = {"draft": draft, "seed": i, "chat": False, "max_tokens": 20}
            plain = structspec.generate(byte_model, prompt, schema, **options)
            found = structspec.generate(keeping, prompt, schema, **options)
            assert found.tokens == plain.tokens
            assert plain.stats.reused == 0
            assert (found.stats.reused > 0) == (repeat + i > 0)
    several = structspec.generate(keeping, prompts, schema, draft=draft, seed=0, chat=False)
    assert all(result.stats.reused for result in several)
