"""The law of the whole loop, exactly: every random choice enumerated on a tiny transformer.

The loop runs unchanged: its cache, its masks with budgets, its drafters. Only the verifier is
replaced by one that knows its own exact law (the float64 oracle's) and branches over it; drafters
that sample branch too. Summing over all branches gives the law of the output, which must be that
of plain masked sampling computed without cache, loop or warp.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from structspec.decoding import judge
from structspec.decoding.loop import decode, decode_many
from structspec.decoding.progress import Job
from structspec.drafting import (
    CombinedDraft,
    Draft,
    DraftBuilder,
    EagleDraft,
    EagleHead,
    EarlyExit,
    FirstOf,
    ForcedDraft,
    ForkDraft,
    LookupDraft,
    ModelDraft,
    Request,
)
from structspec.drafting import model as model_drafts
from structspec.drafting.lengths import DraftCosts
from structspec.forward.warp import Sampling
from structspec.models import Model
from structspec.verification import Purpose, Verdict, oracle
from structspec.verification.oracle_drafts import layered_law
from structspec.verification.randomness import sample_inverse
from structspec.verification.registry import drafts_verifiers, verifiers
from structspec.vocab import Vocabulary

Bind = Callable[[str, Vocabulary], Any]
Law = dict[tuple[tuple[int, ...], str], float]
PROMPT = [4, 0, 2, 1]
PATTERN = "a(b|ab)*c"
BUDGET = 4
EOS = 5


class Branches:
    """One path through all random choices, and the paths that it leaves to be taken."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self.script = script
        self.taken: list[int] = []
        self.probability = 1.0
        self.open: list[tuple[int, ...]] = []

    def choose(self, probabilities: Sequence[float] | np.ndarray) -> int:
        options = [i for i, p in enumerate(probabilities) if p > 0]
        at = len(self.taken)
        if at < len(self.script):
            choice = self.script[at]
        else:
            choice = options[0]
            self.open += [(*self.taken, other) for other in options[1:]]
        self.taken.append(choice)
        self.probability *= float(probabilities[choice])
        return choice


def all_paths(run: Callable[[Branches], Any]) -> Iterator[tuple[float, Any]]:
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        path = Branches(waiting.pop())
        result = run(path)
        waiting += path.open
        yield path.probability, result


class Drawn:
    """Draws from the rows of a law that are made when they are asked for, by branching."""

    def __init__(self, path: Branches, mass: torch.Tensor) -> None:
        self._path, self._mass = path, mass

    def __getitem__(self, row: int) -> int:
        return self._path.choose((self._mass[row] / self._mass[row].sum()).numpy())


def branching_verifier(path: Branches, law: Callable[..., oracle.ExitLaw]) -> Callable[..., Any]:
    def verify(
        target: torch.Tensor,
        draft: torch.Tensor | None,
        tokens: torch.Tensor,
        lengths: torch.Tensor,
        uniforms: torch.Tensor,
        *,
        onehot: torch.Tensor | None = None,
        eos_ids: Sequence[int] = (),
    ) -> Verdict:
        del uniforms
        accepted, following = [], []
        for b, length in enumerate(lengths.tolist()):
            drafted = tokens[b, :length].tolist()
            p = target[b, : length + 1].numpy()
            q = np.zeros((length, p.shape[1]))
            for i, token in enumerate(drafted):
                hot = draft is None or (onehot is not None and bool(onehot[b, i]))
                q[i] = oracle.one_hot(token, p.shape[1]) if hot else draft[b, i].numpy()
            exact = law(p, q, drafted)
            kept = path.choose(exact.exit)
            ended = kept == length > 0 and drafted[-1] in eos_ids
            accepted.append(kept)
            following.append(-1 if ended else path.choose(exact.emit[kept]))
        return Verdict(torch.tensor(accepted), torch.tensor(following))

    return verify


