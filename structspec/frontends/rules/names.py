"""Rule names of the IR as legal names of a notation: unique, and as close as can be.

Example::

    >>> rename(["a/b", "a.b", "top"], "top", "root", lambda name: name.replace("/", ".").lower())
    {'a/b': 'a.b', 'a.b': 'a.b-2', 'top': 'root'}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["rename"]


def rename(
    names: Iterable[str], start: str, start_name: str, legal: Callable[[str], str], join: str = "-"
) -> dict[str, str]:
    """A legal name for each rule; the start rule gets `start_name`."""
    found = {start: start_name}
    taken = {start_name}
    order = list(names)
    for name in order:
        if name == start:
            continue
        wanted = legal(name)
        candidate, number = wanted, 1
        while candidate in taken:
            number += 1
            candidate = f"{wanted}{join}{number}"
        taken.add(candidate)
        found[name] = candidate
    return {name: found[name] for name in order}
