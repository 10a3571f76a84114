r"""From the text of a GBNF grammar to its tree.

Owns the syntax that llama.cpp documents and parses: rules `name ::= …` that end with their line
except inside parentheses and behind `::=` and `|`; strings and classes with the escapes `\n \r \t
\\ \" \[ \] \- \xXX \uXXXX \UXXXXXXXX`; `.`, groups, `? * + {m} {m,} {m,n}`; tokens `<text>`,
`<[id]>` and both with `!`; comments from `#` to the end of the line.

Stricter than llama.cpp in one respect, so that no mistake is taken for a grammar: a name that is
defined twice and a class range that is out of order are errors. Underscores in names, `{,n}` and
left recursion are taken.

Invariant: every mistake is a `SchemaError` with line, column and a caret. Cost: linear.

Example::

    >>> [rule.name for rule in parse('root ::= "a" b?\nb ::= [0-9]+ # digits')]
    ['root', 'b']
"""

from __future__ import annotations

import re
from typing import Final

from structspec.frontends.gbnf.ast import (
    Class,
    Group,
    Literal,
    Node,
    Reference,
    Repeat,
    Rule,
    Token,
)
from structspec.frontends.regex import number
from structspec.frontends.rules.source import Source

__all__ = ["parse"]

_DEPTH: Final = 200
_BLANK: Final = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANK_LINES: Final = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_COUNT: Final = re.compile(r"\{[ \t]*([0-9]*)[ \t]*(?:(,)[ \t]*([0-9]*)[ \t]*)?\}")
_TOKEN: Final = re.compile(r"<(\[[0-9]+\]|[^>\r\n\[][^>\r\n]*)>")
_SIGNS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ESCAPES: Final = {"n": 10, "r": 13, "t": 9} | {c: ord(c) for c in '\\"[]-'}
_DIGITS: Final = {"x": 2, "u": 4, "U": 8}


