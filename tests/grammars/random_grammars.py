"""Random Lark grammars: recursion left, right, hidden and mutual, empty rules, templates."""

from __future__ import annotations

import random

from lark import Lark
from lark.exceptions import LarkError

#: Terminals for which lark's greedy matching misses no text (see `test_lark_differential`).
_STRINGS = ['"a"', '"b"', '"ab"', '"ba"', '"c"', '"B"i', '"a".."c"']
_PATTERNS = ["/[ab]/", "/a+/", "/[bc]+/", "/ab*/", "/c?a/", "/[^a]/", "/A/i"]
#: Terminals whose texts an ordered or lazy match does not all find.
_ORDERED = [
    "/a|ab/",
    "/(ab?)(bc)?/",
    "/a+?/",
    "/(?:a|ab)(?:c|bc)/",
    "/a(?=b)bc?|ac/",
    "/(?!b)[abc]+/",
]
# Lark writes optional parts and counts out; its parser is slow where many rules are ambiguous.
_MOST_RULES = 24


def grammar(rng: random.Random, *, ordered: bool = False) -> str:
    """The text of a random grammar that lark can load."""
    while True:
        text = _text(rng, ordered)
        try:
            parser = Lark(text, parser="earley", lexer="dynamic_complete")
        except (LarkError, AssertionError):
            continue  # colliding alternatives, say
        if len(parser.rules) <= _MOST_RULES:
            return text


def _text(rng: random.Random, ordered: bool) -> str:
    names = ["start", "_x", "y", "z"][: rng.randint(1, 4)]
    terminals = ["T", "_U"][: rng.randint(0, 2)]
    atoms = [*_STRINGS, *_PATTERNS, *(_ORDERED if ordered else ())]

    def atom(depth: int) -> str:
        kind = rng.random()
        if kind < 0.45:
            return rng.choice(names)
        if kind < 0.6 and terminals:
            return rng.choice(terminals)
        if kind < 0.7 and depth:
            return f"({alternatives(depth - 1)})"
        if kind < 0.76 and depth:
            return f"[{alternatives(depth - 1)}]"
        if kind < 0.8:
            return f"sep{{{rng.choice(names)}, {rng.choice(_STRINGS[:5])}}}"
        return rng.choice(atoms)

    def part(depth: int) -> str:
        signs = ["", "", "", "", "?", "*", "+", "~2", "~0..2", "~1..2"]
        return atom(depth) + rng.choice(signs)

    def alternatives(depth: int) -> str:
        found = [
            " ".join(part(depth) for _ in range(rng.choice([0, 1, 1, 2, 2, 3])))
            for _ in range(rng.randint(1, 3))
        ]
        return " | ".join(found)

    lines = [f"{rng.choice(['', '', '!'])}{name}: {alternatives(1)}" for name in names]
    lines.append("sep{item, sign}: item (sign item)*")
    for name in terminals:
        if ordered and rng.random() < 0.5:
            lines.append(f"{name}: {rng.choice(atoms)} | {rng.choice(atoms)} {rng.choice(atoms)}")
        else:
            lines.append(f"{name}: {rng.choice(_STRINGS)}{rng.choice(['', '+'])}")
    ignore = rng.choice(["", "", '%ignore " "', '%ignore /[ ]/\n%ignore "--"'])
    return "\n".join([*lines, ignore, ""])


def texts(rng: random.Random, count: int, longest: int = 6) -> list[str]:
    """Random short texts over the alphabet of the grammars."""
    return [
        "".join(rng.choice("aaabbbccAB -") for _ in range(rng.randint(0, longest)))
        for _ in range(count)
    ]


def mutated(rng: random.Random, text: str) -> str:
    """The text with one sign lost, doubled, swapped or put in."""
    at = rng.randrange(len(text) + 1)
    kind = rng.randrange(4)
    if kind == 0:
        return text[:at] + text[at + 1 :]
    if kind == 1:
        return text[:at] + text[at : at + 1] + text[at:]
    if kind == 2:
        return text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]
    return text[:at] + rng.choice("abcAB -") + text[at:]
