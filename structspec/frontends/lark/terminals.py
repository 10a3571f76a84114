r"""Terminals of a Lark grammar as IR nodes.

Owns `Terminals`. A terminal is a regular expression in Python's dialect, put together from
strings, expressions, ranges and operators. Its language is what it matches *by itself*: every way
to cut the text into terminals counts, so neither greed nor order of alternatives hides a text.

Lookaround, `\b` and anchors inside are exact. Where their verdict hangs on text before or behind
the terminal (`/if\b/`), there is no terminal language; such a terminal is refused by name, or, on
request ("widen"), judged as if nothing stood around it.

`A & B` and `~A` are products and complements of deterministic automata.

Lark joins the parts of a terminal as text, so the bar of a bare expression reaches over its
neighbours: `/a|b/ "c"` is `/a|bc/`. That is kept, since it is what the grammar means in lark, and
noted in the report; `/(?:a|b)/ "c"` or `(/a/ | /b/) "c"` say the other thing.

Invariant: one node per terminal, shared by all its uses. Cost: linear for terminals without
assertions and our operators; otherwise a deterministic automaton each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from structspec import ir
from structspec.automata.chardfa import CharDfa, CharNfa
from structspec.errors import BudgetExceeded, SchemaError, UnsupportedFeature
from structspec.frontends.lark.extensions import AND, JSON, NOT, SPECIAL
from structspec.frontends.lark.load import Loaded
from structspec.frontends.regex import MOST_COPIES, ast, language, lower, lower_dfa, number, parse
from structspec.frontends.regex.case import ignoring_case
from structspec.frontends.regex.classes import Ranges
from structspec.report import Entry

__all__ = ["Terminals"]


class Terminals:
    """Lowers terminals on demand; `entries` reports those that were widened."""

    def __init__(self, loaded: Loaded, *, widen: bool) -> None:
        self.entries: list[Entry] = []
        self._loaded = loaded
        self._widen = widen
        self._named: dict[str, ir.Node] = {}
        self._trees: dict[int, _Set] = {}
        self._alive: list[Any] = []  # keeps the trees whose id is a key
        self._literals: dict[str, ir.Node] = {}
        self._place = 0  # of the terminal at hand, for what has no place itself

    def named(self, name: str, place: int) -> ir.Node:
        """The node of a named terminal; `place` is where it is used."""
        found = self._named.get(name)
        if found is None:
            tree, _ = self._loaded.terminals[name]
            if tree is None:
                raise self._loaded.source.refusal(
                    f"%declare {name}",
                    place,
                    "a declared terminal comes from outside of the text; define it, or use a "
                    "special token",
                )
            defined = self._loaded.definition(name)
            self._place = place if defined is None else defined
            found = self._named[name] = self._node(tree, name)
        return found

    def literal(self, tree: Any, place: int) -> ir.Node:
        """The node of a string, expression or range that stands in a rule."""
        key = repr([str(token) for token in tree.children] + [tree.data])
        found = self._literals.get(key)
        if found is None:
            self._place = place
            shown = "..".join(str(token) for token in tree.children)
            found = self._literals[key] = self._node(tree, shown)
        return found

    # -- from sets of texts to nodes -----------------------------------------------------------

    def _node(self, tree: Any, shown: str) -> ir.Node:
        try:
            return self._lowered(_closed(self._tree(tree)), shown)
        except BudgetExceeded as error:
            if error.line is not None:
                raise
            source = self._loaded.source
            raise error.at_line(*source.position(self._place), source.caret(self._place)) from error

    def _lowered(self, found: ast.Node | CharDfa, shown: str) -> ir.Node:
        if isinstance(found, CharDfa):
            return lower_dfa(found)
        if not ast.asserts(found):
            return lower(found)
        return lower_dfa(self._dfa(found, shown))

    def _dfa(self, found: _Set, shown: str = "") -> CharDfa:
        found = _closed(found)
        if isinstance(found, CharDfa):
            return found
        try:
            result = language(found, alone=not ast.asserts(found))
        except UnsupportedFeature as error:
            raise self._refusal(error.keyword, error.reason) from error
        if result.depends is not None:
            where = "past its end" if result.depends == "lookahead" else "before its start"
            reason = (
                f"the {result.depends} (or anchor, or word boundary) of the terminal {shown} looks "
                f"{where}"
            )
            if not self._widen:
                raise self._refusal(
                    result.depends,
                    f"{reason}, where a grammar without a lexer has no fixed text; on_unsupported="
                    "'widen' judges every terminal by its own text",
                )
            line, _ = self._loaded.source.position(self._place)
            self.entries.append(Entry(f"line {line}", shown, "widened", reason))
        return result.dfa

    def _refusal(self, keyword: str, reason: str) -> UnsupportedFeature:
        return self._loaded.source.refusal(keyword, self._place, reason)

    # -- from lark's trees to sets of texts ----------------------------------------------------

    def _tree(self, tree: Any) -> _Set:
        found = self._trees.get(id(tree))
        if found is None:
            found = self._trees[id(tree)] = self._set(tree)
            self._alive.append(tree)
        return found

    def _set(self, tree: Any) -> _Set:
        match tree.data:
            case "expansions":
                parts = [self._tree(child) for child in tree.children]
                if len(parts) == 1:
                    return parts[0]
                parts = [_closed(part) for part in parts]
                if any(isinstance(part, CharDfa) for part in parts):
                    found = CharDfa.nothing()
                    for part in parts:
                        found = found.union(self._dfa(part))
                    return found
                return ast.alternation(part for part in parts if isinstance(part, ast.Node))
            case "expansion":
                return self._expansion(tree.children)
            case "value":
                return self._tree(tree.children[0])
            case "maybe":
                return self._repeat(self._tree(tree.children[0]), 0, 1)
            case "expr":
                return self._repeat(self._tree(tree.children[0]), *self.bounds(tree))
            case "literal":
                return self._literal(tree.children[0])
            case "range":
                low, high = (self._character(token) for token in tree.children)
                if low > high:
                    raise self._error(tree.children[0], "the range is out of order")
                return ast.Chars(((low, high),))
        if tree.data == "alias":
            raise self._error(tree.children[-1], "terminals cannot have aliases")
        raise self._error(None, f"a terminal cannot contain this ({tree.data})")

    def _expansion(self, children: list[Any]) -> _Set:
        """A sequence of parts, cut at `&`; `~` in front of a part is its complement."""
        factors: list[list[_Set]] = [[]]
        negations = 0
        for child in children:
            mark = _mark(child)
            if mark == AND:
                if negations or not factors[-1]:
                    raise self._error(_token(child), "'&' stands between two parts")
                factors.append([])
            elif mark == NOT:
                negations += 1
            else:
                part = self._tree(child)
                if negations % 2:
                    part = self._dfa(part).complement()
                elif negations:
                    part = self._dfa(part)
                factors[-1].append(part)
                negations = 0
        if negations or (len(factors) > 1 and not factors[-1]):
            raise self._error(None, "'~' and '&' need a part behind them")
        joined = [self._join(parts) for parts in factors]
        if len(joined) == 1:
            return joined[0]
        found = self._dfa(joined[0])
        for other in joined[1:]:
            found = found.intersect(self._dfa(other))
        return found

    def _join(self, parts: list[_Set]) -> _Set:
        if len(parts) == 1:
            return parts[0]
        if any(isinstance(part, CharDfa) for part in parts):
            return _in_a_row([self._dfa(part) for part in parts])
        found: list[list[ast.Node]] = [[]]
        for part in parts:
            if isinstance(part, _Open):
                self._note_bar()
                first, *others = part.alternatives
                found[-1].append(first)
                found.extend([other] for other in others)
            elif isinstance(part, ast.Node):
                found[-1].append(part)
        joined = tuple(ast.concat(items) for items in found)
        return joined[0] if len(joined) == 1 else _Open(joined)

    def _note_bar(self) -> None:
        line, _ = self._loaded.source.position(self._place)
        entry = Entry(
            f"line {line}",
            "|",
            "exact",
            "as in lark, this bar reaches over the parts beside its expression; (?:…) keeps it in",
        )
        if entry not in self.entries:
            self.entries.append(entry)

    def _repeat(self, item: _Set, minimum: int, maximum: int | None) -> _Set:
        item = _closed(item)
        if isinstance(item, CharDfa):
            return _copies(item, minimum, maximum)
        return ast.Repeat(item, minimum, maximum)

    def bounds(self, tree: Any) -> tuple[int, int | None]:
        """The counts of an `expr` tree, of rules as well."""
        sign = str(tree.children[1])
        if sign != "~":
            return {"?": (0, 1), "*": (0, None), "+": (1, None)}[sign]
        numbers = [_count(str(token)) for token in tree.children[2:]]
        low, high = numbers[0], numbers[-1]
        if low < 0 or high < low:
            raise self._error(tree.children[2], f"the count {low}..{high} is out of order")
        if low > MOST_COPIES:
            place = self._loaded.place(tree.children[2])
            raise self._loaded.source.refusal(
                "repetition",
                self._place if place is None else place,
                f"{low} copies are more than {MOST_COPIES}, the most that can be asked for",
            )
        return low, high

    def _literal(self, token: Any) -> _Set:
        text = str(token)
        if text[1:2] == AND[0]:
            kind = text[1:3]
            if kind in (JSON, SPECIAL):
                what = "%json" if kind == JSON else "a special token"
                raise self._error(token, f"{what} stands in rules, not in terminals")
            raise self._error(token, "'&' and '~' stand in terminals, between or before parts")
        pattern, flags, is_string = self._pattern(token)
        if is_string:
            self._check_characters(token, pattern)
            ranges: list[Ranges] = [((ord(c), ord(c)),) for c in pattern]
            if "i" in flags:
                ranges = [ignoring_case(one) for one in ranges]
            return ast.concat(ast.Chars(one) for one in ranges)
        letters = "".join(sorted(flags))
        try:
            whole = parse(pattern, "python", flags=letters)
            pieces = [] if letters else _at_bars(pattern)
            if len(pieces) < 2:
                return whole
            return _Open(tuple(parse(piece, "python") for piece in pieces))
        except SchemaError as error:
            said = str(error).partition(": ")[2]
            raise self._error(token, f"column {error.column} of the expression: {said}") from error
        except UnsupportedFeature as error:
            place = self._loaded.place(token)
            raise self._loaded.source.refusal(
                error.keyword, self._place if place is None else place, error.reason
            ) from error

    def _pattern(self, token: Any) -> tuple[str, set[str], bool]:
        """What lark makes of a literal: its text, its flags, and whether it is a string."""
        from lark.exceptions import GrammarError
        from lark.lexer import PatternStr
        from lark.load_grammar import PrepareLiterals
        from lark.tree import Tree

        try:
            pattern = PrepareLiterals().transform(Tree("literal", [token])).children[0]
        except (GrammarError, ValueError, SyntaxError) as error:
            raise self._error(token, f"lark cannot read this: {_cause(error)}") from error
        return pattern.value, set(pattern.flags), isinstance(pattern, PatternStr)

    def _check_characters(self, token: Any, text: str) -> None:
        for sign in text:
            if 0xD800 <= ord(sign) <= 0xDFFF:
                raise self._error(token, f"U+{ord(sign):04X} is not a character of any text")

    def _character(self, token: Any) -> int:
        text, _, is_string = self._pattern(token)
        if not is_string or len(text) != 1:
            raise self._error(token, "the ends of a range are single characters")
        self._check_characters(token, text)
        return ord(text)

    def _error(self, token: Any, message: str) -> SchemaError:
        place = None if token is None else self._loaded.place(token)
        return self._loaded.source.error(self._place if place is None else place, message)


@dataclass(frozen=True, slots=True)
class _Open:
    """Alternatives that are not grouped: lark joins parts of a terminal as text."""

    alternatives: tuple[ast.Node, ...]


#: Texts: an expression as long as that can be, else an automaton.
_Set = ast.Node | _Open | CharDfa


def _closed(found: _Set) -> ast.Node | CharDfa:
    return ast.alternation(found.alternatives) if isinstance(found, _Open) else found


_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)


def _at_bars(pattern: str) -> list[str]:
    """A legal expression cut at the bars outside of groups and classes."""
    found, depth = [""], 0
    for piece in _PIECE.findall(pattern):
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and not depth:
            found.append("")
        else:
            found[-1] += piece
    return found


def _count(digits: str) -> int:
    return -number(digits[1:]) if digits[:1] == "-" else number(digits.lstrip("+"))


def _cause(error: Exception) -> str:
    """What is wrong with a literal; lark packs the error of Python's own escapes into its own."""
    if "null bytes" in str(error):
        return "it holds the character U+0000; write \\x00"
    found = re.search(r"can't decode bytes in position [0-9-]+: ([^\"'\n,)]+)", str(error))
    return f"this escape is broken ({found[1]})" if found else str(error).split("\n")[0]


