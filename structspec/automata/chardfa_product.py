"""Products of two deterministic automata over characters: and, or, without.

`product` pairs the states that a text reaches in both. A pair is left out as soon as no common text
can follow: where both sides are needed, a side may say how many characters it needs at least and
the other how many it has room for. A bound on the length is a chain of states that has room for
fewer and fewer characters, so it is such a product too.

Cost: (pairs of states) x (classes of both), in compiled code. Sibling: `chardfa_minimise`.
Source: M. O. Rabin and D. Scott, "Finite automata and their decision problems", 1959.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from structspec.automata.chardfa_alphabet import Meter, Ranges, joint
from structspec.automata.chardfa_minimise import MOST_EDGES, Table
from structspec.errors import BudgetExceeded
from structspec.machine_code.kernel import kernel

__all__ = ["ENDLESS", "Needs", "chain", "product"]

#: Room for any number of characters.
ENDLESS = np.iinfo(np.int32).max


class Needs(IntEnum):
    """Which sides a text must be in: one of them, the left without the right, or both."""

    EITHER = 0
    LEFT_ONLY = 1
    BOTH = 2


def product(
    left: Table,
    right: Table,
    needs: Needs,
    meter: Meter,
    *,
    least: NDArray[np.int32] | None = None,
    room: NDArray[np.int32] | None = None,
) -> Table:
    """The pairs of states that can be reached.

    least, room: int32 per state of `left` and `right`, with `Needs.BOTH` only: how many characters
    must follow and how many may. Raises `BudgetExceeded` beyond the states of the meter.
    """
    first, second, classes = [], [], []
    for a, b, ranges in joint(left.classes, right.classes):
        if not (needs != Needs.EITHER and a < 0) and not (needs == Needs.BOTH and b < 0):
            first.append(a)
            second.append(b)
            classes.append(ranges)
    most = min(meter.states, (len(left) + 1) * (len(right) + 1))
    size = 1 << (2 * most).bit_length()
    n, m, cuts, labels, targets, accepts = _pairs(
        left.cuts, left.labels, left.targets, left.accepts, len(left.classes),
        right.cuts, right.labels, right.targets, right.accepts, len(right.classes),
        np.array(first, np.int32), np.array(second, np.int32), int(needs),
        np.zeros(len(left), np.int32) if least is None else least,
        np.zeros(len(right), np.int32) if room is None else room,
        most, min(most * len(first), MOST_EDGES), size,
    )  # fmt: skip
    if n > most:
        meter.check(n)
    if m < 0:
        raise BudgetExceeded("edges of an automaton", MOST_EDGES)
    return Table(tuple(classes), cuts[: n + 1], labels[:m], targets[:m], accepts[:n])


def chain(ranges: Ranges, low: int, high: int | None) -> tuple[Table, NDArray[np.int32]]:
    """All strings over `ranges` of `low` to `high` characters (None: any number), and the room that
    each state has."""
    last = low if high is None else high
    read = np.arange(last + 1, dtype=np.int32)
    accepts = (read >= low).astype(np.uint8)
    targets = read[1:] if high is not None else np.append(read[1:], read[-1:])
    cuts = np.minimum(np.arange(last + 2, dtype=np.int32), len(targets)).astype(np.int32)
    labels = np.zeros(len(targets), np.int32)
    room = np.full(last + 1, ENDLESS, np.int32) if high is None else (last - read)
    return Table((ranges,), cuts, labels, targets.copy(), accepts), room


@kernel
def _pairs(  # type: ignore[no-untyped-def]
    cuts_a, labels_a, targets_a, accepts_a, n_labels_a, cuts_b, labels_b, targets_b, accepts_b,
    n_labels_b, first, second, needs, least, room, most, most_edges, size,
):  # fmt: skip
    """States and edges (most + 1: too many states; -1: too many edges), and arrays of the product.

    first, second: int32[P], the labels of each side that a label of the product is made of (-1:
    none); needs: see `Needs`; least, room: see `product`; size: of the hash table, a power of two
    above twice `most`.
    """
    n_labels = len(first)
    a_of = np.empty(most, np.int32)
    b_of = np.empty(most, np.int32)
    accepts = np.empty(most, np.uint8)
    cuts = np.zeros(most + 1, np.int32)
    labels = np.empty(most_edges, np.int32)
    targets = np.empty(most_edges, np.int32)
    table = np.full(size, -1, np.int32)
    # Where each label leads on each side, -1: nowhere; place 0 stands for the label -1.
    to_a = np.full(n_labels_a + 1, -1, np.int32)
    to_b = np.full(n_labels_b + 1, -1, np.int32)
    a_of[0] = 0
    b_of[0] = 0
    h = (np.int64(1) * 0x9E3779B1 + 1) * 0x9E3779B1
    table[(h ^ (h >> 17)) & (size - 1)] = 0
    n = 1
    m = 0
    s = 0
    while s < n:
        a = a_of[s]
        b = b_of[s]
        in_a = a >= 0 and accepts_a[a] != 0
        in_b = b >= 0 and accepts_b[b] != 0
        if needs == 2:
            accepts[s] = in_a and in_b
        elif needs == 1:
            accepts[s] = in_a and not in_b
        else:
            accepts[s] = in_a or in_b
        if a >= 0:
            for e in range(cuts_a[a], cuts_a[a + 1]):
                to_a[labels_a[e] + 1] = targets_a[e]
        if b >= 0:
            for e in range(cuts_b[b], cuts_b[b + 1]):
                to_b[labels_b[e] + 1] = targets_b[e]
        for p in range(n_labels):
            there_a = to_a[first[p] + 1]
            there_b = to_b[second[p] + 1]
            if there_a < 0 and (needs != 0 or there_b < 0):
                continue
            if needs == 2 and (there_b < 0 or least[there_a] > room[there_b]):
                continue
            h = (np.int64(there_a + 1) * 0x9E3779B1 + there_b + 1) * 0x9E3779B1
            i = (h ^ (h >> 17)) & (size - 1)
            while table[i] >= 0 and (a_of[table[i]] != there_a or b_of[table[i]] != there_b):
                i = (i + 1) & (size - 1)
            if table[i] < 0:
                if n == most:
                    return most + 1, 0, cuts, labels, targets, accepts
                a_of[n] = there_a
                b_of[n] = there_b
                table[i] = n
                n += 1
            if m == most_edges:
                return n, -1, cuts, labels, targets, accepts
            labels[m] = p
            targets[m] = table[i]
            m += 1
        if a >= 0:
            for e in range(cuts_a[a], cuts_a[a + 1]):
                to_a[labels_a[e] + 1] = -1
        if b >= 0:
            for e in range(cuts_b[b], cuts_b[b + 1]):
                to_b[labels_b[e] + 1] = -1
        s += 1
        cuts[s] = m
    return n, m, cuts, labels, targets, accepts
