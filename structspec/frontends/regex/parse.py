"""From the text of a regular expression to its tree.

Owns the syntax of two dialects:

- `ecma`: ECMA-262 with the `u` flag. `web=True` adds what engines accept without that flag and
  what means the same: escaped punctuation (`\\-`, `\\_`, `\\"`), lone `]`, `{` and `}`, a class
  escape beside a hyphen;
- `python`: the text patterns of the module `re`, with the flags `i m s x a u` given beside the
  pattern, at its start (`(?i)`) or for a group (`(?i-s:…)`).

Invariants: a malformed pattern raises `SchemaError` with the column (1-based); a legal construct
that no finite automaton or none of ours has (backreference, ECMA's modifiers, atomic groups,
unknown properties) raises `UnsupportedFeature` by name. Nothing is ignored. Laziness changes which
match is preferred, not which texts match, and is dropped; what cuts off alternatives is refused.

Cost: linear in the pattern. Sibling: `resolve`, which gives the assertions their meaning.

Example::

    >>> parse("a|b?")
    Alternation(items=(Chars(ranges=((97, 97),)), Repeat(item=Chars(ranges=((98, 98),)), \
minimum=0, maximum=1)))
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal, NoReturn

from structspec.errors import SchemaError, UnsupportedFeature
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
from structspec.frontends.regex.case import ignoring_case

__all__ = ["MOST_COPIES", "Dialect", "number", "parse"]

#: The most copies that a repetition may ask for.
MOST_COPIES = 1 << 27

Dialect = Literal["ecma", "python"]

_DEPTH: Final = 100
_SYNTAX: Final = "^$\\.*+?()[]{}|/"
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_LOOKAROUND: Final = {
    "=": (False, False), "!": (False, True), "<=": (True, False), "<!": (True, True)
}  # fmt: skip
_LINE: Final = Chars(classes.complement(((10, 10),)))
_Class = classes.Ranges


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


class _Parser:
    def __init__(self, pattern: str, python: bool, web: bool, flags: str = "") -> None:
        self.pattern = pattern
        self.python = python
        self.loose = python or web  # lone brackets and braces are characters
        self.at = 0
        self.depth = 0
        self.names: set[str] = set()
        self.behind = 0  # lookbehinds around the place
        self.flags = self.checked(flags, 0)

    # -- small steps -------------------------------------------------------------------------

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        """Raise `SchemaError` for the place `at` (default: here)."""
        place = self.at if at is None else at
        line = self.pattern.count("\n", 0, place) + 1
        column = place - (self.pattern.rfind("\n", 0, place) + 1) + 1
        raise SchemaError(
            f"in the pattern {self.pattern!r:.120}: {message}", line=line, column=column
        )

    def refuse(self, keyword: str, reason: str, at: int) -> NoReturn:
        """Raise `UnsupportedFeature` for a construct that starts at `at`."""
        raise UnsupportedFeature(
            keyword,
            "",
            f"{reason} (column {at + 1} of the pattern {self.pattern!r:.120})",
            line=self.pattern.count("\n", 0, at) + 1,
            column=at - self.pattern.rfind("\n", 0, at),
        )

    def copies(self, digits: str, at: int) -> int:
        """A lower bound of a quantifier; absurd ones are refused."""
        if (count := number(digits)) > MOST_COPIES:
            self.refuse("repetition", f"more than {MOST_COPIES} copies cannot be asked for", at)
        return count

    def peek(self, length: int = 1) -> str:
        return self.pattern[self.at : self.at + length]

    def take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def match(self, expression: str) -> re.Match[str] | None:
        found = re.compile(expression).match(self.pattern, self.at)
        if found:
            self.at = found.end()
        return found

    # -- structure ---------------------------------------------------------------------------

    def checked(self, letters: str, start: int) -> frozenset[str]:
        """The flags named by `letters`, as `re` allows them for text patterns."""
        if "L" in letters:
            self.fail("the flag L is for patterns of bytes", start)
        if set(letters) - set("aimsux"):
            self.fail(f"unknown flags {letters!r}", start)
        if "a" in letters and "u" in letters:
            self.fail("the flags a and u exclude each other", start)
        return frozenset(letters) - {"u"}

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
        if isinstance(item, Start | End | WordBoundary | Look) and (
            self.pattern[start] != "(" or (isinstance(item, Look) and not self.python)
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

    def folded(self, ranges: _Class) -> _Class:
        """The ranges, with other cases where the flag i holds."""
        if "i" not in self.flags:
            return ranges
        return ignoring_case(ranges, ascii_only="a" in self.flags)

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
        if self.python and sign in "AZ":
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

    def shorthand(self, start: int) -> _Class | None:
        r"""`\d`, `\w`, `\s`, `\p{...}` and their negations, if one stands here."""
        sign = self.peek()
        if sign and sign in "dDwWsS":
            self.at += 1
            if self.python and "a" not in self.flags:
                found: _Class = classes.python_shorthand(sign.lower())
            elif self.python and sign in "sS":
                found = classes.ASCII_SPACE
            else:
                found = {"d": classes.DIGIT, "w": classes.WORD, "s": classes.SPACE}[sign.lower()]
            return found if sign.islower() else classes.complement(found)
        if sign and sign in "pP" and not self.python:
            self.at += 1
            name = self.match(r"\{([A-Za-z0-9_]+(?:=[A-Za-z0-9_]+)?)\}")
            if not name:
                self.fail(f"\\{sign} must be followed by {{Property}} or {{Property=Value}}", start)
            ranges = classes.resolve_property(name[1])
            if ranges is None:
                self.refuse(
                    f"\\{sign}{{{name[1]}}}", "this Unicode property is not known here", start
                )
            return ranges if sign == "p" else classes.complement(ranges)
        return None

    def character_escape(self, start: int, *, in_class: bool) -> int:
        """The code point of an escape for one character."""
        sign = self.peek()
        if not sign:
            self.fail("the pattern ends with a backslash", start)
        self.at += 1
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign == "x":
            return self.hexadecimal(r"[0-9a-fA-F]{2}", "\\x needs two hexadecimal digits", start)
        if sign == "u":
            return self.unicode_escape(start)
        if in_class and sign == "b":
            return 8
        if self.python:
            return self.python_escape(sign, start)
        if sign == "c":
            letter = self.match(r"[a-zA-Z]")
            if not letter:
                self.fail("\\c needs a letter", start)
            return ord(letter[0]) % 32
        if sign == "0":
            if self.peek() in set("0123456789"):
                self.fail("\\0 must not be followed by a digit; use \\x", start)
            return 0
        if sign in _SYNTAX or (in_class and sign == "-"):
            return ord(sign)
        if self.loose and not (sign.isascii() and sign.isalnum()):
            return ord(sign)
        self.fail(f"\\{sign} is not an escape of ECMA-262 with the u flag", start)

    def unicode_escape(self, start: int) -> int:
        if not self.python and self.take("{"):
            code = self.hexadecimal(r"[0-9a-fA-F]+(?=\})", "\\u{ needs hexadecimal digits", start)
            self.at += 1
            if code > 0x10FFFF:
                self.fail(f"\\u{{{code:x}}} is beyond U+10FFFF", start)
            return code
        digits = r"[0-9a-fA-F]{4}"
        code = self.hexadecimal(digits, "\\u needs four hexadecimal digits", start)
        if not self.python and 0xD800 <= code <= 0xDBFF:
            low = self.match(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
            if low:
                return 0x10000 + ((code - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
        return code

    def hexadecimal(self, form: str, message: str, start: int) -> int:
        digits = self.match(form)
        if not digits:
            self.fail(message, start)
        return int(digits[0], 16)

    def python_escape(self, sign: str, start: int) -> int:
        if sign == "a":
            return 7
        if sign == "U":
            code = self.hexadecimal(r"[0-9a-fA-F]{8}", "\\U needs eight hexadecimal digits", start)
            if code > 0x10FFFF:
                self.fail(f"\\U{code:08x} is beyond U+10FFFF", start)
            return code
        if sign == "N":
            name = self.match(r"\{([^}]+)\}")
            try:
                return ord(unicodedata.lookup(name[1])) if name else self.fail("\\N needs {name}")
            except (KeyError, TypeError):
                self.fail("\\N names no character", start)
        if sign in set("01234567"):
            digits = self.match(r"[0-7]{0,2}")
            return int(sign + (digits[0] if digits else ""), 8)
        if sign.isascii() and sign.isalnum():
            self.fail(f"\\{sign} is not an escape of Python's re", start)
        return ord(sign)

    # -- character classes -------------------------------------------------------------------

    def character_class(self, start: int) -> _Class:
        """After `[`: the set of characters up to `]`."""
        negated = self.take("^")
        found: list[tuple[int, int]] = []
        first = True
        while True:
            if self.at >= len(self.pattern):
                self.fail("this '[' is never closed", start)
            if self.peek() == "]" and not (first and self.python):
                self.at += 1
                break
            first = False
            found.extend(self.class_item())
        ranges = classes.normalise(found)
        ranges = self.folded(ranges)
        return classes.complement(ranges) if negated else ranges

    def class_item(self) -> _Class:
        """One member: a character, a range or a class escape."""
        start = self.at
        low = self.class_atom()
        if self.peek() != "-" or self.peek(2) in ("-", "-]"):
            return low if isinstance(low, tuple) else ((low, low),)
        self.at += 1
        high = self.class_atom()
        if isinstance(low, tuple) or isinstance(high, tuple):
            if self.python or not self.loose:
                self.fail("a range of a class must be between two characters", start)
            parts = [x if isinstance(x, tuple) else ((x, x),) for x in (low, high)]
            return (*parts[0], (0x2D, 0x2D), *parts[1])
        if low > high:
            self.fail(f"the range is out of order: U+{low:04X} > U+{high:04X}", start)
        return ((low, high),)

    def class_atom(self) -> int | _Class:
        start = self.at
        sign = self.peek()
        if not sign:
            self.fail("a class is never closed", start)
        self.at += 1
        if sign != "\\":
            return ord(sign)
        shorthand = self.shorthand(start)
        if shorthand is not None:
            return shorthand
        return self.character_escape(start, in_class=True)
