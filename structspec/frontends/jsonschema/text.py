"""Shapes of strings as nodes: finite lists, lengths, and all but a finite list.

A finite list becomes a trie, so that common beginnings are written once; a very long one becomes
its minimal automaton. Patterns are written by
`text_automata`; large ones only in the canonical spelling, which `Spelling.shortened` tells.
Strings with some excluded walk a trie of the excluded ones and, where they leave it, go on freely;
the trie's depth is known at each node, so bounds on the length stay exact.
"""

from __future__ import annotations

import math
from typing import Any

from structspec import ir
from structspec.automata.chardfa import CharDfa
from structspec.errors import BudgetExceeded
from structspec.frontends.jsonschema import text_automata
from structspec.frontends.jsonschema.budget import most_states, spend, write
from structspec.frontends.jsonschema.format_texts import DENIABLE, format_texts
from structspec.frontends.jsonschema.formats import Format
from structspec.frontends.jsonschema.intervals import LENGTHS, Intervals, contains
from structspec.frontends.jsonschema.spelling import ALL_CHARACTERS, Ranges, Spelling, spell
from structspec.frontends.jsonschema.strings import StringShape
from structspec.frontends.jsonschema.text_automata import words_dfa, words_node

__all__ = ["string_texts"]

_QUOTE = ir.Bytes(b'"')
#: Any string, by whether every spelling is written.
_FREE = {
    every: ir.Sequence(
        (_QUOTE, ir.Repeat(spell(ALL_CHARACTERS, "any" if every else "canonical"), 0, None), _QUOTE)
    )
    for every in (False, True)
}
_TRIE_FROM = 3
# Values of more characters than this together share their ends as well as their beginnings.
_MANY_CHARACTERS = 16_384
# Other spellings of a character multiply states; automata above this size do without them.
_MOST_ESCAPED = 2_000
# A trie gets a rule at every so many branchings, so that nodes stay shallow.
_BRANCHINGS = 8


def string_texts(
    shape: StringShape, spelling: Spelling, rules: dict[str, ir.Node], *, registers: bool = True
) -> ir.Node:
    """The spelled strings of a shape, quotes included; `refusals` are the caller's business.

    registers: whether a register may count the characters beside a pattern.
    """
    if shape.values is not None:
        values = shape.values
        if shape.formats:
            values = tuple(filter(shape.admits, values))
        if len(values) < _TRIE_FROM:
            write(max(map(len, values), default=0))
            return ir.choice([spelling.text(value) for value in values])
        if sum(map(len, values)) > _MANY_CHARACTERS and not any(map(_broken, values)):
            return ir.sequence((_QUOTE, _words(values, spelling), _QUOTE))
        return ir.sequence((_QUOTE, _among(values, spelling, rules), _QUOTE))
    kind = _one_large_format(shape, registers)
    if kind is not None:
        ((_, has),) = shape.formats
        content = format_texts(kind, spelling, has=has, registers=registers)
        return ir.sequence((_QUOTE, content, _QUOTE))
    pattern = shape.automaton
    if pattern is not None:
        if shape.excluded:
            pattern = pattern.difference(words_dfa(shape.excluded))
        content = _matching(pattern, shape.lengths, spelling, registers)
    elif not shape.excluded:
        if shape.lengths == LENGTHS:
            return _FREE[spelling.any]
        content = _free(spelling.character(), shape.lengths, 0)
    else:
        content = _outside(shape, spelling, rules)
    return ir.NOTHING if content == ir.NOTHING else ir.sequence((_QUOTE, content, _QUOTE))


def _one_large_format(shape: StringShape, registers: bool = True) -> Format | None:
    """The format, if it is large and nothing else says what the strings are."""
    if len(shape.formats) != 1 or shape.pattern is not None or shape.excluded:
        return None
    ((kind, has),) = shape.formats
    if not kind.large:
        return None
    if not has:
        deniable = kind.name in DENIABLE and kind.exact and registers
        return kind if deniable and shape.lengths == LENGTHS else None
    # Bounds that every such string keeps say nothing.
    shortest, longest = kind.span
    return kind if contains(shape.lengths, shortest, longest + 1) else None


def _matching(pattern: CharDfa, lengths: Intervals, spelling: Spelling, registers: bool) -> ir.Node:
    """The strings of an automaton; if it is large, only with the escapes that JSON demands."""
    if pattern.n_states <= _MOST_ESCAPED:
        content = text_automata.lower(pattern, lengths, spelling, registers=registers)
        large = isinstance(content, ir.Automaton) and len(content.edges) > _MOST_ESCAPED
        if not large or not spelling.any:
            return content
    spelling.shortened = spelling.shortened or spelling.any
    canonical = Spelling("canonical", spelling.rules)
    return text_automata.lower(pattern, lengths, canonical, registers=registers)