class RandomDraft:
    """Drafts two tokens sampled from a law of its own, masked, end tokens included."""

    def __init__(self, path: Branches | None = None, length: int = 2) -> None:
        self.path = path
        self.length = length

    def begin(self, request: Request) -> RandomDraft:
        self.request = request
        return self

    def law(self, context: Sequence[int], mask: np.ndarray) -> np.ndarray:
        noise = np.random.default_rng([len(context), *context[-3:]])
        raw = noise.dirichlet(np.full(6, 0.7))
        legal = np.unpackbits(mask.view(np.uint8), bitorder="little")[:6]
        masked = raw * legal
        return masked / masked.sum()

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        builder = DraftBuilder(self.request.constraint, state, left)
        rows = []
        for i in range(self.length):
            row = self.law([*context, *builder.tokens], builder.mask)
            if self.path is not None:
                token = self.path.choose(row)
            else:
                uniforms = self.request.noise.uniforms(
                    self.request.number, step, Purpose.DRAFT, count=self.length
                )
                token = sample_inverse(row, uniforms[i])
            rows.append(row)
            assert builder.add(token) or builder.end(token)
            if token == EOS or not builder.room:
                break
        return builder.build(q=torch.from_numpy(np.array(rows)))

    def observe(self, draft: Draft, accepted: int) -> None:
        pass


class MixedDraft(RandomDraft):
    """A deterministic first place, then a sampled one."""

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        builder = DraftBuilder(self.request.constraint, state, left)
        first = next(t for t in range(5) if builder.add(t))
        rows = [np.zeros(6)]
        if builder.room:
            row = self.law([*context, first], builder.mask)
            assert self.path is not None
            token = self.path.choose(row)
            rows.append(row)
            assert builder.add(token) or builder.end(token)
        return builder.build(
            q=torch.from_numpy(np.array(rows)), onehot=[True, False][: len(builder.tokens)]
        )


def plain_law(model: Model, constraint: Any, sampling: Sampling, budget: int = BUDGET) -> Law:
    """The definition: mask, penalise, temper, renormalise, one token after another, no cache."""
    law: Law = defaultdict(float)

    def walk(output: tuple[int, ...], state: int, mass: float) -> None:
        left = budget - len(output)
        mask = constraint.mask(state, left).view(np.uint8)
        legal = np.unpackbits(mask, bitorder="little")[:6].astype(bool)
        with torch.inference_mode():
            ids = torch.tensor([[*PROMPT, *output]])
            logits = model.model(input_ids=ids, use_cache=False).logits[0, -1].numpy().copy()
        for token in {*PROMPT, *output}:
            factor = sampling.repetition_penalty
            logits[token] = logits[token] * factor if logits[token] < 0 else logits[token] / factor
        for token in output:
            logits[token] -= sampling.frequency_penalty
        logits = np.where(legal, logits / sampling.temperature, -np.inf)
        row = np.exp(logits - logits.max())
        row /= row.sum()
        if sampling.top_p is not None:
            order = np.argsort(-row)
            before = np.cumsum(row[order]) - row[order]
            row[order[before >= sampling.top_p]] = 0.0
            row /= row.sum()
        for token in np.flatnonzero(row):
            if token == EOS:
                law[output, "end"] += mass * row[token]
            else:
                reached = constraint.advance(state, int(token))
                walk((*output, int(token)), reached, mass * row[token])

    walk((), constraint.start, 1.0)
    return law


def loop_law(
    model: Model,
    constraint: Any,
    sampling: Sampling,
    law: Callable[..., oracle.ExitLaw],
    make_draft: Callable[[Branches], Any],
    monkeypatch: pytest.MonkeyPatch,
    budget: int = BUDGET,
) -> Law:
    def run(path: Branches) -> tuple[int, ...]:
        monkeypatch.setitem(verifiers, "branching", branching_verifier(path, law))
        output = decode(
            model,
            PROMPT,
            constraint,
            sampling=sampling,
            draft=make_draft(path),
            verifier="branching",
            max_tokens=budget,
        )
        assert constraint.vocab.decode(output.tokens) == output.text
        return output.tokens

    total: Law = defaultdict(float)
    for probability, tokens in all_paths(run):
        total[tokens, "end"] += probability
    return total


DRAFTS: dict[str, Callable[[Branches], Any]] = {
    "none": lambda path: None,
    "auto": lambda path: CombinedDraft(),
    "sampled": RandomDraft,
    "mixed": MixedDraft,
}


