"""`TargetRows`: a model, and the cached sequences that it continues together.

Owns one row per request. A `Call` appends ids to a row, the last of them possibly drafted and
possibly branching; one `forward` serves the calls of many rows at once, whatever their lengths,
and gives each the logits it asked for. After verification `keep` leaves in the cache what was
accepted.

Invariants
- a row's cached ids are exactly those given to it minus what `keep` and `crop` dropped; where a
  shortened model read the last of them, they are cropped before the model itself goes on;
- a row's logits do not depend on the other rows, nor on what the model's `prefix_cache` knew,
  beyond the rounding of a differently shaped matrix product, nor can a row that holds NaN reach
  another;
- drafted nodes see the committed text, their ancestors and themselves, at positions that count
  their depth, so a tree's logits are those of its paths.

Two homes for the cache. Models of plain full attention get `slots.SlotCache`: ragged rows in one
forward, trees by attention mask, prompts with a common beginning computed once. Others (sliding
windows, convolutions, recurrent states, whatever `reading.slots_agree` finds wrong) get one
`target.Target` per row: still many rows, one forward each, trees path by path.

Cost: one forward per `forward` for all rows behind their prompts; each prompt one of its own.

Sibling: `target.Target` is one sequence.

Example::

    rows = TargetRows(model)
    row = rows.open()
    (logits,) = rows.forward([Call(row, prompt_ids + draft, keep=len(draft) + 1)])
    rows.keep(row, drafted=len(draft), nodes=range(accepted))
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from structspec.attention import MASK_FORMS
from structspec.errors import PromptError
from structspec.forward.lean import LeanLayers
from structspec.forward.reading import cache_argument, slots_agree
from structspec.forward.slots import SlotCache, fits
from structspec.forward.target import Target
from structspec.linear import product
from structspec.models import Model
from structspec.prefix_cache import FEWEST, Prefix, Weights, common_prefix
from structspec.signatures import argument_names

__all__ = ["Call", "TargetRows"]

log = logging.getLogger("structspec")

# Longer additions than this run alone instead of padding all other rows to their length.
_TOGETHER = 64


@dataclass(frozen=True)
class Call:
    """Ids to append to a row, and for how many of the last ones logits are wanted.

    `parents`: for a draft that branches, the parent of each of the last len(parents) ids among
    themselves, -1 for the id in front of them; parents come before their children. None: a chain.
    """

    row: int
    ids: Sequence[int]
    keep: int = 1
    parents: Sequence[int] | None = None


class TargetRows:
    """See the module. `forwards` counts calls of the model; `lean`: whether a network may run
    without its modules (`lean.LeanLayers`), turned off for comparison.

    `taps`, set before the first call, are numbers of layers (0: the embedding; the last one
    includes the final norm) whose outputs `features` then keeps for every cached id.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.forwards = 0
        self.lean = True
        self.taps: tuple[int, ...] = ()
        self._features: dict[int, Tensor] = {}
        parameters = argument_names(model.model.forward)
        self._argument = cache_argument(parameters) or "past_key_values"
        self._keeps_logits = "logits_to_keep" in parameters
        slotted = fits(model.model) and slots_agree(model)
        self._cache = SlotCache(model.model.config) if slotted else None
        kind = getattr(model.model.config, "_attn_implementation", None)
        self._mask_form = MASK_FORMS.get(str(kind))
        self._ids: dict[int, list[int]] = {}
        self._targets: dict[int, Target] = {}
        self._used: set[int] = set()
        self._dropped: dict[int, int] = {}  # drafted nodes that a row never kept in its cache
        self._reused: dict[int, int] = {}
        # ids of a row that every layer has read: a shortened model fills the lower ones only
        self._whole: dict[int, int] = {}
        self._weights: Weights | None = None

    @property
    def shares_cache(self) -> bool:
        """Whether a shortened copy of the model may run on these rows (`forward(model=...)`)."""
        return self._cache is not None

    def open(self) -> int:
        """A new, empty row."""
        row = next(i for i in range(len(self._ids) + 1) if i not in self._ids)
        if not self._ids:  # rows that are open together may copy from each other
            self._weights = self.model.prefix_cache.weights()
        self._ids[row], self._whole[row] = [], 0
        if self._cache is None:
            self._targets[row] = Target(self.model)
        elif row in self._used:
            self._cache.clear(row)
        self._used.add(row)
        return row

    def close(self, row: int) -> None:
        """Give a row back. What the model read of it stays in its `prefix_cache`."""
        try:
            self._remember(row)
        except RuntimeError as error:  # no memory left for copies: an answer must not fail for them
            self.model.prefix_cache.clear()
            log.info("what was read is not kept: %s", error)
        del self._ids[row], self._whole[row]
        self._dropped.pop(row, None)
        self._targets.pop(row, None)
        self._features.pop(row, None)
        self._reused.pop(row, None)

    def _remember(self, row: int) -> None:
        prefixes, ids = self.model.prefix_cache, self._ids[row][: self._whole[row]]
        if self._cache is None or not prefixes.wants(ids, self.taps, self._weights):
            return
        features = self._features[row][: len(ids)].clone() if self.taps else None
        prefixes.keep(
            Prefix(ids, self._cache.copy_out(row, len(ids)), self.taps, features), self._weights
        )

    def length(self, row: int) -> int:
        """Cached positions of a row."""
        return len(self._ids[row])

    def ids(self, row: int) -> Sequence[int]:
        """The cached ids of a row."""
        return self._ids[row]

    def reused(self, row: int) -> int:
        """Ids at a row's beginning that another row, or an earlier text, had read already."""
        return self._reused.get(row, 0)

    def features(self, row: int) -> Tensor:
        """The tapped layers' outputs at each cached id of a row, [length, taps · width]."""
        return self._features[row]

    def fork(self, source: int, target: int) -> None:
        """Copy the cached text of `source` to `target`, where rows can be copied.

        What they share is not copied.
        """
        if self._cache is None:
            return  # the row reads the ids itself when it is asked to go on
        have, want = self._ids[target], self._ids[source]
        same = common_prefix(have, want)
        self._cache.copy_slots(source, target, same, len(want))
        self._ids[target] = list(want)
        if self._whole[target] >= same:
            self._whole[target] = max(same, self._whole[source])

    def forward(self, calls: Sequence[Call], model: Any = None) -> list[Tensor]:
        """Append ids and return for each call the logits [keep, logit_width] behind its last ids.

        `model`: a shortened transformers model over the same layers, run instead (see
        `shares_cache`). Raises `PromptError` if a row would pass the model's window.
        """
        for call in calls:
            self._check(call)
        results: dict[int, Tensor] = {}
        together: list[tuple[int, Call]] = []
        for index, call in enumerate(calls):
            if self._cache is None:
                results[index] = self._one_target(call)
                continue
            call = self._reuse(call)
            alone = len(call.ids) > _TOGETHER or self._mask_form is None
            if alone and (call.parents is None or self._mask_form is not None):
                results[index] = self._run([call], model)[0]
            elif alone:
                results[index] = self._by_paths(call)
            else:
                together.append((index, call))
        if together:
            for (index, _), rows in zip(
                together, self._run([call for _, call in together], model), strict=True
            ):
                results[index] = rows
        return [results[index] for index in range(len(calls))]

    def states(self, calls: Sequence[Call], model: Any = None) -> list[Tensor]:
        """As `forward`, for chains on slotted rows, but the last layer's states [keep, width]."""
        for call in calls:
            self._check(call)
        results: dict[int, Tensor] = {}
        together: list[tuple[int, Call]] = []
        for index, call in enumerate(calls):
            call = self._reuse(call)
            if self._mask_form is None or len(call.ids) > _TOGETHER:
                results[index] = self._run([call], model, states=True)[0]
            else:
                together.append((index, call))
        if together:
            found = self._run([call for _, call in together], model, states=True)
            results.update((index, rows) for (index, _), rows in zip(together, found, strict=True))
        return [results[index] for index in range(len(calls))]

    def keep(self, row: int, drafted: int, nodes: Sequence[int]) -> int:
        """Keep, of the last `drafted` ids, the path `nodes`; return how many of it stay cached.

        What does not stay must be given again.
        """
        nodes = list(nodes)
        if self._dropped.pop(row, 0):
            return 0
        if nodes != list(range(len(nodes))):
            assert self._cache is not None  # others drop the nodes of a tree
            ids = self._ids[row]
            start = len(ids) - drafted
            self._cache.keep(row, start, nodes)
            ids[start:] = [ids[start + node] for node in nodes]
            self._whole[row] = min(self._whole[row], len(ids))
            if row in self._features:
                kept = [*range(start), *(start + node for node in nodes)]
                self._features[row] = self._features[row][kept]
        else:
            self.crop(row, drafted - len(nodes))
        return len(nodes)

    def crop(self, row: int, count: int) -> None:
        """Forget the last `count` ids of a row."""
        ids = self._ids[row]
        if count < 0 or count > len(ids):
            raise ValueError(f"cannot crop {count} of {len(ids)} cached positions")
        if row in self._targets:
            self._targets[row].crop(count)
        if count:
            del ids[len(ids) - count :]
            self._whole[row] = min(self._whole[row], len(ids))
            if row in self._features:
                self._features[row] = self._features[row][: len(ids)]

    def _check(self, call: Call) -> None:
        if not 0 < call.keep <= len(call.ids):
            raise ValueError(
                f"keep={call.keep} must be between 1 and the {len(call.ids)} ids given"
            )
        window, total = self.model.window, len(self._ids[call.row]) + len(call.ids)
        if call.parents is not None:
            total += max(_depths(call.parents), default=0) - len(call.parents)
        if window is not None and total > window:
            raise PromptError(
                f"{total} tokens do not fit into the context window of {window} tokens of "
                f"{self.model.name}; shorten the prompt or max_tokens"
            )

    def _reuse(self, call: Call) -> Call:
        """Copy the beginning of a new row from the row or the kept text that shares most of it.

        Of other rows only what every layer has read.
        """
        if self._ids[call.row]:
            return call
        assert self._cache is not None
        beginning = call.ids[: len(call.ids) - call.keep]
        most, source = 0, -1
        for row, ids in self._ids.items():
            same = common_prefix(ids[: self._whole[row]], beginning)
            if same > most:
                most, source = same, row
        kept, count = self.model.prefix_cache.longest(beginning, self.taps)
        if kept is not None and count > most:
            most = count
            self._cache.copy_in(call.row, kept.stores, most)
            features = kept.features
        elif most >= FEWEST:
            self._cache.copy_slots(source, call.row, 0, most)
            features = self._features[source] if self.taps else None
        else:
            return call
        self._ids[call.row], self._whole[call.row] = list(call.ids[:most]), most
        self._reused[call.row] = most
        if features is not None:
            self._features[call.row] = features[:most]
        return Call(call.row, call.ids[most:], call.keep, call.parents)

    # -- one target per row ------------------------------------------------------------------

    def _one_target(self, call: Call) -> Tensor:
        if call.parents is not None and not _is_chain(call.parents):
            return self._by_paths(call)
        target = self._targets[call.row]
        before = target.forwards
        logits = target.forward(call.ids, call.keep)
        self.forwards += target.forwards - before
        self._ids[call.row].extend(call.ids)
        return logits

    def _by_paths(self, call: Call) -> Tensor:
        """A tree without a mask for it: its paths one after the other; none stays cached."""
        assert call.parents is not None
        count = len(call.parents)
        head, nodes = (
            list(call.ids[: len(call.ids) - count]),
            list(call.ids[len(call.ids) - count :]),
        )
        first = call.keep - count
        rows: dict[int, Tensor] = {}
        front = Call(call.row, head, max(first, 1))
        above = self.forward([front])[0]
        leaves = sorted(set(range(count)) - set(call.parents))
        for leaf in leaves:
            path = _path(call.parents, leaf)
            logits = self.forward([Call(call.row, [nodes[i] for i in path], len(path))])[0]
            rows.update(zip(path, logits, strict=True))
            self.crop(call.row, len(path))
        self._dropped[call.row] = count
        return torch.stack([*above[len(above) - first :], *(rows[i] for i in range(count))])

    # -- slotted rows ------------------------------------------------------------------------

    @torch.inference_mode()
    def _run(self, calls: Sequence[Call], model: Any, states: bool = False) -> list[Tensor]:
        assert self._cache is not None
        network = self.model.model if model is None else model
        calls = list(calls)
        order = sorted(range(len(calls)), key=lambda i: calls[i].row)
        ordered = [calls[i] for i in order]
        count = max(len(call.ids) for call in ordered)
        starts = [len(self._ids[call.row]) for call in ordered]
        device = self.model.device
        self._cache.begin([call.row for call in ordered], starts, count, device)
        ids = torch.tensor([[*c.ids, *([0] * (count - len(c.ids)))] for c in ordered])
        wanted = {at for c in ordered for at in range(len(c.ids) - c.keep, len(c.ids))}
        columns = sorted(wanted) if states or self._keeps_logits else list(range(count))
        branching = any(c.parents is not None and not _is_chain(c.parents) for c in ordered)
        layout = self._layout(ordered, starts, count) if len(ordered) > 1 or branching else None
        taps = self.taps if model is None else ()
        known = self.lean and self._mask_form is not None
        lean = LeanLayers.of(network) if known else None
        if lean is not None:
            sizes, keep = [len(c.ids) for c in ordered], [c.keep for c in ordered]
            if layout is not None and len(ordered) > 1:
                found, tapped = lean.run_ragged(
                    ids, layout[0], self._cache, layout[1], sizes, keep, taps
                )
            else:
                chain = torch.arange(starts[0], starts[0] + count)[None]
                positions, visible = (chain, None) if layout is None else layout
                found, tapped = lean.run(ids, positions, self._cache, visible, sorted(wanted), taps)
                found, tapped = found[0], [layer[0] for layer in tapped]
            if not states:
                found = product(network.get_output_embeddings(), found)
            parts = list(found.split(keep))
            learnt = [layer.split(sizes) for layer in tapped]
        else:
            output, columns = self._run_whole(
                network, ids, starts[0], columns, layout, states, bool(taps)
            )
            found = output.last_hidden_state if states else output.logits
            # the wanted columns of one call are consecutive, and so are their places
            firsts = [columns.index(len(c.ids) - c.keep) for c in ordered]
            parts = [
                found[at, first : first + c.keep]
                for at, (first, c) in enumerate(zip(firsts, ordered, strict=True))
            ]
            learnt = [
                [output.hidden_states[tap][at, : len(c.ids)] for at, c in enumerate(ordered)]
                for tap in taps
            ]
        self.forwards += model is None
        results: list[Tensor] = [parts[0]] * len(calls)
        for at, (index, call) in enumerate(zip(order, ordered, strict=True)):
            results[index] = parts[at]
            self._ids[call.row].extend(call.ids)
            if model is None:
                self._whole[call.row] = len(self._ids[call.row])
            if taps:
                new = torch.cat([layer[at] for layer in learnt], dim=-1)
                old = self._features.get(call.row)
                self._features[call.row] = new if old is None else torch.cat([old, new])
        return results

    def _run_whole(
        self,
        network: Any,
        ids: Tensor,
        start: int,
        columns: list[int],
        layout: tuple[Tensor, Tensor] | None,
        states: bool,
        tapped: bool,
    ) -> tuple[Any, list[int]]:
        """transformers' own forward; which columns its logits (or states) are of."""
        device, count = self.model.device, ids.shape[1]
        options: dict[str, Any] = {self._argument: self._cache, "use_cache": True}
        if layout is None:
            options["position_ids"] = torch.arange(start, start + count, device=device)[None]
        else:
            options["position_ids"] = layout[0].to(device)
            options["attention_mask"] = self._mask(layout[1].to(device))
        if states:
            columns = list(range(count))
        elif self._keeps_logits:
            tail = columns == list(range(count - len(columns), count))
            options["logits_to_keep"] = (
                len(columns) if tail else torch.tensor(columns, device=device)
            )
        if tapped:
            options["output_hidden_states"] = True
        return (network.base_model if states else network)(
            input_ids=ids.to(device), **options
        ), columns

    def _layout(
        self, calls: Sequence[Call], starts: Sequence[int], count: int
    ) -> tuple[Tensor, Tensor]:
        """Positions [B, count], and which slots each column sees, bool [B, count, slots]."""
        slots = max(starts) + count
        columns = torch.arange(count)
        begin = torch.tensor(list(starts))[:, None]
        positions = begin + columns
        visible = torch.arange(slots) <= positions[:, :, None]
        for at, call in enumerate(calls):
            size = len(call.ids)
            if call.parents is not None and not _is_chain(call.parents):
                first = size - len(call.parents)
                base = starts[at] + first
                for node, depth in enumerate(_depths(call.parents)):
                    row = visible[at, first + node]
                    row[base:] = False
                    row[[base + i for i in _path(call.parents, node)]] = True
                    positions[at, first + node] = base + depth - 1
            # padding: any position that exists will do, nothing reads these columns
            positions[at, size:] = positions[at, size - 1]
        return positions, visible

    def _mask(self, visible: Tensor) -> Tensor:
        if self._mask_form == "visible":
            return visible[:, None]
        dtype = self.model.dtype
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]


def _is_chain(parents: Sequence[int]) -> bool:
    return all(parent == node - 1 for node, parent in enumerate(parents))


def _depths(parents: Sequence[int]) -> list[int]:
    """Depth of each node, 1 for those behind the committed text."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths


def _path(parents: Sequence[int], node: int) -> list[int]:
    """The nodes from the first to `node`."""
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path[::-1]
