"""Rule names: those of the IR as legal, unique names of a notation, and missing ones.

Example::

    >>> rename(["a/b", "a.b", "top"], "top", "root", lambda name: name.replace("/", ".").lower())
    {'a/b': 'a.b', 'a.b': 'a.b-2', 'top': 'root'}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

__all__ = ["no_rule", "rename"]

_SHOWN = 5


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


def no_rule(start: str, names: Sequence[str]) -> str:
    """What to say where the start rule is not among the rules `names`."""
    said = f"there is no rule '{start}', which is where a text begins"
    near = get_close_matches(start, names, 1)
    if near:
        return f"{said}; did you mean '{near[0]}'?"
    if not names:
        return f"{said}, nor any other rule"
    listed = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"{said}; add it, or choose another with start= (rules here: {listed})"