def _free(character: ir.Node, lengths: Intervals, read: int) -> ir.Node:
    """Any characters, when `read` have been read, so that the length comes out right."""
    return ir.choice(
        ir.Repeat(character, max(int(low) - read, 0), None if high == math.inf else high - 1 - read)
        for low, high in lengths
        if high - 1 >= read
    )


def _among(values: tuple[str, ...], spelling: Spelling, rules: dict[str, ir.Node]) -> ir.Node:
    """A trie of the values; stretches without a branching are one sequence each."""
    # A branching: the values that pass it, how many of their characters come before, its depth.
    queue: list[tuple[list[str], int, int]] = [(list(values), 0, 0)]
    #: What leads on from each branching and where to; where values end.
    stretches: list[list[tuple[str, int]]] = []
    ends: list[bool] = []
    for passing, read, level in queue:
        groups: dict[str, list[str]] = {}
        ended = False
        for text in passing:
            if len(text) > read:
                groups.setdefault(text[read], []).append(text)
            else:
                ended = True
        ends.append(ended)
        found: list[tuple[str, int]] = []
        for group in groups.values():
            end = len(group[0]) if len(group) == 1 else _shared(group, read)
            found.append((group[0][read:end], len(queue)))
            queue.append((group, end, level + 1))
        stretches.append(found)
    prefix = f"among-{len(rules)}"
    nodes: list[ir.Node] = [ir.EPSILON] * len(queue)
    for index in range(len(queue) - 1, -1, -1):
        if stretches[index]:
            # They begin with different characters, so no two are the same.
            options: list[ir.Node] = [ir.EPSILON] if ends[index] else []
            for stretch, target in stretches[index]:
                option = spelling.followed(stretch, nodes[target])
                options.extend(option.items if type(option) is ir.Choice else (option,))
            nodes[index] = options[0] if len(options) == 1 else ir.Choice(tuple(options))
        level = queue[index][2]
        if level and level % _BRANCHINGS == 0:
            rules[f"{prefix}.{index}"] = nodes[index]
            nodes[index] = ir.Rule(f"{prefix}.{index}")
    return nodes[0]


def _shared(texts: list[str], read: int) -> int:
    """Up to where several texts are the same, which are so up to `read`."""
    # What the first and the last in alphabetical order share, all between them share.
    low, high = min(texts), max(texts)
    end, most = read, min(len(low), len(high))
    while end < most and low[end] == high[end]:
        end += 1
    return end


def _broken(value: str) -> bool:
    """Whether half a surrogate pair is in the value, which is no character."""
    return not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)


def _words(values: tuple[str, ...], spelling: Spelling) -> ir.Node:
    """The minimal automaton of very many values: common ends are shared as well."""
    spend(sum(map(len, values)) >> 3)
    most = most_states()

    def label(ranges: Ranges) -> ir.Node:
        codes = (code for low, high in ranges for code in range(low, high + 1))
        return ir.choice(spelling.characters("".join(map(chr, codes)), apart=True))

    try:
        return words_node(values, label, most)
    except BudgetExceeded as error:
        if error.what != "states":
            raise
        raise BudgetExceeded("states", most, error.needed, adjustable=True) from error


def _outside(shape: StringShape, spelling: Spelling, rules: dict[str, ir.Node]) -> ir.Node:
    trie: dict[str, Any] = {}
    ends: set[int] = set()
    for text in shape.excluded:
        node = trie
        for character in text:
            node = node.setdefault(character, {})
        ends.add(id(node))
    prefix = f"outside-{len(rules)}"
    anything = spelling.character()
    queue: list[tuple[str, int, dict[str, Any]]] = [(prefix, 0, trie)]
    for name, depth, node in queue:
        options: list[ir.Node] = []
        if id(node) not in ends and contains(shape.lengths, depth, depth + 1):
            options.append(ir.EPSILON)
        after = _free(anything, shape.lengths, depth + 1)
        others = _without(sorted(map(ord, node)))
        if after != ir.NOTHING:
            options.append(ir.sequence((spelling.character(others), after)))
        for character in sorted(node):
            child = f"{prefix}.{len(queue)}"
            queue.append((child, depth + 1, node[character]))
            options.append(
                ir.sequence((spelling.character(((ord(character),) * 2,)), ir.Rule(child)))
            )
        rules[name] = ir.choice(options)
    return ir.Rule(prefix)


def _without(codes: list[int]) -> Ranges:
    ranges: list[tuple[int, int]] = []
    for low, high in ALL_CHARACTERS:
        for code in codes:
            if low <= code <= high:
                if low < code:
                    ranges.append((low, code - 1))
                low = code + 1
        if low <= high:
            ranges.append((low, high))
    return tuple(ranges)
