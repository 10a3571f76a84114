"""One call of every kernel at a size, for counting, compiling and warming up.

>>> sorted(calls(vocab=64, backend="torch"))[:3]
['advance', 'block_verify', 'draft_step']
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from structspec.kernels.automaton_walk import DeviceAutomaton
from structspec.kernels.block_verify import block_verify
from structspec.kernels.checks.cases import moved, verify_case
from structspec.kernels.draft_step import DraftStep
from structspec.kernels.gather_head import gather_head
from structspec.kernels.layered_verify import layered_verify
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.masked_softmax_stats import masked_softmax_stats
from structspec.kernels.philox import Noise
from structspec.kernels.row_edges import row_edges

__all__ = ["calls", "small_automaton"]


def small_automaton(vocab: int, device: torch.device | str = "cpu") -> DeviceAutomaton:
    """Digits in brackets over a made-up vocabulary; end token: the last id."""
    texts: list[bytes | None] = [bytes([b]) for b in b"[]0123456789,abc"]
    texts += [bytes(f"{i}", "ascii") for i in range(10, max(10, vocab - len(texts) + 9))]
    texts = [*texts[: vocab - 1], None]
    classes = {ord("["): 1, ord("]"): 2, ord(","): 3, **{ord(str(i)): 4 for i in range(10)}}
    table = [[1] * 5, [1] * 5, [1, 3, 1, 1, 1], [1, 1, 1, 1, 4], [1, 1, 5, 3, 4], [1] * 5]
    return DeviceAutomaton.from_table(
        table, [0, 0, 0, 0, 0, 1], [99, 99, 3, 2, 1, 0],
        [classes.get(b, 0) for b in range(256)], texts, [vocab - 1], vocab=vocab, device=device,
    )  # fmt: skip


def calls(
    vocab: int,
    dtype: torch.dtype = torch.bfloat16,
    *,
    batch: int = 2,
    drafts: int = 2,
    length: int = 2,
    device: torch.device | str = "cpu",
    backend: str = "triton",
    masked: bool = True,
    noise: bool = False,
    rounds: int = 2,
) -> dict[str, Callable[[], Any]]:
    """name → a call of that kernel with its arguments in place."""
    where = torch.device(device)
    case = verify_case("", vocab, drafts, length, batch=batch, dtype=dtype, masked=masked)
    single = verify_case("", vocab, 1, length, batch=batch, dtype=dtype, masked=masked)

    def rows(these: LogitRows) -> LogitRows:
        there = moved(these, where)
        return there if masked else LogitRows(there.logits)

    names = torch.arange(batch, dtype=torch.int32, device=where)
    source = Noise(1, names, names)
    target, draft = rows(case.target), rows(case.draft or case.target)
    target1, draft1 = rows(single.target), rows(single.draft or single.target)
    eos = torch.tensor([vocab - 1], dtype=torch.int32, device=where)
    block_u = None if noise else torch.rand(batch, length + 1, device=where)
    layer_u = None if noise else torch.rand(batch, 2, device=where)
    tokens1 = single.tokens[:, 0].contiguous().to(where)
    lengths1 = single.lengths[:, 0].contiguous().to(where)
    tokens, lengths = case.tokens.to(where), case.lengths.to(where)
    automaton = small_automaton(vocab, where)
    states = torch.full((batch,), 2, dtype=torch.int32, device=where)
    step = DraftStep(automaton, batch, length, table_limit=0, backend=backend)
    logits = torch.zeros(batch, vocab, dtype=dtype, device=where)
    hidden = torch.randn(batch, 64, device=where).to(dtype)
    weight = torch.randn(vocab, 64, device=where).to(dtype)
    masks = torch.ones(batch, -(-vocab // 32), dtype=torch.int32, device=where)
    return {
        "masked_softmax_stats": lambda: masked_softmax_stats(target, backend=backend),
        "row_edges": lambda: row_edges(target, top_k=5, top_p=0.9, min_p=0.1, backend=backend),
        "row_edges, greedy": lambda: row_edges(target, greedy=True, backend=backend),
        "block_verify": lambda: block_verify(
            target1, draft1, tokens1, lengths1, uniforms=block_u,
            noise=source if noise else None, eos_ids=eos, backend=backend,
        ),
        "layered_verify": lambda: layered_verify(
            target, draft, tokens, lengths, uniforms=layer_u, rounds=rounds,
            noise=source if noise else None, eos_ids=eos, backend=backend,
        ),
        "masks": lambda: automaton.masks(states, backend=backend),
        "advance": lambda: automaton.advance(states, tokens1[:, 0].contiguous(), backend=backend),
        "draft_step": lambda: step(logits, 0),
        "gather_head": lambda: gather_head(hidden, weight, masks, backend=backend),
    }  # fmt: skip
