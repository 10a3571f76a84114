"""What a normal form cannot say exactly.

A `Refusal` travels inside the part of a normal form that it concerns (strings, numbers, arrays or
objects). If that part is intersected away (``type: integer`` beside ``pattern``), the keyword has
no effect and the refusal vanishes with it. If it survives until lowering, the schema is refused, or
the keyword is reported as widened on request. This is sound because a part with refusals always
stands for a *superset* of what the schema allows, under complements too.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """`keyword` of subschema number `place` cannot be exact, for `reason`.

    budget: name and limit of the budget, if it would take too much.
    """

    keyword: str
    place: int
    reason: str
    budget: tuple[str, float] | None = None