def parse(text: str) -> list[Rule]:
    """The rules of a grammar in their order; raises `SchemaError` (see the module)."""
    parser = _Parser(text)
    parser.source.check_characters()
    return parser.rules()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.source = Source(text)
        self.at = 0
        self.depth = 0

    def skip(self, lines: bool) -> None:
        found = (_BLANK_LINES if lines else _BLANK).match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def rules(self) -> list[Rule]:
        found: dict[str, Rule] = {}
        self.skip(lines=True)
        while self.at < len(self.text):
            rule = self.rule()
            if rule.name in found:
                first = self.source.position(found[rule.name].place)[0]
                raise self.source.error(
                    rule.place, f"the rule '{rule.name}' is already defined in line {first}"
                )
            found[rule.name] = rule
            self.skip(lines=True)
        return list(found.values())

    def rule(self) -> Rule:
        place = self.at
        name = _NAME.match(self.text, place)
        if not name:
            raise self.source.error(place, f"expected a rule (name ::= …), not {self.shown()}")
        self.at = name.end()
        self.skip(lines=False)
        if not self.text.startswith("::=", self.at):
            raise self.source.error(
                self.at, f"expected '::=' behind the name '{name[0]}', not {self.shown()}"
            )
        self.at += 3
        self.skip(lines=True)
        body = self.alternatives(nested=False)
        if self.peek() not in ("", "\r", "\n"):
            raise self.source.error(self.at, f"this {self.shown()} fits nothing before it")
        return Rule(name[0], body, place)

    def shown(self) -> str:
        """What stands here, for messages."""
        sign = self.peek()
        return repr(sign) if sign.strip() else "the end of the line" if sign else "the end"

    def alternatives(self, nested: bool) -> Group:
        found = [self.sequence(nested)]
        while self.peek() == "|":
            self.at += 1
            self.skip(lines=True)
            found.append(self.sequence(nested))
        return Group(tuple(found))

    def sequence(self, nested: bool) -> tuple[Node, ...]:
        items: list[Node] = []
        while True:
            place, sign = self.at, self.peek()
            if not sign or sign in "|)\r\n":
                return tuple(items)
            if sign in _SIGNS or sign == "{":
                if not items:
                    raise self.source.error(place, f"there is nothing to repeat before '{sign}'")
                items[-1] = Repeat(items[-1], *self.count(), place)
            else:
                item = self.item(place, sign)
                if item is None:
                    return tuple(items)
                items.append(item)
            self.skip(lines=nested)

    def item(self, place: int, sign: str) -> Node | None:
        if sign == '"':
            return self.literal(place)
        if sign == "[":
            return self.character_class(place)
        if sign == ".":
            self.at += 1
            return Class((), negated=True)
        if sign == "(":
            return self.group(place)
        if sign in "<!":
            return self.token(place, sign == "!")
        name = _NAME.match(self.text, place)
        if not name:
            return None
        self.at = name.end()
        return Reference(name[0], place)

    def group(self, place: int) -> Group:
        if self.depth >= _DEPTH:
            raise self.source.refusal("(", place, f"groups are nested deeper than {_DEPTH}")
        self.depth += 1
        self.at += 1
        self.skip(lines=True)
        found = self.alternatives(nested=True)
        self.depth -= 1
        if self.peek() != ")":
            if self.at >= len(self.text):
                raise self.source.error(place, "this '(' is never closed")
            raise self.source.error(self.at, f"expected ')', not {self.shown()}")
        self.at += 1
        return found

    def count(self) -> tuple[int, int | None]:
        place, sign = self.at, self.peek()
        if sign in _SIGNS:
            self.at += 1
            return _SIGNS[sign]
        found = _COUNT.match(self.text, place)
        if not found or not (found[1] or found[3]):
            raise self.source.error(place, "a count is {m}, {m,}, {m,n} or {,n}")
        self.at = found.end()
        low = number(found[1] or "0")
        high = number(found[3]) if found[3] else None if found[2] else low
        if high is not None and low > high:
            raise self.source.error(place, f"the count is out of order: {low} > {high}")
        return low, high

    def token(self, place: int, negated: bool) -> Token:
        self.at += negated
        found = _TOKEN.match(self.text, self.at)
        if not found:
            raise self.source.error(
                self.at, "a token is written <text> or <[id]>, with '!' before it to exclude it"
            )
        self.at = found.end()
        return Token(found[0], negated, place)

    # -- characters --------------------------------------------------------------------------

    def literal(self, place: int) -> Literal:
        self.at += 1
        found: list[str] = []
        while self.peek() != '"':
            found.append(chr(self.character(place, "string")))
        self.at += 1
        return Literal("".join(found))

    def character_class(self, place: int) -> Class:
        self.at += 1
        negated = self.peek() == "^"
        self.at += negated
        found: list[tuple[int, int]] = []
        while self.peek() != "]":
            start = self.at
            low = high = self.character(place, "class")
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.character(place, "class")
            if low > high:
                raise self.source.error(
                    start, f"the range is out of order: U+{low:04X} > U+{high:04X}"
                )
            found.append((low, high))
        self.at += 1
        return Class(tuple(found), negated)

    def character(self, opened: int, what: str) -> int:
        """The next character of a string or class, escapes resolved."""
        place, sign = self.at, self.peek()
        if not sign:
            raise self.source.error(opened, f"this {what} is never closed")
        if sign != "\\":
            self.at += 1
            return ord(sign)
        kind = self.text[place + 1 : place + 2]
        self.at += 2
        if kind in _DIGITS:
            digits = self.text[self.at : self.at + _DIGITS[kind]]
            if not re.fullmatch(f"[0-9a-fA-F]{{{_DIGITS[kind]}}}", digits):
                raise self.source.error(place, f"\\{kind} needs {_DIGITS[kind]} hexadecimal digits")
            self.at += len(digits)
            code = int(digits, 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise self.source.error(place, f"U+{code:04X} is not a character of any text")
            return code
        if not kind or kind not in _ESCAPES:
            raise self.source.error(
                place,
                f"unknown escape \\{kind}; there are "
                r"\n \r \t \\ \" \[ \] \- \xXX \uXXXX \UXXXXXXXX",
            )
        return _ESCAPES[kind]
