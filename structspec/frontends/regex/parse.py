"""From the text of a regular expression to its tree.

Owns the syntax of two dialects:

- `ecma`: ECMA-262 with the `u` flag. `web=True` adds what engines accept without that flag and
  what means the same: escaped punctuation (`\\-`, `\\_`, `\\"`), lone `]`, `{` and `}`, a class
  escape beside a hyphen;
- `python`: the text patterns of the module `re`, with the flags `i m s x a u` given beside the
  pattern, at its start (`(?i)`) or for a group (`(?i-s:…)`). Every Python reads them here as 3.14
  does, which knows `\\z` and no longer says that `\\B` fails in an empty text.

Invariants: a malformed pattern raises `SchemaError` with the column (1-based); a legal construct
that no finite automaton or none of ours has (backreference, ECMA's modifiers, atomic groups,
unknown properties) raises `UnsupportedFeature` by name. Nothing is ignored. Laziness changes which
match is preferred, not which texts match, and is dropped; what cuts off alternatives is refused.

Cost: linear in the pattern.

Siblings: `characters` reads what stands for characters; `resolve` gives the assertions their
meaning.

Example::

    >>> parse("a|b?")
    Alternation(items=(Chars(ranges=((97, 97),)), Repeat(item=Chars(ranges=((98, 98),)), \
minimum=0, maximum=1)))
"""

from __future__ import annotations

import re
from typing import Final, Literal, NoReturn

from structspec.errors import SchemaError
from structspec.frontends.regex import classes
from structspec.frontends.regex.ast import (
    Chars,
    End,
    Look,
    Node,
    Repeat,
    Start,
    WordBoundary,
    alternation,
    concat,
    width,
)
from structspec.frontends.regex.characters import CharacterReader

__all__ = ["MOST_COPIES", "Dialect", "number", "parse"]

#: The most copies that a repetition may ask for.
MOST_COPIES = 1 << 27

Dialect = Literal["ecma", "python"]

_DEPTH: Final = 100
_LOOKAROUND: Final = {
    "=": (False, False), "!": (False, True), "<=": (True, False), "<!": (True, True)
}  # fmt: skip
_LOOKS: Final = tuple("(?" + kind for kind in _LOOKAROUND)
_LINE: Final = Chars(classes.complement(((10, 10),)))


def number(digits: str) -> int:
    """The number that digits write; beyond all limits one that is beyond all limits."""
    # Python converts no more than some thousand digits, and no count is as large as this one.
    return int(digits) if len(digits) <= 18 else 10**18


def parse(pattern: str, dialect: Dialect = "ecma", *, web: bool = False, flags: str = "") -> Node:
    """The tree of `pattern`; see the module for dialects and errors.

    flags: letters out of "imsxau", for the dialect "python" only.
    """
    if dialect not in ("ecma", "python"):
        raise SchemaError(f"the regex dialect is {dialect!r}; use 'ecma' or 'python'")
    if flags and dialect != "python":
        raise SchemaError(f"the flags {flags!r} are for the dialect 'python'")
    return _Parser(pattern, dialect == "python", web, flags).whole()