@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_draft_and_verifier_leaves_the_plain_law(
    tiny_model: Model,
    tiny_vocab: Vocabulary,
    bind: Bind,
    monkeypatch: pytest.MonkeyPatch,
    draft: str,
    rule: str,
) -> None:
    constraint = bind(PATTERN, tiny_vocab)
    law = oracle.block_law if rule == "block" else oracle.token_law
    sampling = Sampling(temperature=1.7)
    expected = plain_law(tiny_model, constraint, sampling)
    found = loop_law(tiny_model, constraint, sampling, law, DRAFTS[draft], monkeypatch)
    assert len(expected) == 18
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    assert max(abs(found[k] - expected[k]) for k in {*found, *expected}) < 1e-12


@pytest.mark.parametrize("draft", ["auto", "sampled"])
def test_penalties_see_each_places_own_prefix(
    tiny_model: Model,
    tiny_vocab: Vocabulary,
    bind: Bind,
    monkeypatch: pytest.MonkeyPatch,
    draft: str,
) -> None:
    constraint = bind(PATTERN, tiny_vocab)
    sampling = Sampling(temperature=1.3, repetition_penalty=1.4, frequency_penalty=0.7)
    expected = plain_law(tiny_model, constraint, sampling)
    found = loop_law(tiny_model, constraint, sampling, oracle.block_law, DRAFTS[draft], monkeypatch)
    assert max(abs(found[k] - expected[k]) for k in {*found, *expected}) < 1e-12


class SmallModel:
    """A real `ModelDraft`, its samples taken from the branches."""

    def __init__(self, path: Branches, monkeypatch: pytest.MonkeyPatch, source: Any) -> None:
        def choose(mass: np.ndarray, uniform: float) -> int:
            assert 0 <= uniform < 1
            return path.choose(mass / mass.sum())

        monkeypatch.setattr(model_drafts, "sample_inverse", choose)
        self.begin = source.begin


class Copying:
    """An `EagleDraft` that mixes copies in; with `sure`, some are drafted without its head."""

    def __init__(self, sure: bool | None) -> None:
        self.sure = sure
        self._source: Any = None

    def begin(self, request: Request) -> Any:
        if self._source is None:
            torch.manual_seed(4)
            network = request.model.model
            head = EagleHead.for_target(network, [0, 1, 3, 4], (1, 2, 2)).double()
            if self.sure is not None:
                head.copies()
            with torch.no_grad():
                if self.sure is not None:
                    head.copy.fill_(0.3)  # type: ignore[union-attr]
                if self.sure:
                    head.copy[:3] = 3.0  # type: ignore[index]
            self._source = EagleDraft(head, length=2, adaptive=False)
        return self._source.begin(request)


SMALL = {
    "head": lambda model: Copying(sure=None),
    "copies": lambda model: Copying(sure=False),
    "sure copies": lambda model: Copying(sure=True),
    "masked": lambda model: ModelDraft(model, length=2, adaptive=False),
    "adaptive": lambda model: ModelDraft(model, length=1, max_length=3),
    "costs": lambda model: ModelDraft(model, max_length=3, costs=DraftCosts(4.0, 0.1, 1.0)),
    "without spans": lambda model: ModelDraft(model, length=2, spans=False, adaptive=False),
    "unmasked": lambda model: ModelDraft(model, length=2, masked=False, adaptive=False),
    "early exit": lambda model: EarlyExit(1, length=2, adaptive=False),
}
SETTINGS = {
    "plain": Sampling(temperature=1.7),
    "top-p": Sampling(temperature=1.7, top_p=0.8),
    "penalties": Sampling(temperature=1.3, repetition_penalty=1.4, frequency_penalty=0.7),
}


@pytest.mark.parametrize("draft", SMALL)
@pytest.mark.parametrize(
    ("rule", "settings"), [*(("block", name) for name in SETTINGS), ("token", "plain")]
)
def test_model_drafts_leave_the_plain_law(
    tiny_model: Model,
    small_model: Model,
    tiny_vocab: Vocabulary,
    bind: Bind,
    monkeypatch: pytest.MonkeyPatch,
    draft: str,
    settings: str,
    rule: str,
) -> None:
    constraint = bind(PATTERN, tiny_vocab)
    sampling = SETTINGS[settings]
    law = oracle.block_law if rule == "block" else oracle.token_law
    source = SMALL[draft](small_model)
    expected = plain_law(tiny_model, constraint, sampling, budget=3)
    found = loop_law(
        tiny_model,
        constraint,
        sampling,
        law,
        lambda path: SmallModel(path, monkeypatch, source),
        monkeypatch,
        budget=3,
    )
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-9)
    assert max(abs(found[k] - expected.get(k, 0.0)) for k in {*found, *expected}) < 1e-9


