"""The grammar IR: what every front end lowers to and every automaton is built from.

The IR knows no source language. A `GrammarIR` is a set of named rules over frozen, hashable
nodes; its language is a set of *byte strings*, in which special tokens of a vocabulary may stand
as symbols of their own (`Special`). Sharing nodes is encouraged: builders memoise by
identity and equality.

Invariants
- `Choice(())` is the empty language, `Sequence(())` the empty string (`NOTHING`, `EPSILON`).
- `Chars` are Unicode scalar values (no surrogates); they are encoded as UTF-8.
- Every `Rule` names a key of `GrammarIR.rules`.

Example::

    >>> from structspec import ir
    >>> digit = ir.Chars(((48, 57),))
    >>> g = ir.GrammarIR(rules={"root": ir.Sequence((digit, ir.Rule("tail"))),
    ...                         "tail": ir.Repeat(digit, 0, None)}, start="root")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from structspec.records import Hashed, record

__all__ = [
    "EPSILON",
    "NOTHING",
    "Automaton",
    "Bytes",
    "Chars",
    "Choice",
    "FlatEdges",
    "GrammarIR",
    "Member",
    "Members",
    "Node",
    "Repeat",
    "Rule",
    "Sequence",
    "Special",
    "Variant",
    "choice",
    "flat_edges",
    "sequence",
]


@record
class Bytes:
    """Exactly these bytes."""

    value: bytes


@record
class Chars:
    """One character out of inclusive, sorted, disjoint ranges of code points, as UTF-8."""

    ranges: tuple[tuple[int, int], ...]


@record
class Special:
    """One special token of the vocabulary, by its name (such as "<|im_end|>").

    A symbol of its own: it never equals text that looks the same, and no text matches it.
    """

    name: str


@record
class Sequence(Hashed):
    """All items one after another."""

    items: tuple[Node, ...]


@record
class Choice(Hashed):
    """Any one of the items; empty: nothing matches."""

    items: tuple[Node, ...]


@record
class Repeat(Hashed):
    """`minimum` to `maximum` copies (None: no upper limit). Large counts cost no states."""

    item: Node
    minimum: int
    maximum: int | None


@record
class Rule:
    """A reference to a rule of the grammar; recursion is allowed.

    called: the rule keeps states of its own, however small it is, instead of being copied to where
    it stands. Text that many rules may be in at once, as ignored text, is then one state.
    """

    name: str
    called: bool = False


@record
class Variant(Hashed):
    """The same language as `item`, marked as another spelling of what a sibling writes.

    Masks treat it as its item; `Constraint.suggest` never proposes it.
    """

    item: Node


@dataclass(frozen=True, eq=False)
class FlatEdges:
    """The edges of an automaton of very many states, by state like a tuple of tuples.

    Edge e of state s, `cuts[s]` ≤ e < `cuts[s + 1]`, has the label `labels[label[e]]` and leads to
    `target[e]`; the arrays are int32. Two of them are equal only if they are the same object.
    """

    labels: tuple[Node, ...]
    cuts: NDArray[np.int32]
    label: NDArray[np.int32]
    target: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def __getitem__(self, state: int) -> tuple[tuple[Node, int], ...]:
        if not 0 <= state < len(self):
            raise IndexError(state)
        first, end = int(self.cuts[state]), int(self.cuts[state + 1])
        labels = [self.labels[k] for k in self.label[first:end].tolist()]
        return tuple(zip(labels, self.target[first:end].tolist(), strict=True))

    def __iter__(self) -> Iterator[tuple[tuple[Node, int], ...]]:
        return (self[state] for state in range(len(self)))


def flat_edges(rows: Iterable[Iterable[tuple[Node, int]]]) -> FlatEdges:
    """Rows of (label, target) pairs as `FlatEdges`; a label that is one object is kept once."""
    numbers: dict[int, int] = {}
    labels: list[Node] = []
    cuts, label, target = [0], [], []
    for row in rows:
        for node, state in row:
            found = numbers.setdefault(id(node), len(labels))
            if found == len(labels):
                labels.append(node)
            label.append(found)
            target.append(state)
        cuts.append(len(label))
    arrays = (np.array(numbers, np.int32) for numbers in (cuts, label, target))
    return FlatEdges(tuple(labels), *arrays)


@record
class Automaton(Hashed):
    """A finite automaton whose edges are nodes: the texts along all paths from state 0.

    `edges[s]` holds (label, target) pairs; labels must not match the empty string. Products and
    complements of terminals come out in this form, which no sequence of choices could hold.

    longest: at most so many edges along a path (None: any number). Labels are then single
    characters as they may be spelled: they hold no members and no such automata themselves, and the
    automaton is no part of a key. The bound costs no states.
    """

    edges: tuple[tuple[tuple[Node, int], ...], ...] | FlatEdges
    accepting: frozenset[int]
    longest: int | None = None


@record
class Member:
    """One kind of member of a `Members` list.

    A key text belongs to the *first* member whose `key` language contains it. `value` follows
    the key directly (colon and blanks are part of it) and may be empty. `repeatable` members may
    occur any number of times, must come last and cannot be required; others occur at most once.
    Keys need not be prefix-free.
    """

    key: Node
    value: Node
    required: bool = False
    repeatable: bool = False


@record
class Members(Hashed):
    """A list of members, `separator` between two of them; the list may be empty if allowed.

    `order="declared"`: members appear in the order given, optional ones may be missing, and
    repeatable ones mix freely at the end. `order="any"`: all in any order. Both cost states linear
    in the size of the keys and values: which members are done is a register of the automaton, not
    a state. `minimum` and `maximum` bound how many members are written.

    A list of distinct items is a `Members` in any order whose keys are the items' texts.
    """

    members: tuple[Member, ...]
    separator: Node
    order: Literal["declared", "any"] = "declared"
    minimum: int = 0
    maximum: int | None = None


Node: TypeAlias = (
    Bytes | Chars | Special | Sequence | Choice | Repeat | Rule | Variant | Automaton | Members
)

EPSILON = Sequence(())
NOTHING = Choice(())


@dataclass(frozen=True)
class GrammarIR:
    """Named rules and the start rule. `rules` must not be changed afterwards."""

    rules: Mapping[str, Node]
    start: str


def sequence(items: Iterable[Node]) -> Node:
    """A `Sequence` without nesting, empty strings and needless wrapping."""
    # PERF: a tenth of what lowering a schema takes; types have no subclasses.
    flat: list[Node] = []
    text: Bytes | None = None  # the last part, if it is literal
    for item in items:
        for part in item.items if type(item) is Sequence else (item,):
            if type(part) is Bytes:
                if text is not None:
                    text = flat[-1] = Bytes(text.value + part.value)
                elif part.value:
                    flat.append(part)
                    text = part
            elif type(part) is Choice and not part.items:
                return NOTHING
            else:
                flat.append(part)
                text = None
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def choice(items: Iterable[Node]) -> Node:
    """A `Choice` without nesting, duplicates and needless wrapping (order kept)."""
    flat: list[Node] = []
    for item in items:
        if type(item) is Choice:
            flat.extend(item.items)
        else:
            flat.append(item)
    # Nodes may be large: two are compared, more are hashed.
    if len(flat) == 2:
        return flat[0] if flat[0] == flat[1] else Choice(tuple(flat))
    if len(flat) > 2:
        flat = list(dict.fromkeys(flat))
    return flat[0] if len(flat) == 1 else Choice(tuple(flat))
