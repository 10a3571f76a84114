"""Subtrees of a vocabulary that a place allows as a whole (numba kernels).

Those of plain tokens whose characters all lead from a place to its target, as often as the tallest
of them needs (`classify`). Sibling: `walk`, which asks.
"""

from __future__ import annotations

from structspec.automata.memory import Slot, at_i32, at_i64, base, i32, slot, wide
from structspec.automata.pushdown import DEAD, UNKNOWN
from structspec.machine_code.kernel import kernel
from structspec.masks.classify import chain, classify
from structspec.masks.places import cost_of
from structspec.masks.tables import NODES, Known
from structspec.vocab.blocks import CONTENT, HEIGHT, RECORD
from structspec.vocab.characters import MID

_CONTENT, _TARGET, _ENDLESS = slot(Known.CONTENT), slot(Known.TARGET), slot(Known.ENDLESS)
_DEAREST, _DEPENDS = slot(Known.DEAREST), slot(Known.DEPENDS)
_CONFIG_COST = slot(Slot.CONFIG_COST)

#: The subtree must be walked.
NOT_COVERED = -1000


@kernel(inline="always")
def maybe(nodes, allowed, targets, config, node, inside):  # type: ignore[no-untyped-def]
    """Whether the characters below a node fit, as far as is known of the configuration.

    inside: 1 if the node may be the first byte of a character that begins in `config`.
    """
    target = at_i32(targets, config)
    if target == DEAD:
        return False
    # Two words of 64 bits each.
    below = nodes + 4 * (RECORD * node + CONTENT)
    first = at_i64(below, wide(0))
    if target == UNKNOWN:
        return inside == 1 or (first >> MID) & 1 == 0
    first &= ~at_i64(allowed, 2 * config)
    if inside:
        first &= ~(1 << MID)
    return first == 0 and at_i64(below, wide(1)) & ~at_i64(allowed, 2 * config + 1) == 0


@kernel
def covers(header, known, words, trie, config, frames, floor, node, limit):  # type: ignore[no-untyped-def]
    """Whether all tokens below a node are allowed: the largest cost they lead to.

    `NOT_COVERED` if that is not certain, or another negative code.
    """
    target = classify(header, known, config)
    if target < 0:
        return target
    nodes, allowed = base(words, trie + NODES), base(known, _CONTENT)
    # The caller has looked at MID.
    if not maybe(nodes, allowed, base(known, _TARGET), config, node, wide(1)):
        return wide(NOT_COVERED)
    need = at_i32(nodes, RECORD * node + HEIGHT)
    # The first step alone may cost too much: then the others need not be found out.
    known_cost = need > 0 and not i32(known, _DEPENDS)[target]
    if known_cost and i32(header, _CONFIG_COST)[target] + floor > limit:
        return wide(NOT_COVERED)
    length = chain(header, known, config, need)
    if length < 0:
        return length
    if length < need:
        return wide(NOT_COVERED)
    dearest = i32(known, _DEAREST)[config] + floor
    endless = wide(i32(known, _ENDLESS)[config])
    if endless:
        cost = cost_of(header, known, endless, frames, floor)
        if cost < 0:
            return wide(NOT_COVERED)
        dearest = max(dearest, cost)
    return dearest if dearest <= limit else wide(NOT_COVERED)
