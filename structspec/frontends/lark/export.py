r"""Any grammar as Lark text.

Owns `to_lark`. The text loads in lark itself as long as no special tokens are in it. Rules only, no
named terminals, so that nothing is longest-matched; alternatives and repetitions inside a sequence
become rules of their own, because lark refuses optional parts whose combinations coincide.

Invariant: compiling the text gives the same language. Cost: linear after `plain`. Lark writes a
counted repetition out, so it takes time to load large counts.

Example::

    >>> from structspec import ir
    >>> print(to_lark(ir.GrammarIR({"s": ir.Repeat(ir.Chars(((45, 45), (97, 99))), 2, 4)}, "s")))
    start: /[\-a-c]/~2..4
"""

from __future__ import annotations

import json
import re

from structspec import ir
from structspec.frontends.regex.classes import SCALARS, complement
from structspec.frontends.rules.printer import Printer

__all__ = ["to_lark"]

_TOKEN = re.compile(r"<(?:\[[0-9]+\]|[^<>\s\[](?:[^<>\n]*[^<>\s])?)>")
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\f": r"\f", "\\": "\\\\"}
# Signs with a meaning in a class, now or to come, and the sign that ends an expression.
_SIGNS = frozenset("[]^-/&~|")


def to_lark(grammar: ir.GrammarIR) -> str:
    """The grammar as Lark; its start rule is `start`, which stands first.

    Raises `Unsatisfiable`, `UnsupportedFeature` and `BudgetExceeded` as `plain` does.
    """
    return _Printer(grammar).text()


class _Printer(Printer):
    def __init__(self, grammar: ir.GrammarIR) -> None:
        super().__init__(grammar, "start", _legal, "_")
        self._parts: dict[ir.Node, str] = {}

    def define(self, name: str, node: ir.Node) -> None:
        at = len(self.lines)
        self.lines.insert(at, f"{name}: {self.body(node)}".rstrip())

    def body(self, node: ir.Node) -> str:
        if isinstance(node, ir.Choice):
            return " | ".join(map(self.sequence, node.items))
        if isinstance(node, ir.Repeat):
            return self.repeat(node)
        return self.sequence(node)

    def sequence(self, node: ir.Node) -> str:
        items = node.items if isinstance(node, ir.Sequence) else (node,)
        return " ".join(map(self.part, items))

    def part(self, node: ir.Node) -> str:
        match node:
            case ir.Bytes(value):
                return f'"{"".join(_escaped(c, chr(34)) for c in value.decode("utf-8"))}"'
            case ir.Chars(ranges):
                return _class(ranges)
            case ir.Rule(name):
                return self.names[name]
            case ir.Special(name):
                return name if _TOKEN.fullmatch(name) else f"%special {json.dumps(name)}"
        found = self._parts.get(node)
        if found is None:
            found = self._parts[node] = self.fresh("part", len(self._parts) + 1)
            self.define(found, node)
        return found

    def repeat(self, node: ir.Repeat) -> str:
        item, low, high = self.part(node.item), node.minimum, node.maximum
        for bounds, sign in (((0, None), "*"), ((1, None), "+"), ((0, 1), "?")):
            if (low, high) == bounds:
                return item + sign
        if high is None:
            return f"{item}~{low} {item}*"
        return f"{item}~{low}" if low == high else f"{item}~{low}..{high}"


def _legal(name: str) -> str:
    legal = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return legal if legal[:1].isalpha() else f"r_{legal}" if legal else "rule"


def _escaped(character: str, also: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if character in also:
        return f"\\{character}"
    code = ord(character)
    if character.isprintable() and code != 0x10FFFE:
        return character
    if code <= 0xFF:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _class(ranges: tuple[tuple[int, int], ...]) -> str:
    if ranges == SCALARS:
        return "/./s"
    negated = ranges[-1][1] == 0x10FFFF
    shown = "".join(
        _in_class(low) if low == high else f"{_in_class(low)}-{_in_class(high)}"
        for low, high in (complement(ranges) if negated else ranges)
    )
    return f"/[{'^' if negated else ''}{shown}]/"


def _in_class(code: int) -> str:
    character = chr(code)
    # Lark resolves \x, \u and \n before the expression is read; a backslash is written twice.
    return f"\\{character}" if character in _SIGNS else _escaped(character, "")