class UnequalDrafts:
    """A sampled draft of two tokens for the first request, of one for the second."""

    def __init__(self, path: Branches) -> None:
        self.path = path

    def begin(self, request: Request) -> RandomDraft:
        return RandomDraft(self.path, 2 - request.number).begin(request)


@pytest.mark.parametrize("rule", ["block", pytest.param("token", marks=pytest.mark.full)])
def test_two_requests_in_a_batch_have_independent_plain_laws(
    tiny_model: Model,
    tiny_vocab: Vocabulary,
    bind: Bind,
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
) -> None:
    """The joint law of a batch of two, draft lengths unequal, is the product of plain laws."""
    constraint, other = bind("a(b|ab)*c", tiny_vocab), bind("[ab]{1,2}", tiny_vocab)
    law = oracle.block_law if rule == "block" else oracle.token_law
    sampling = Sampling(temperature=1.7)
    expected = {
        (one, two): p * q
        for one, p in plain_law(tiny_model, constraint, sampling, 3).items()
        for two, q in plain_law(tiny_model, other, sampling, 2).items()
    }
    found: dict[Any, float] = defaultdict(float)

    def run(path: Branches) -> Any:
        monkeypatch.setitem(verifiers, "branching", branching_verifier(path, law))
        jobs = [
            Job(PROMPT, constraint, sampling, max_tokens=3, request=0),
            Job(PROMPT, other, sampling, max_tokens=2, request=1),
        ]
        outputs = decode_many(tiny_model, jobs, draft=UnequalDrafts(path), verifier="branching")
        return tuple((output.tokens, "end") for output in outputs)  # type: ignore[union-attr]

    for probability, texts in all_paths(run):
        found[texts] += probability
    assert len(expected) > 20
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    assert max(abs(found[k] - expected.get(k, 0.0)) for k in {*found, *expected}) < 1e-12


def branching_layers(path: Branches) -> Callable[..., Any]:
    """Layered verification of several drafts, branching over the oracle's exact law."""

    def verify(
        target: torch.Tensor,
        draft: torch.Tensor | None,
        tokens: torch.Tensor,
        lengths: torch.Tensor,
        uniforms: torch.Tensor,
        *,
        onehot: torch.Tensor | None = None,
        eos_ids: Sequence[int] = (),
    ) -> Verdict:
        assert tokens.shape[0] == 1 and uniforms.shape == (1, tokens.shape[1], tokens.shape[2] + 1)
        drafts = [
            tuple(t[:n]) for t, n in zip(tokens[0].tolist(), lengths[0].tolist(), strict=True)
        ]
        p: dict[tuple[int, ...], np.ndarray] = {}
        q: dict[tuple[int, ...], np.ndarray] = {}
        for k, drafted in enumerate(drafts):
            for i in range(len(drafted) + 1):
                node = drafted[:i]
                p.setdefault(node, target[0, k, i].numpy())
                assert np.array_equal(p[node], target[0, k, i].numpy())  # shared rows are equal
                if i < len(drafted):
                    hot = draft is None or (onehot is not None and bool(onehot[0, k, i]))
                    row = (
                        oracle.one_hot(drafted[i], target.shape[3])
                        if hot
                        else draft[0, k, i].numpy()  # type: ignore[index]
                    )
                    q.setdefault(node, row)

        def ended(text: tuple[int, ...]) -> np.ndarray:
            # behind an end token nothing is read; any one-hot row stands for "no more"
            over = bool(text) and text[-1] in eos_ids
            return oracle.one_hot(0, target.shape[3]) if over else p[text]

        masses = layered_law(ended, lambda text: q[text], drafts)
        cells = [(node, token) for node, row in masses.items() for token in np.flatnonzero(row)]
        weights = np.array([masses[node][token] for node, token in cells])
        node, token = cells[path.choose(weights / weights.sum())]
        over = bool(node) and node[-1] in eos_ids
        row = next(k for k, drafted in enumerate(drafts) if drafted[: len(node)] == node)
        return Verdict(
            torch.tensor([len(node)]), torch.tensor([-1 if over else token]), torch.tensor([row])
        )

    return verify


