"""A grammar in a notation of rules: what its printers share.

Owns `Printer`: the legal names of the rules, fresh ones for those that a notation needs besides,
and the order in which rules are written.

Invariant: the start rule stands first, and no name is given twice. Cost: linear after `plain`.

Siblings: `lark.export` and `gbnf.export`, which know how one rule looks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from structspec import ir
from structspec.frontends.rules.names import rename
from structspec.frontends.rules.plain import plain

__all__ = ["Printer"]


class Printer(ABC):
    """Writes a grammar, made `plain`, rule by rule.

    start: what the start rule is called. legal: a legal name of the notation for any name; join:
    what stands before a number that tells two of them apart.

    Raises `Unsatisfiable`, `UnsupportedFeature` and `BudgetExceeded` as `plain` does.
    """

    def __init__(
        self, grammar: ir.GrammarIR, start: str, legal: Callable[[str], str], join: str
    ) -> None:
        self._flat = plain(grammar)
        self.names = rename(self._flat.rules, self._flat.start, start, legal, join)
        self.lines: list[str] = []
        self._join = join
        self._taken = set(self.names.values())

    def text(self) -> str:
        """All rules, the start rule first."""
        rules, start = self._flat.rules, self._flat.start
        for name in (start, *(name for name in rules if name != start)):
            self.define(self.names[name], rules[name])
        return "\n".join(self.lines)

    @abstractmethod
    def define(self, name: str, node: ir.Node) -> None:
        """Add the line of a rule, and behind it those of rules that it needs."""

    def fresh(self, stem: str, number: int) -> str:
        """A name that no rule has: `stem` with the first free number from `number` on."""
        while (name := f"{stem}{self._join}{number}") in self._taken:
            number += 1
        self._taken.add(name)
        return name