def _token(tree: Any) -> Any:
    """The token of a literal, however it is wrapped; None for other trees."""
    while getattr(tree, "data", None) in ("value", "literal") and len(tree.children) == 1:
        tree = tree.children[0]
    return tree if getattr(tree, "type", None) in ("STRING", "REGEXP") else None


def _mark(tree: Any) -> str | None:
    """`AND` or `NOT` if the tree is one of our signs."""
    text = str(_token(tree) or "")[1:3]
    return text if text in (AND, NOT) else None


def _in_a_row(parts: list[CharDfa]) -> CharDfa:
    """The texts of the parts one after another."""
    nfa = CharNfa()
    start = end = nfa.state()
    for part in parts:
        first, done = _added(nfa, part)
        nfa.join(end, first)
        end = done
    return CharDfa.of_nfa(nfa, start, end)


def _copies(item: CharDfa, minimum: int, maximum: int | None) -> CharDfa:
    """`minimum` to `maximum` copies."""
    nfa = CharNfa()
    start = end = nfa.state()
    last = nfa.state()
    copies = max(minimum, 1) if maximum is None else maximum
    for made in range(copies):
        if made >= minimum:
            nfa.join(end, last)
        first, done = _added(nfa, item)
        nfa.join(end, first)
        if maximum is None and made == copies - 1:
            nfa.join(done, first)
        end = done
    nfa.join(end, last)
    return CharDfa.of_nfa(nfa, start, last)


def _added(nfa: CharNfa, dfa: CharDfa) -> tuple[int, int]:
    """A copy of an automaton inside of another: the states before and behind its texts."""
    states = [nfa.state() for _ in dfa.rows]
    done = nfa.state()
    for state in range(len(dfa.rows)):
        for ranges, target in dfa.edges(state):
            nfa.read(states[state], ranges, states[target])
        if state in dfa.accepting:
            nfa.join(states[state], done)
    return states[0], done