@pytest.mark.parametrize(
    "draft",
    [
        "masked",
        "sure copies",
        *(
            pytest.param(name, marks=pytest.mark.full)
            for name in ("head", "copies", "unmasked", "early exit")
        ),
    ],
)
def test_several_drafts_leave_the_plain_law(
    tiny_model: Model,
    small_model: Model,
    tiny_vocab: Vocabulary,
    bind: Bind,
    monkeypatch: pytest.MonkeyPatch,
    draft: str,
) -> None:
    """Two drafts in one forward by tree attention, lengths ended by their own prefix."""
    constraint = bind("a[bc]?|b", tiny_vocab)
    sampling = Sampling(temperature=1.7)
    source = SMALL[draft](small_model)
    expected = plain_law(tiny_model, constraint, sampling, budget=2)
    found: Law = defaultdict(float)

    def run(path: Branches) -> tuple[int, ...]:
        monkeypatch.setitem(drafts_verifiers, "branching", branching_layers(path))
        # where nothing was sampled
        monkeypatch.setattr(judge, "draw_rows", lambda mass, _: Drawn(path, mass))
        return decode(
            tiny_model,
            PROMPT,
            constraint,
            sampling=sampling,
            draft=SmallModel(path, monkeypatch, source),
            verifier="branching",
            draft_count=2,
            max_tokens=2,
        ).tokens

    for probability, tokens in all_paths(run):
        found[tokens, "end"] += probability
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-9)
    assert max(abs(found[k] - expected.get(k, 0.0)) for k in {*found, *expected}) < 1e-9


@pytest.mark.parametrize(
    "draft",
    [None, CombinedDraft(), ForkDraft(), FirstOf(LookupDraft(), ForcedDraft())],
    ids=["none", "auto", "forks", "first of two"],
)
def test_following_certain_drafts_leaves_the_plain_law(
    tiny_model: Model,
    tiny_vocab: Vocabulary,
    bind: Bind,
    monkeypatch: pytest.MonkeyPatch,
    draft: Any,
) -> None:
    """The walk along drafts and down trees, its draws taken from the branches."""
    constraint = bind(PATTERN, tiny_vocab)
    sampling = Sampling(temperature=1.7)
    expected = plain_law(tiny_model, constraint, sampling)
    found: Law = defaultdict(float)
    accepted = 0

    def run(path: Branches) -> tuple[int, ...]:
        nonlocal accepted

        monkeypatch.setattr(judge, "draw_rows", lambda mass, _: Drawn(path, mass))
        output = decode(
            tiny_model,
            PROMPT,
            constraint,
            sampling=sampling,
            draft=draft,
            max_tokens=BUDGET,
        )
        accepted += output.stats.accepted
        return output.tokens

    for probability, tokens in all_paths(run):
        found[tokens, "end"] += probability
    assert accepted > 10 or draft is None
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-9)
    assert max(abs(found[k] - expected.get(k, 0.0)) for k in {*found, *expected}) < 1e-9


class UnmaskedAndCut(RandomDraft):
    """Mutant: sampled without the mask, cut at the first illegal token, q not renormalised."""

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        builder = DraftBuilder(self.request.constraint, state, left)
        rows: list[np.ndarray] = []
        everything = np.array([0b111111], np.uint32)
        while len(rows) < self.length and builder.room:
            row = self.law([*context, *builder.tokens], everything)
            assert self.path is not None
            token = self.path.choose(row)
            if not (builder.add(token) or builder.end(token)):
                break
            rows.append(row)
        q = torch.from_numpy(np.array(rows).reshape(len(rows), 6))
        return builder.build(q=q if rows else None)


class DropsByValue(RandomDraft):
    """Mutant: a sampled draft loses its last token because of what it is."""

    def propose(self, state: int, context: Sequence[int], left: int, step: int) -> Draft:
        draft = super().propose(state, context, left, step)
        if draft.tokens[-1] == 1:
            n = len(draft) - 1
            return Draft(
                draft.tokens[:n], draft.states[:n], draft.masks[:n], draft.q[:n] if n else None
            )
        return draft


