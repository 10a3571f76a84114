"""Formats as nodes where their minimal automaton is large: `date-time`, `time`, `hostname`.

`format_texts` gives the same language as lowering `Format.inside`, in a network that is many times
smaller, because rules are called where an automaton has to repeat itself:

- a leap second ties the local minute (1,440 of them) to one offset either way. Seconds, fraction
  and the hour of the offset are one rule per hour and sign, so only the minutes are states. What is
  no time is what does not even look like one, or has second 60 and another offset;
- a hostname has up to 253 characters in labels of up to 63. States count those of the label, a
  register those of the name. Where registers are not allowed (in keys) states count whole labels:
  the next label of n characters is a rule, one for each n.

The many states of both share the escapes of a character through rules.

Sibling: `formats` has the automata, for when a format meets a pattern, bounds or `not`.

Example::

    >>> from structspec.frontends.jsonschema.formats import format_of
    >>> from structspec.frontends.jsonschema.spelling import Spelling
    >>> rules = {}
    >>> node = format_texts(format_of("time", 2020), Spelling("canonical", rules))
    >>> len(rules)
    97
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from structspec import ir
from structspec.automata.chardfa_alphabet import merged
from structspec.frontends.jsonschema.formats import (
    Format,
    date_dfa,
    label_dfa,
    loose_time_dfa,
    names_dfa,
    ordinary_time_dfa,
)
from structspec.frontends.jsonschema.intervals import LENGTHS
from structspec.frontends.jsonschema.spelling import Spelling
from structspec.frontends.jsonschema.text_automata import lower

__all__ = ["DENIABLE", "format_texts"]

_DAY = 24 * 60
_DIGITS = ((0x30, 0x39),)
_LONGEST_NAME = 253
_NAMES = ((1, _LONGEST_NAME + 1),)
_LONGEST_LABEL = 63


#: Formats of which `format_texts` also writes the strings that have them not.
DENIABLE = frozenset({"date-time", "time"})


def format_texts(
    entry: Format, spelling: Spelling, *, has: bool = True, registers: bool = True
) -> ir.Node:
    """The spelled content of the strings `entry.inside`; adds rules to `spelling.rules`.

    has: False for `entry.outside`, of `DENIABLE` formats; registers: whether a register may count
    the characters.
    """
    node, rules = _kept(entry, "any" if spelling.any else "canonical", has, registers)
    spelling.rules.update(rules)
    return node


@cache
def _kept(
    entry: Format, policy: Literal["any", "canonical"], has: bool, registers: bool
) -> tuple[ir.Node, dict[str, ir.Node]]:
    rules: dict[str, ir.Node] = {}
    spelling = Spelling(policy, rules)
    if has:
        return _texts(entry, spelling, registers), rules
    return _no_time(spelling, entry.name == "date-time"), rules


def _texts(entry: Format, spelling: Spelling, registers: bool) -> ir.Node:
    if entry.name == "date-time":
        return _dated(_time(spelling), spelling)
    if entry.name == "time":
        return _time(spelling)
    if entry.name == "hostname":
        if registers:
            return lower(names_dfa(entry.exact), _NAMES, spelling)
        return _hostname(entry.exact, spelling)
    return lower(entry.inside, LENGTHS, spelling)


def _dated(time: ir.Node, spelling: Spelling) -> ir.Node:
    tee = spelling.character(((0x54, 0x54), (0x74, 0x74)))
    return ir.sequence((lower(date_dfa(), LENGTHS, spelling), tee, time))


def _no_time(spelling: Spelling, dated: bool) -> ir.Node:
    """What is no time (behind a date): not even with second 60 wherever one likes, or just so."""
    others = lower(loose_time_dfa(dated).complement(), LENGTHS, spelling)
    spelling.rules["no-leap-second"] = ir.NOTHING  # its place is before the rules that it calls
    spelling.rules["no-leap-second"] = _leap_seconds(spelling, right=False)
    sixty: ir.Node = ir.Rule("no-leap-second")
    return ir.choice((others, _dated(sixty, spelling) if dated else sixty))


def _time(spelling: Spelling) -> ir.Node:
    # A rule of its own, so that its states are not paired with those of other times.
    spelling.rules["leap-second"] = ir.NOTHING  # its place is before the rules that it calls
    spelling.rules["leap-second"] = _leap_seconds(spelling)
    return ir.choice((lower(ordinary_time_dfa(), LENGTHS, spelling), ir.Rule("leap-second")))


def _leap_seconds(spelling: Spelling, *, right: bool = True) -> ir.Node:
    """``hh:mm:60`` with the offset that makes it 23:59:60 UTC, or with any other offset."""
    rows: list[list[tuple[ir.Node, int]]] = [[]]
    letters: dict[str, ir.Node] = {}

    def letter(character: str) -> ir.Node:
        node = letters.get(character)
        if node is None:
            (node,) = shared.characters(character, apart=True)
            letters[character] = node
        return node

    shared = Spelling("any" if spelling.any else "canonical", spelling.rules, share=True)
    ways: dict[tuple[int, str], int] = {}

    def step(source: int, text: str) -> int:
        for character in text:
            target = ways.get((source, character))
            if target is None:
                target = ways[source, character] = len(rows)
                rows[source].append((letter(character), target))
                rows.append([])
            source = target
        return source

    places = [step(0, f"{minute // 60:02}:{minute % 60:02}") for minute in range(_DAY)]
    end = len(rows)
    rows.append([])
    digit = spelling.character(_DIGITS)

    def two_digits(most: int, but: int | None = None) -> ir.Node:
        """Two digits up to `most`, but not `but`."""
        options = []
        for tens in range(most // 10 + 1):
            units = [n for n in range(10) if 10 * tens + n <= most and 10 * tens + n != but]
            ranges = merged((0x30 + n, 0x30 + n) for n in units)
            options.append(ir.sequence((letter(str(tens)), spelling.character(ranges))))
        return ir.choice(options)

    minutes = []
    for minute in range(60):
        minutes.append(len(rows))
        exact = ir.sequence(map(letter, f"{minute:02}"))
        rows.append([(ir.sequence((letter(":"), exact if right else two_digits(59, minute))), end)])
    any_minute = len(rows)
    if not right:
        rows.append([(ir.sequence((letter(":"), two_digits(59))), end)])

    def after_sixty(name: str, ending: ir.Node) -> ir.Node:
        """A rule: second 60, any fraction, and the ending."""
        # Right recursion instead of a repeat: the rule is then called, never written out.
        fraction = ir.sequence((digit, ir.Rule(f"{name}:fraction")))
        spelling.rules[f"{name}:fraction"] = ir.choice((ending, fraction))
        spelling.rules[name] = ir.sequence(
            (*map(letter, ":60"), ir.choice((ending, ir.sequence((letter("."), fraction)))))
        )
        return ir.Rule(name)

    hours: dict[tuple[str, int], ir.Node] = {}
    other_hours: dict[tuple[str, int], ir.Node] = {}
    for sign in "+-":
        for hour in range(24):
            name = f"leap-second{sign}{hour:02}"
            hours[sign, hour] = after_sixty(name, ir.sequence(map(letter, f"{sign}{hour:02}")))
            if not right:
                ending = ir.sequence((letter(sign), two_digits(23, hour)))
                other_hours[sign, hour] = after_sixty(f"no-{name}", ending)
    for minute, place in enumerate(places):
        for sign, offset in (("+", (minute + 1) % _DAY), ("-", _DAY - 1 - minute)):
            rows[place].append((hours[sign, offset // 60], minutes[offset % 60]))
            if not right:
                rows[place].append((other_hours[sign, offset // 60], any_minute))
    return ir.Automaton(ir.flat_edges(rows), frozenset((end,)))


def _hostname(tagged: bool, spelling: Spelling) -> ir.Node:
    """State t: labels and dots of t characters are written, and another label follows."""
    labels = label_dfa(tagged)
    dot = spelling.character(((0x2E, 0x2E),))
    kind = "label" if tagged else "untagged-label"
    for size in range(1, _LONGEST_LABEL + 1):
        exact = lower(labels, ((size, size + 1),), spelling)
        spelling.rules[f"{kind}-{size}."] = ir.sequence((exact, dot))
        spelling.rules[f"{kind}-{size}"] = lower(labels, ((1, size + 1),), spelling)
    # A last label needs at least one character.
    order = [0, *range(2, _LONGEST_NAME)]
    index = {written: number for number, written in enumerate(order)}
    end = len(order)
    rows: list[list[tuple[ir.Node, int]]] = []
    for written in order:
        left = _LONGEST_NAME - written
        row: list[tuple[ir.Node, int]] = [
            (ir.Rule(f"{kind}-{size}."), index[written + size + 1])
            for size in range(1, min(_LONGEST_LABEL, left - 2) + 1)
        ]
        row.append((ir.Rule(f"{kind}-{min(_LONGEST_LABEL, left)}"), end))
        rows.append(row)
    return ir.Automaton((*map(tuple, rows), ()), frozenset((end,)))
