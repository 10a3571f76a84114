"""Judging the kernels that are not verifiers: statistics, edges, walks, draft loops, heads."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structspec.kernels.automaton_walk import DeviceAutomaton
from structspec.kernels.checks.cases import moved, pack
from structspec.kernels.checks.launches import small_automaton
from structspec.kernels.draft_step import DraftStep
from structspec.kernels.gather_head import gather_head
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.masked_softmax_stats import masked_softmax_stats
from structspec.kernels.masked_softmax_stats.reference import reference_stats
from structspec.kernels.row_edges import with_edges

__all__ = [
    "judge_constraint",
    "judge_edges",
    "judge_head",
    "judge_loop",
    "judge_stats",
    "judge_walk",
]

CPU = torch.device("cpu")


def judge_stats(rows: LogitRows, backend: str, device: torch.device) -> list[str]:
    """Statistics of `rows` (on the host) against float64."""
    there = moved(rows, device)
    stats, expected = masked_softmax_stats(there, backend=backend), reference_stats(rows)
    complaints = []
    if stats.status.tolist() != expected.status.tolist():
        complaints.append(f"status {stats.status.tolist()}, not {expected.status.tolist()}")
    fine = expected.status == 0
    laws = stats.probabilities(there).cpu().double()[fine]
    error = float((laws - expected.probabilities(rows)[fine]).abs().max())
    if not error <= 5e-6:
        complaints.append(f"laws differ by {error}")
    return complaints


def judge_edges(backend: str, device: torch.device) -> list[str]:
    """Cut laws of random rows with ties against a sort in float64."""
    x = (torch.randn(4, 700, generator=torch.Generator().manual_seed(2)) * 2).to(torch.bfloat16)
    legal = torch.rand(4, 700, generator=torch.Generator().manual_seed(3)) < 0.4
    legal[0] = True
    rows = LogitRows(x, pack(legal), temperature=0.7)
    complaints = []
    choices: list[dict[str, Any]] = [
        {"top_k": 7}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 50, "top_p": 0.6}, {"greedy": True},
        {"top_p": 0.5, "draft": True},
    ]  # fmt: skip
    for options in choices:
        there = with_edges(moved(rows, device), backend=backend, **options)
        here = with_edges(rows, backend="reference", **options)
        got = masked_softmax_stats(there, backend=backend).probabilities(there).cpu().double()
        expected = masked_softmax_stats(here, backend="reference").probabilities(here)
        error = float((got - expected).abs().max())
        if not error <= 5e-6:
            complaints.append(f"{options}: laws differ by {error}")
    return complaints


def judge_walk(backend: str, device: torch.device) -> list[str]:
    """Masks and next states of a small automaton against the host's walk."""
    here, there = small_automaton(200), small_automaton(200, device)
    return _compare(here, there, backend, list(range(6)))


def _compare(
    here: DeviceAutomaton, there: DeviceAutomaton, backend: str, numbers: list[int]
) -> list[str]:
    complaints = []
    states = torch.tensor(numbers, dtype=torch.int32)
    budget = torch.arange(len(numbers), dtype=torch.int32)
    for left in (None, budget):
        expected = here.masks(states, left, backend="torch")
        moved_left = None if left is None else left.to(there.device)
        got = there.masks(states.to(there.device), moved_left, backend=backend).cpu()
        if not torch.equal(got, expected):
            wrong = int((got != expected).any(1).nonzero()[0])
            complaints.append(
                f"the mask of state {numbers[wrong]} differs, left={left is not None}"
            )
    rng = random.Random(1)
    some = torch.tensor([rng.choice(numbers) for _ in range(100)], dtype=torch.int32)
    tokens = torch.tensor([rng.randrange(-1, here.vocab) for _ in range(100)], dtype=torch.int32)
    expected = here.advance(some, tokens, backend="torch")
    got = there.advance(some.to(there.device), tokens.to(there.device), backend=backend).cpu()
    if not torch.equal(got, expected):
        complaints.append("next states differ")
    return complaints


def judge_constraint(backend: str, device: torch.device) -> list[str]:
    """A constraint's automaton: its masks bit for bit; raises ImportError without numba."""
    import structspec
    from structspec.kernels.automaton_walk.determinise import ConstraintWalk

    texts: list[bytes | None] = [bytes([b]) for b in range(256)]
    texts += [b'{"', b'":', b'", "', b"12", b"true", b"hello world", "日本".encode(), None]
    vocab = structspec.Vocabulary(texts, eos_ids=[len(texts) - 1])
    grammar = structspec.compile('\\{"a": ("[^"\\\\]{0,3}"|[0-9]+)\\}', syntax="regex")
    constraint = grammar.bind(vocab)
    walk = ConstraintWalk.build(constraint, device=device)
    states = list(range(2, walk.automaton.next.shape[0]))[:: 6 if device.type == "cpu" else 1]
    numbers = torch.tensor(states, dtype=torch.int32, device=device)
    got = walk.automaton.masks(numbers, backend=backend).cpu().numpy().view(np.uint32)
    wrong = [
        s for row, s in zip(got, states, strict=True)
        if not np.array_equal(row, constraint.mask(walk.host_state(s)))
    ]  # fmt: skip
    return [f"masks of states {wrong[:8]} differ from the constraint's"] if wrong else []


def judge_loop(backend: str, device: torch.device) -> list[str]:
    """Three places of a draft loop against the host's; on a device captured in a graph as well."""
    logits = torch.randn(3, 4, 200, generator=torch.Generator().manual_seed(0))

    def run(step: DraftStep, inputs: Tensor, start: Tensor) -> None:
        step.begin(start)
        for place in range(3):
            step(inputs[place], place)

    def made(where: torch.device, name: str, limit: int) -> DraftStep:
        step = DraftStep(small_automaton(200, where), 4, 3, seed=5, table_limit=limit, backend=name)
        step.requests.copy_(torch.arange(4))
        return step

    start = torch.full((4,), 2, dtype=torch.int32)
    expected = made(CPU, "reference", 0)
    run(expected, logits, start)
    complaints = []
    for limit in (1 << 20, 0):
        step = made(device, backend, limit)
        inputs, begin = logits.to(device), start.to(device)
        run(step, inputs, begin)
        how = "eager"
        if device.type == "cuda":
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run(step, inputs, begin)
            step.tokens.fill_(-7)
            graph.replay()
            how = "captured"
        for name in ("tokens", "lengths", "states", "path_states", "status"):
            got, wanted = getattr(step, name).cpu(), getattr(expected, name)
            if not torch.equal(got, wanted):
                complaints.append(f"{how}, table={limit > 0}: {name} {got.tolist()}, the host "
                                  f"{wanted.tolist()}")  # fmt: skip
    return complaints


def judge_head(backend: str, device: torch.device) -> list[str]:
    """A projection of few, no and all rows against the whole product."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 320, generator=generator).to(torch.bfloat16)
    weight = torch.randn(100, 320, generator=generator).to(torch.bfloat16)
    legal = torch.zeros(3, 100, dtype=torch.bool)
    legal[0, [3, 40, 99]], legal[2] = True, True
    out = gather_head(hidden.to(device), weight.to(device), pack(legal).to(device), backend=backend)
    expected = (hidden.double() @ weight.double().T).masked_fill(~legal, -torch.inf)
    same = torch.isclose(out.cpu().double(), expected, atol=1e-3, rtol=1e-4)
    return [] if bool(same.all()) else ["entries differ from the whole product"]