@pytest.mark.parametrize("mutant", [UnmaskedAndCut, DropsByValue])
def test_known_mistakes_of_drafters_are_seen(
    tiny_model: Model,
    tiny_vocab: Vocabulary,
    bind: Bind,
    monkeypatch: pytest.MonkeyPatch,
    mutant: type[RandomDraft],
) -> None:
    """The power of the tests above: both mistakes are live in serving engines."""
    constraint = bind(PATTERN, tiny_vocab)
    sampling = Sampling(temperature=1.7)
    expected = plain_law(tiny_model, constraint, sampling, budget=3)
    found = loop_law(
        tiny_model, constraint, sampling, oracle.block_law, mutant, monkeypatch, budget=3
    )
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    assert max(abs(found[k] - expected[k]) for k in {*found, *expected}) > 1e-3


@pytest.mark.parametrize("runs", [400, pytest.param(20_000, marks=pytest.mark.full)])
@pytest.mark.parametrize(("verifier", "count"), [("block", 1), ("token", 1), ("layered", 3)])
def test_sampled_outputs_have_the_plain_law(
    tiny_model: Model,
    small_model: Model,
    tiny_vocab: Vocabulary,
    bind: Bind,
    verifier: str,
    count: int,
    runs: int,
) -> None:
    """The real verifiers and the real randomness, by a χ² test over many seeds."""
    constraint = bind(PATTERN, tiny_vocab)
    sampling = Sampling(temperature=1.7)
    expected = plain_law(tiny_model, constraint, sampling)
    counts: dict[Any, int] = defaultdict(int)
    for seed in range(runs):
        output = decode(
            tiny_model,
            PROMPT,
            constraint,
            sampling=sampling,
            draft=RandomDraft() if count == 1 else ModelDraft(small_model, length=2),
            verifier=verifier,
            draft_count=count,
            max_tokens=BUDGET,
            seed=seed,
        )
        counts[output.tokens, "end"] += 1
    assert set(counts) <= set(expected)
    # texts that are rarer than five expected runs share one cell
    cells = [(counts[k], runs * p) for k, p in expected.items() if runs * p >= 5]
    rare = (runs - sum(c for c, _ in cells), runs - sum(e for _, e in cells))
    cells.append(rare)
    statistic = sum((c - e) ** 2 / e for c, e in cells)
    freedom = len(cells) - 1
    # Wilson-Hilferty: a fixed set of seeds, so this cannot flicker; 4 standard deviations
    normal = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (
        2 / (9 * freedom)
    ) ** 0.5
    assert normal < 4


MAKES = {
    "recurrent, in pieces": ("Mamba2", {"state_size": 8, "num_heads": 4, "head_dim": 8,
                                        "n_groups": 1, "chunk_size": 4}),
    "recurrent, in steps": ("Mamba", {"state_size": 4}),
    "window": ("Mistral", {"sliding_window": 3, "num_attention_heads": 2,
                           "num_key_value_heads": 1, "intermediate_size": 32}),
    "experts": ("Mixtral", {"num_local_experts": 4, "num_attention_heads": 2,
                            "num_key_value_heads": 1, "intermediate_size": 32}),
}  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [pytest.param(m, marks=pytest.mark.full if "pieces" in m else ()) for m in MAKES],
)
def test_networks_of_other_makes_keep_the_plain_law(
    tiny_vocab: Vocabulary, bind: Bind, monkeypatch: pytest.MonkeyPatch, make: str
) -> None:
    """Recurrent states are float32 in transformers, so their laws agree to seven digits."""
    name, own = MAKES[make]
    torch.manual_seed(6)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=6, hidden_size=16, num_hidden_layers=2, initializer_range=0.6, **own
    )
    config._experts_implementation = "eager"
    network = getattr(transformers, f"{name}ForCausalLM")(config).to(torch.float64).eval()
    model = Model(network, None, name=make, vocab=tiny_vocab)
    constraint = bind(PATTERN, tiny_vocab)
    sampling = Sampling(temperature=1.7)
    expected = plain_law(model, constraint, sampling, budget=3)
    assert len(expected) > 5
    close = 1e-6 if make.startswith("recurrent") else 1e-9
    found = loop_law(
        model, constraint, sampling, oracle.block_law, RandomDraft, monkeypatch, budget=3
    )
    assert sum(found.values()) == pytest.approx(1.0, abs=close)
    assert max(abs(found[k] - expected[k]) for k in {*found, *expected}) < close
