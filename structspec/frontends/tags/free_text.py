"""Free text as an automaton: any text up to the first occurrence of one of some patterns.

The states are the nodes of an Aho–Corasick trie over characters: a state is the longest end of
the text so far that begins some pattern. An edge that completes a pattern *fires*: what stands
behind the pattern is written there and then. So the pattern that fires is the one whose last
character comes first, and reading the text once from the left finds the same places.

Invariants
- no pattern occurs inside another one except as its beginning, so at most one fires at a time;
- where a pattern begins another one, the shorter one fires, and the longer one never does;
- special tokens are no text: they fire wherever they stand, and nothing else matches them.

Cost: one state per character of the patterns (twice that where a first region must come), at most
one edge per distinct character in each. Source: A. V. Aho, M. J. Corasick, "Efficient string
matching", 1975.

Example::

    >>> automaton = free_text([Pattern("<a", ir.EPSILON, "end")], accepts="never")
    >>> len(automaton.edges), sorted(automaton.accepting)
    (4, [3])
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from structspec import ir
from structspec.errors import SchemaError

__all__ = ["ANY_CHARACTER", "Marker", "Outcome", "Pattern", "free_text"]

Outcome: TypeAlias = Literal["resume", "end", "never"]
"""What comes behind a pattern and what it opens: free text again, nothing, or it is forbidden."""

#: Every Unicode scalar value.
ANY_CHARACTER = ir.Chars(((0, 0xD7FF), (0xE000, 0x10FFFF)))


@dataclass(frozen=True)
class Pattern:
    """A text to watch for, and what follows it; `early` says whether it may be the first one."""

    text: str
    then: ir.Node
    outcome: Outcome
    early: bool = True


@dataclass(frozen=True)
class Marker:
    """As `Pattern`, for a special token; `node` holds the token and all that follows it."""

    node: ir.Node
    outcome: Outcome
    early: bool = True


@dataclass
class _Trie:
    """Aho–Corasick: `goto[s]` by character, `fires[s]` the pattern that ends in s."""

    goto: list[dict[str, int]] = field(default_factory=lambda: [{}])
    fires: list[Pattern | None] = field(default_factory=lambda: [None])
    back: list[int] = field(default_factory=lambda: [0])


def free_text(
    patterns: Sequence[Pattern],
    markers: Sequence[Marker] = (),
    *,
    accepts: Literal["always", "after one", "never"] = "always",
) -> ir.Automaton:
    """The texts in which every pattern is followed by what it demands.

    accepts: whether the text may end where no pattern was left open: always, after one that
    resumed, or never (then only an "end" outcome ends it). Patterns that are not `early` are
    forbidden before the first one that resumes.

    Raises SchemaError for an empty pattern and for patterns that could never fire.
    """
    _check(patterns)
    trie = _build(patterns)
    size = len(trie.goto)
    late = any(not p.early for p in patterns) or any(not m.early for m in markers)
    phased = accepts == "after one" or late
    phases = 2 if phased else 1
    done = phases * size
    edges: list[tuple[tuple[ir.Node, int], ...]] = []
    for phase in range(phases):
        early = phased and phase == 0
        resumed = size if phased else 0
        for state in range(size):
            edges.append(_edges(trie, state, phase * size, resumed, done, early))
            for marker in markers:
                if marker.outcome != "never" and (marker.early or not early):
                    target = done if marker.outcome == "end" else resumed
                    edges[-1] += ((marker.node, target),)
    edges.append(())
    first = {"always": 0, "after one": size if phased else 0, "never": done}[accepts]
    return ir.Automaton(tuple(edges), frozenset({*range(first, done), done}))


def _check(patterns: Sequence[Pattern]) -> None:
    for pattern in patterns:
        if not pattern.text:
            raise SchemaError("a trigger, an end or an excluded text is empty")
        if any("\ud800" <= character <= "\udfff" for character in pattern.text):
            raise SchemaError(f"{pattern.text!r} holds half of a surrogate pair, which no text has")
    by_text: dict[str, Pattern] = {}
    for pattern in patterns:
        other = by_text.setdefault(pattern.text, pattern)
        if other is not pattern and other.outcome != pattern.outcome:
            raise SchemaError(
                f"{pattern.text!r} is to do two things: {_role(other)}, and to be "
                f"{_role(pattern)}; tell them apart"
            )
    for long in by_text.values():
        for short in by_text.values():
            if short is long or long.outcome == "never":
                continue
            at = long.text.find(short.text)
            if at > 0 or (at == 0 and not short.outcome == long.outcome == "resume"):
                raise SchemaError(
                    f"{long.text!r} ({_role(long)}) contains {short.text!r} ({_role(short)}), "
                    "which takes effect before it is complete; choose texts that do not contain "
                    "each other"
                )


def _role(pattern: Pattern) -> str:
    return {"resume": "a trigger", "end": "an end", "never": "an excluded text"}[pattern.outcome]


def _build(patterns: Sequence[Pattern]) -> _Trie:
    trie = _Trie()
    for pattern in patterns:
        state = 0
        for character in pattern.text:
            following = trie.goto[state].get(character)
            if following is None:
                following = len(trie.goto)
                trie.goto[state][character] = following
                trie.goto.append({})
                trie.fires.append(None)
                trie.back.append(0)
            state = following
        trie.fires[state] = pattern
    queue = deque(trie.goto[0].values())
    while queue:
        state = queue.popleft()
        behind = trie.back[state]
        trie.fires[state] = trie.fires[state] or trie.fires[behind]
        for character, following in trie.goto[state].items():
            trie.back[following] = _step(trie, behind, character)
            queue.append(following)
    return trie


def _step(trie: _Trie, state: int, character: str) -> int:
    while state and character not in trie.goto[state]:
        state = trie.back[state]
    return trie.goto[state].get(character, 0)


def _edges(
    trie: _Trie, state: int, offset: int, resumed: int, done: int, early: bool
) -> tuple[tuple[ir.Node, int], ...]:
    """The edges of one state: to plain states by character class, and those that fire."""
    if trie.fires[state] is not None:
        return ()  # never entered: the edge into it fires instead
    known: set[str] = set()
    here = state
    while True:
        known.update(trie.goto[here])
        if not here:
            break
        here = trie.back[here]
    plain: dict[int, list[str]] = {}
    edges: list[tuple[ir.Node, int]] = []
    for character in sorted(known):
        following = _step(trie, state, character)
        pattern = trie.fires[following]
        if pattern is None:
            plain.setdefault(following, []).append(character)
        elif pattern.outcome != "never" and (pattern.early or not early):
            last = ir.Chars(((ord(character), ord(character)),))
            target = done if pattern.outcome == "end" else resumed
            if pattern.then != ir.NOTHING:
                edges.append((ir.sequence((last, pattern.then)), target))
    others = ir.Chars(_without(sorted(known)))
    edges.append((others, offset))
    for following, characters in plain.items():
        chars = ir.Chars(_ranges(characters))
        edges.append((chars, offset + following))
    return tuple(edges)


def _ranges(characters: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Sorted characters as ranges."""
    found: list[tuple[int, int]] = []
    for code in map(ord, characters):
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return tuple(found)


def _without(characters: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """All characters but these (sorted)."""
    found: list[tuple[int, int]] = []
    for low, high in ANY_CHARACTER.ranges:
        start = low
        for code in map(ord, characters):
            if low <= code <= high:
                if start < code:
                    found.append((start, code - 1))
                start = code + 1
        if start <= high:
            found.append((start, high))
    return tuple(found)
