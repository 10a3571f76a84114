"""`Reader`: one forward of a draft model for the rows of many requests.

Owns what `model.ModelDrafter` asks for (`Wanted`: a row, the text that it is to hold, and which
logits are wanted behind it) and how asks of several requests run: what the rows lack goes into one
forward, whole rows of logits into one product; where a state allows few tokens only their rows of
the output matrix are computed.

Invariants
- a row ends as it would alone: it holds the ids that were asked for;
- requests of one loop that draft with one model have their rows in one cache (`shared_rows`).

Cost: one forward per call, one product over the whole output matrix if anything asks for it.

Siblings: `together` gathers the asks; `output_head.Head` computes few logits; `head_steps` is the
same for draft heads.

Example::

    reader = Reader(rows, network=None, head=Head.of(model.model))
    ((logits, ids),), = reader.run([[Wanted(row, text_ids, mask)]])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from structspec.drafting.draft import Request
from structspec.drafting.output_head import Head
from structspec.forward.rows import Call, TargetRows
from structspec.models import Model
from structspec.packed import Mask, unpack
from structspec.prefix_cache import common_prefix

__all__ = ["Reader", "Wanted", "shared_rows"]

Logits: TypeAlias = tuple[Tensor, Tensor | None]
"""Logits [1, n] and the ids [n] that they belong to, None: all."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """Bring `row` to the text `ids`; `mask`, packed: only logits of its tokens are wanted."""

    row: int
    ids: Sequence[int]
    mask: Mask | None = None


@dataclass(frozen=True)
class Reader:
    """Reads on `rows` with `network` (None: their own model); `head` None: logits come whole."""

    rows: TargetRows
    network: Any
    head: Head | None

    def run(self, asks: Sequence[Sequence[Wanted]]) -> list[list[Logits]]:
        """The logits behind each text of each ask."""
        wanted = [each for ask in asks for each in ask]
        calls = [self._call(each) for each in wanted]
        if self.head is None:
            found = self.rows.forward(calls, self.network)
            logits: list[Logits] = [(rows[-1:], None) for rows in found]
        else:
            states = [rows[-1:] for rows in self.rows.states(calls, self.network)]
            logits = self._logits(self.head, states, wanted)
        left = iter(logits)
        return [[next(left) for _ in ask] for ask in asks]

    def _call(self, wanted: Wanted) -> Call:
        known = self.rows.ids(wanted.row)
        same = min(common_prefix(known, wanted.ids), len(wanted.ids) - 1)
        self.rows.crop(wanted.row, len(known) - same)
        return Call(wanted.row, wanted.ids[same:])

    @staticmethod
    def _logits(head: Head, states: list[Tensor], wanted: Sequence[Wanted]) -> list[Logits]:
        whole = [i for i, each in enumerate(wanted) if each.mask is None]
        rows: dict[int, Tensor] = {}
        if whole:
            together = head.logits(torch.cat([states[i] for i in whole]))
            rows = {i: together[at : at + 1] for at, i in enumerate(whole)}
        found: list[Logits] = []
        for i, (state, each) in enumerate(zip(states, wanted, strict=True)):
            if each.mask is None:
                found.append((rows[i], None))
                continue
            bits = unpack(each.mask)
            ids = torch.from_numpy(np.flatnonzero(bits)).to(state.device)
            found.append((head.logits(state, ids, each.mask), ids))
        return found


def shared_rows(request: Request, model: Model) -> TargetRows:
    """The cache rows of a draft model, one for all requests of a loop."""
    key = ("rows", id(model.model))  # the rows keep the network, and so its number, alive
    if key not in request.shared:
        request.shared[key] = TargetRows(model)
    rows: TargetRows = request.shared[key]
    return rows