class _Parser(CharacterReader):
    def __init__(self, pattern: str, python: bool, web: bool, flags: str = "") -> None:
        super().__init__(pattern, python, web, flags)
        self.depth = 0
        self.names: set[str] = set()
        self.behind = 0  # lookbehinds around the place

    def copies(self, digits: str, at: int) -> int:
        """A lower bound of a quantifier; absurd ones are refused."""
        if (count := number(digits)) > MOST_COPIES:
            self.refuse("repetition", f"more than {MOST_COPIES} copies cannot be asked for", at)
        return count

    # -- structure ---------------------------------------------------------------------------

    def whole(self) -> Node:
        if self.python:
            self.blanks()
            while found := self.match(r"\(\?([aiLmsux]+)\)"):
                self.flags |= self.checked(found[1], found.start())
                self.blanks()
        node = self.disjunction()
        if self.at < len(self.pattern):
            self.fail("this ')' has no '('")
        return node

    def disjunction(self) -> Node:
        branches = [self.alternative()]
        while self.take("|"):
            branches.append(self.alternative())
        return branches[0] if len(branches) == 1 else alternation(branches)

    def alternative(self) -> Node:
        items: list[Node] = []
        self.blanks()
        while self.peek() not in ("", "|", ")"):
            start = self.at
            item = self.term()
            self.blanks()
            items.append(self.quantified(item, start))
            self.blanks()
        return concat(items)

    def blanks(self) -> None:
        """Skip what Python's patterns do not mean: comments and, with the flag x, blanks.

        A quantifier after one belongs to what stands before it.
        """
        while self.python:
            if self.take("(?#"):
                end = self.pattern.find(")", self.at)
                if end < 0:
                    self.fail("this comment is never closed", self.at - 3)
                self.at = end + 1
            elif not ("x" in self.flags and self.match(r"[ \t\n\r\f\v]+|#[^\n]*")):
                return

    def quantified(self, item: Node, start: int) -> Node:
        bounds = self.quantifier()
        if bounds is None:
            return item
        low, high = bounds
        if high is not None and low > high:
            self.fail(f"the quantifier's bounds are out of order: {low} > {high}", start)
        look = self.pattern.startswith(_LOOKS, start)  # and no group that holds nothing else
        if isinstance(item, Start | End | WordBoundary | Look) and (
            self.pattern[start] != "(" or (look and not self.python)
        ):
            self.fail("an assertion cannot be repeated; there is nothing to repeat", start)
        if not self.take("?") and self.python and self.peek() == "+":
            self.refuse("possessive quantifier", "it cuts off alternatives", self.at)
        again = self.at
        if self.quantifier() is not None:
            self.fail("a quantifier follows a quantifier; group the first with (?: )", again)
        return Repeat(item, low, high)

    def quantifier(self) -> tuple[int, int | None] | None:
        """The bounds of a quantifier, if one stands here."""
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return bounds
        if self.peek() != "{":
            return None
        form = r"\{([0-9]*)(,?)([0-9]*)\}" if self.python else r"\{([0-9]+)(,?)([0-9]*)\}"
        start = self.at
        found = self.match(form)
        if found and found[2] and (found[1] or found[3] or self.python):
            if not found[1] and not found[3]:  # Python: {,} is a quantifier without bounds
                return 0, None
            return self.copies(found[1] or "0", start), number(found[3]) if found[3] else None
        if found and found[1] and not found[3]:
            return (low := self.copies(found[1], start)), low
        self.at = start
        if not self.loose:
            self.fail("'{' starts no quantifier here; write \\{ for the character")
        return None

    def term(self) -> Node:
        start = self.at
        sign = self.peek()
        if sign in "*+?":
            self.fail(f"there is nothing to repeat before '{sign}'")
        if sign == "{":
            if self.quantifier() is not None:
                self.fail("there is nothing to repeat before '{'", start)
            self.at = start
        elif sign in "]}" and not self.loose:
            self.fail(f"a lone '{sign}'; write \\{sign} for the character")
        self.at += 1
        match sign:
            case "^":
                return Look(_LINE, behind=True, negated=True) if "m" in self.flags else Start()
            case "$":
                if "m" in self.flags:
                    return Look(_LINE, negated=True)
                return End(or_newline=self.python)
            case ".":
                if "s" in self.flags:
                    return Chars(classes.SCALARS)
                ends = ((10, 10),) if self.python else classes.LINE_ENDS
                return Chars(classes.complement(ends))
            case "(":
                return self.group(start)
            case "[":
                return Chars(self.character_class(start))
            case "\\":
                return self.escape(start)
        return self.character(ord(sign))

    def character(self, code: int) -> Node:
        ranges = classes.normalise([(code, code)])
        return Chars(self.folded(ranges))

    # -- groups ------------------------------------------------------------------------------

    def group(self, start: int) -> Node:
        if self.depth >= _DEPTH:
            self.refuse("group", f"groups are nested deeper than {_DEPTH}", start)
        flags, look = self.flags, None
        if self.take("?"):
            look = self.group_kind(start)
        self.depth += 1
        self.behind += look is not None and look[0]
        node = self.disjunction()
        self.behind -= look is not None and look[0]
        self.depth -= 1
        self.flags = flags
        if not self.take(")"):
            self.fail("this '(' is never closed", start)
        if look is None:
            return node
        behind, negated = look
        if behind and self.python and width(node) is None:
            self.fail("a lookbehind must match texts of one length", start)
        return Look(node, behind, negated)

    def group_kind(self, start: int) -> tuple[bool, bool] | None:
        """Read what follows `(?` up to the content; (behind, negated) of a lookaround."""
        if self.take(":"):
            return None
        if self.take("P<" if self.python else "<") and self.peek() not in ("=", "!"):
            self.group_name(start)
            return None
        self.at = start + 2
        for sign, kind in _LOOKAROUND.items():
            if self.take(sign):
                if self.behind and not kind[0]:
                    self.refuse("lookahead", "inside a lookbehind it looks past its end", start)
                return kind
        if self.python:
            if self.take("P="):
                self.refuse("backreference", "it is not a regular language", start)
            if self.take(">"):
                self.refuse("atomic group", "it cuts off alternatives", start)
            if self.take("("):
                self.refuse("conditional group", "it depends on an earlier group", start)
            found = self.match(r"([aiLmsux]*)(?:-([imsx]+))?:")
            if found:
                if set(found[1]) & set(found[2] or ""):
                    self.fail("a flag is both set and cleared", start)
                added = self.checked(found[1], start)
                cleared = set(found[2] or "") | ({"a"} if "u" in found[1] else set())
                self.flags = (self.flags | added) - cleared
                return None
            if self.match(r"[aiLmsux]+\)"):
                self.fail("flags for the whole pattern stand at its start", start)
        elif self.match(r"[ims]*(-[ims]*)?:"):
            self.refuse("modifiers", "flags inside a pattern; write the classes out", start)
        self.fail("an unknown kind of group", start)

    def group_name(self, start: int) -> None:
        found = self.match(r"([^\W\d]\w*)>" if self.python else r"((?:[^\W\d]|\$)[\w$]*)>")
        if not found:
            self.fail("the name of the group is missing or not an identifier", start)
        if found[1] in self.names:
            if not self.python:  # ECMA-262 allows it in different branches only
                self.refuse("duplicate group name", f"'{found[1]}' is used twice", start)
            self.fail(f"the group name '{found[1]}' is used twice", start)
        self.names.add(found[1])

    # -- escapes -----------------------------------------------------------------------------

    def escape(self, start: int) -> Node:
        """After a backslash outside a class."""
        sign = self.peek()
        if not sign:
            self.fail("the pattern ends with a backslash", start)
        unicode = self.python and "a" not in self.flags
        word = classes.python_shorthand("w") if unicode and sign in "bB" else classes.WORD
        if sign in "bB":
            self.at += 1
            return WordBoundary(word, negated=sign == "B")
        if self.python and sign in "AZz":
            self.at += 1
            return Start() if sign == "A" else End()
        if sign in "123456789":
            self.backreference(start)
        if sign == "k" and not self.python:
            found = self.match(r"k<([^>]*)>")
            if not found or f"(?<{found[1]}>" not in self.pattern:
                self.fail("\\k names no group of the pattern", start)
            self.refuse("backreference", "it is not a regular language", start)
        shorthand = self.shorthand(start)
        if shorthand is not None:
            return Chars(shorthand)
        return self.character(self.character_escape(start, in_class=False))

    def backreference(self, start: int) -> NoReturn:
        found = self.match(r"[0-9]+")
        assert found is not None
        if self.python and re.fullmatch(r"[0-3][0-7]{2}|0[0-7]*", found[0]):
            self.refuse("octal escape", "use \\x", start)
        total = len(re.findall(r"(?<!\\)\((?!\?(?!P?<[^=!]))", self.pattern))
        if number(found[0]) > total:
            self.fail(f"\\{found[0]} refers to a group that the pattern does not have", start)
        self.refuse("backreference", "it is not a regular language", start)
