"""Which states of an automaton reach an accepting one.

>>> sorted(reaching([[1, 2], [1], []], [1]))
[0, 1]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["reaching"]


def reaching(targets: Sequence[Iterable[int]], accepting: Iterable[int]) -> set[int]:
    """The states from which a state of `accepting` is reached, these included.

    targets: by state, where its edges lead. Cost: one look at each edge.
    """
    sources: list[list[int]] = [[] for _ in targets]
    for source, row in enumerate(targets):
        for target in row:
            sources[target].append(source)
    found = set(accepting)
    stack = list(found)
    while stack:
        for source in sources[stack.pop()]:
            if source not in found:
                found.add(source)
                stack.append(source)
    return found
