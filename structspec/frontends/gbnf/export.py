r"""Any grammar as GBNF text.

Owns `to_gbnf`. The text is meant for llama.cpp as well as for our own front end: names without
underscores, escapes that every version knows, and counts above 1,000 split over rules, because
llama.cpp refuses to repeat more than 2,000 times. Special tokens need names in angle brackets,
which are the notation's own.

Invariant: compiling the text gives the same language. Cost: linear after `plain`.

Example::

    >>> from structspec import ir
    >>> print(to_gbnf(ir.GrammarIR({"s": ir.Repeat(ir.Chars(((45, 45), (97, 99))), 2, 4)}, "s")))
    root ::= [\x2Da-c]{2,4}
"""

from __future__ import annotations

import re

from structspec import ir
from structspec.errors import UnsupportedFeature
from structspec.frontends.regex.classes import SCALARS, complement
from structspec.frontends.rules.printer import Printer

__all__ = ["to_gbnf"]

_MOST_COPIES = 1_000
_TOKEN = re.compile(r"<(\[[0-9]+\]|[^>\r\n\[][^>\r\n]*)>")
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\"}


def to_gbnf(grammar: ir.GrammarIR) -> str:
    """The grammar as GBNF; its start rule is `root`, which stands first.

    Raises `Unsatisfiable`, `UnsupportedFeature` and `BudgetExceeded` as `plain` does.
    """
    return _Printer(grammar).text()


class _Printer(Printer):
    def __init__(self, grammar: ir.GrammarIR) -> None:
        super().__init__(grammar, "root", _legal, "-")
        self._copies: dict[tuple[str, int, int], str] = {}

    def define(self, name: str, node: ir.Node) -> None:
        at = len(self.lines)
        text = self.alternatives(node)
        self.lines.insert(at, f"{name} ::= {text}")

    def alternatives(self, node: ir.Node) -> str:
        if isinstance(node, ir.Choice):
            return " | ".join(map(self.sequence, node.items))
        return self.sequence(node)

    def sequence(self, node: ir.Node) -> str:
        if isinstance(node, ir.Sequence) and node.items:
            return " ".join(map(self.part, node.items))
        return self.part(node)

    def part(self, node: ir.Node) -> str:
        match node:
            case ir.Bytes(value):
                return f'"{"".join(_escaped(c, chr(34)) for c in value.decode("utf-8"))}"'
            case ir.Chars(ranges):
                return _class(ranges)
            case ir.Rule(name):
                return self.names[name]
            case ir.Special(name):
                if not _TOKEN.fullmatch(name):
                    raise UnsupportedFeature(
                        f"special token {name!r}", "", "GBNF names tokens as <text> or <[id]> only"
                    )
                return name
            case ir.Sequence(()):
                return '""'
            case ir.Repeat(item, minimum, maximum):
                return self.repeat(self.part(item), minimum, maximum)
        return f"({self.alternatives(node)})"

    def repeat(self, item: str, minimum: int, maximum: int | None) -> str:
        if item[-1] in "*+?}":
            item = f"({item})"
        for bounds, sign in (((0, None), "*"), ((1, None), "+"), ((0, 1), "?")):
            if (minimum, maximum) == bounds:
                return item + sign
        if max(minimum, maximum or 0) > _MOST_COPIES:
            parts = [] if minimum == 0 else [self.many(item, minimum, minimum)]
            if maximum is None:
                parts.append(f"{item}*")
            elif maximum > minimum:
                parts.append(self.many(item, 0, maximum - minimum))
            return parts[0] if len(parts) == 1 else f"({' '.join(parts)})"
        if minimum == maximum:
            return f"{item}{{{minimum}}}"
        return f"{item}{{{minimum},{'' if maximum is None else maximum}}}"

    def many(self, item: str, minimum: int, maximum: int) -> str:
        """0 to `maximum` copies, or exactly so many: rules of a thousand copies each."""
        if maximum <= _MOST_COPIES:
            return self.repeat(item, minimum, maximum)
        exact = minimum == maximum
        block = self._block(item, _MOST_COPIES if exact else 0, _MOST_COPIES)
        blocks, rest = divmod(maximum, _MOST_COPIES)
        found = self.many(block, blocks if exact else 0, blocks)
        if rest:
            found = f"({found} {self.repeat(item, rest if exact else 0, rest)})"
        return found

    def _block(self, item: str, minimum: int, maximum: int) -> str:
        key = (item, minimum, maximum)
        if key not in self._copies:
            name = self._copies[key] = self.fresh("copies", len(self._copies) + 1)
            self.lines.append(f"{name} ::= {self.repeat(item, minimum, maximum)}")
        return self._copies[key]


def _legal(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-") or "rule"


def _escaped(character: str, also: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    code = ord(character)
    if character in also or code < 0x20 or 0x7F <= code < 0xA0:
        return f"\\x{code:02X}" if character != '"' else '\\"'
    if character.isprintable():
        return character
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _class(ranges: tuple[tuple[int, int], ...]) -> str:
    if ranges == SCALARS:
        return r"[\x00-\U0010FFFF]"  # and not ".", which other readers of the notation lack
    outside = complement(ranges)
    negated = ranges[-1][1] == 0x10FFFF
    shown = "".join(
        _escaped(chr(low), "]-^[")
        if low == high
        else f"{_escaped(chr(low), ']-^[')}{'' if high == low + 1 else '-'}"
        f"{_escaped(chr(high), ']-^[')}"
        for low, high in (outside if negated else ranges)
    )
    return f"[{'^' if negated else ''}{shown}]"
