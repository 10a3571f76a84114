r"""A Lark grammar for engines that read less of Lark's notation than lark does.

Owns `spelled_out`: the grammar with imports merged, templates instantiated, names made plain and
our inline flags for ASCII dropped, but with its rules and terminals as they are. An engine with a
lexer keeps its lexer that way, which is how it is meant to be used; `Grammar.to_lark` writes the
language of single characters instead, where such an engine would choose longest matches.

Special tokens and `%json` are not written: the grammars of the benchmark have none.

Example::

    >>> print(spelled_out('start: pair{"a"}\npair{x}: x "," x\n'), end="")
    start: (pair_1)
    pair_1: (("a") "," ("a"))
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from structspec.errors import UnsupportedFeature
from structspec.frontends.lark.extensions import AND, MARK, NOT
from structspec.frontends.lark.load import Loaded, load

__all__ = ["spelled_out"]


def spelled_out(text: str, start: str = "start", resources: Mapping[str, str] | None = None) -> str:
    """The grammar in the part of Lark's notation that the peers of the benchmark share.

    Raises what reading the grammar raises, and `UnsupportedFeature` for our other additions.
    """
    writer = _Writer(load(text, resources))
    writer.rule(start, {})
    return writer.text()


class _Writer:
    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._rules: dict[str, str] = {}
        self._terminals: dict[str, str] = {}
        self._instances: dict[tuple[str, ...], str] = {}

    def text(self) -> str:
        ignored = [f"%ignore {self._terminal(name)}" for name in self._loaded.ignore]
        found = {**self._rules, **self._terminals}
        return "\n".join([*(f"{name}: {body}" for name, body in found.items()), *ignored, ""])

    def rule(self, origin: str, scope: Mapping[str, str], name: str = "") -> str:
        """Write a rule unless it is written; returns its name."""
        name = name or re.sub(r"\W", "_", origin).lower()
        if name not in self._rules:
            self._rules[name] = ""  # being written
            self._rules[name] = self._body(self._loaded.rules[origin][1], scope)
        return name

    def _body(self, tree: Any, scope: Mapping[str, str]) -> str:
        children = tree.children[:1] if tree.data == "alias" else tree.children
        inner = [self._item(child, scope) for child in children]
        match tree.data:
            case "expansions":
                return f"({' | '.join(inner)})"
            case "expansion":
                return " ".join(inner)
            case "alias" | "value":
                return inner[0]
            case "maybe":
                return f"({inner[0]})?"
            case "range":
                return f"{inner[0]}..{inner[1]}"
            case "literal":
                return _literal(str(tree.children[0]))
            case "template_usage":
                return self._template(str(tree.children[0].name), inner[1:])
            case "expr":
                sign, *counts = (str(child) for child in tree.children[1:])
                if sign != "~":
                    return f"({inner[0]}){sign}"
                return f"({inner[0]})~{counts[0]}..{counts[-1]}"
        raise UnsupportedFeature(str(tree.data), "", "the benchmark's grammars do without it")

    def _item(self, item: Any, scope: Mapping[str, str]) -> str:
        if hasattr(item, "data"):
            return self._body(item, scope)
        if not hasattr(item, "is_term"):
            return str(item)  # a token: a sign, a count, the end of a range
        name = str(item.name)
        if name in scope:
            return f"({scope[name]})"
        if item.is_term:
            return self._terminal(name)
        return name if self._loaded.rules[name][0] else self.rule(name, {})

    def _template(self, name: str, arguments: list[str]) -> str:
        key = (name, *arguments)
        if key not in self._instances:
            made = f"{re.sub(r'[^a-z0-9_]', '_', name.lower())}_{len(self._instances) + 1}"
            self._instances[key] = made
            parameters = self._loaded.rules[name][0]
            self.rule(name, dict(zip(parameters, arguments, strict=True)), made)
        return self._instances[key]

    def _terminal(self, name: str) -> str:
        written = re.sub(r"\W", "_", name).upper().lstrip("_") or "T"
        if written not in self._terminals:
            self._terminals[written] = ""
            self._terminals[written] = self._body(self._loaded.terminals[name][0], {})
        return written


def _literal(text: str) -> str:
    if text[1:3] in (AND, NOT):
        return text[2]
    if text[1:2] == MARK:
        raise UnsupportedFeature(
            "special tokens and %json", "", "the benchmark's grammars do without them"
        )
    # ASCII letters only when case is ignored: the peers' expressions lack the flag
    return text.replace("(?ai:", "(?i:") if text.startswith("/") else text
