"""An independent recogniser of Lark grammars: lark's own trees and a table over spans of the text.

It shares no code with the front end: lark compiles the grammar to flat rules and one regular
expression per terminal, `re.fullmatch` says which spans a terminal covers (so no preference among
matches hides one), and a fixed point over spans says what each rule covers.
"""

from __future__ import annotations

import re

from lark import Lark
from lark.grammar import Terminal


class Recogniser:
    """`accepts` says whether some way of cutting the text fits the grammar."""

    def __init__(self, grammar: str, start: str = "start") -> None:
        parser = Lark(grammar, parser="earley", lexer="dynamic_complete", start=start)
        self.terminals = {t.name: re.compile(t.pattern.to_regexp()) for t in parser.terminals}
        self.ignore = list(parser.ignore_tokens)
        self.rules: dict[str, list[list[tuple[bool, str]]]] = {}
        for rule in parser.rules:
            symbols = [(isinstance(s, Terminal), str(s.name)) for s in rule.expansion]
            self.rules.setdefault(str(rule.origin.name), []).append(symbols)
        self.start = start

    def accepts(self, text: str) -> bool:
        size = len(text)
        gaps = self._gaps(text)
        spans: dict[str, set[tuple[int, int]]] = {name: set() for name in self.rules}
        terminals = {
            name: {
                (i, k)
                for i in range(size + 1)
                for j in range(i, size + 1)
                if pattern.fullmatch(text, i, j)
                for k in gaps[j]
            }
            for name, pattern in self.terminals.items()
        }
        changed = True
        while changed:
            changed = False
            for name, expansions in self.rules.items():
                for symbols in expansions:
                    found = {(i, i) for i in range(size + 1)}
                    for is_terminal, symbol in symbols:
                        covers = terminals[symbol] if is_terminal else spans[symbol]
                        found = {(i, k) for i, j in found for j2, k in covers if j == j2}
                    if not found <= spans[name]:
                        spans[name] |= found
                        changed = True
        return any((i, size) in spans[self.start] for i in gaps[0]) or (
            size in gaps[0] and (size, size) in spans[self.start]
        )

    def _gaps(self, text: str) -> list[set[int]]:
        """Per place the places that ignored terminals lead to, itself included."""
        size = len(text)
        direct = [
            {
                j
                for j in range(i + 1, size + 1)
                if any(self.terminals[name].fullmatch(text, i, j) for name in self.ignore)
            }
            for i in range(size + 1)
        ]
        gaps: list[set[int]] = [set() for _ in range(size + 1)]
        for i in range(size, -1, -1):
            gaps[i] = {i}.union(*(gaps[j] for j in direct[i]))
        return gaps
