"""Random texts of a grammar.

Owns `sample`. A text is a walk through the automaton over bytes. Every walk draws a length that it
must not pass, small ones as likely as large ones on a logarithmic scale; a step goes to one of the
states that can still be completed within that length, each distinct next state as likely as any
other, and in a complete text stopping counts as one more of them. So a walk always ends, both
rare branches and long repetitions are met, and equal choices are met equally often. It is not the
uniform law over texts (see below); it is a good tester.

Rejected: weights by the number of texts of a length. They are exact for unambiguous grammars, but
counting takes memory for every state and length, and almost all texts are then noise inside the
widest character class.

Special tokens have no bytes and are never taken; a grammar that cannot do without them raises
`Unsatisfiable`. Cost: about one look-up per byte class and byte.

Example::

    >>> import structspec
    >>> grammar = structspec.compile('root ::= "a" ("b" | root)', syntax="gbnf")
    >>> texts = sample(grammar, 3, seed=1, max_bytes=5)
    >>> all(grammar.accepts(text) and len(text) <= 5 for text in texts)
    True
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np

from structspec.automata.automaton import DEAD, Automaton
from structspec.automata.costs import solve_costs
from structspec.automata.distinct import tells_apart
from structspec.errors import Unsatisfiable
from structspec.grammar import Grammar
from structspec.integers import is_int

__all__ = ["sample", "samples"]


def sample(
    grammar: Grammar, count: int = 1, *, seed: int | None = None, max_bytes: int = 200
) -> list[bytes]:
    """`count` random texts of the language, each at most `max_bytes` long.

    grammar: what `structspec.compile` returned. seed: repeats the texts.

    Raises `Unsatisfiable` if the language has no text without special tokens, or none of at most
    `max_bytes`.
    """
    if not is_int(count, 0):
        raise ValueError(f"count={count!r} is not a number of texts (an int, 0 or more)")
    walks = samples(grammar, seed=seed, max_bytes=max_bytes)
    return [next(walks) for _ in range(count)]


def samples(grammar: Grammar, *, seed: int | None = None, max_bytes: int = 200) -> Iterator[bytes]:
    """Random texts without end; see `sample`."""
    if not isinstance(grammar, Grammar):
        raise TypeError(
            f"a grammar is needed, not {type(grammar).__name__}; make one with structspec.compile"
        )
    rng = random.Random(seed)
    automaton = _without_specials(grammar)
    if automaton.start == DEAD:
        raise Unsatisfiable(
            "no text satisfies the grammar: its language is empty"
            if grammar.is_empty
            else "every text of the grammar holds a special token, which has no bytes to sample"
        )
    shortest = automaton.cost(automaton.start)
    if shortest > max_bytes:
        raise Unsatisfiable(
            f"no text fits: the shortest takes {shortest} bytes, and max_bytes is {max_bytes}"
        )
    walker = _Walker(automaton)
    apart = tells_apart(grammar.network)
    while True:
        low, high = math.log1p(shortest), math.log1p(max_bytes)
        text = walker.walk(rng, round(math.expm1(rng.uniform(low, high))))
        if not apart or grammar.accepts(text):  # the walk does not know of repeated items
            yield text


def _without_specials(grammar: Grammar) -> Automaton:
    """The grammar's automaton; states that need a special token are never entered."""
    network = grammar.network
    if not network.specials:
        return grammar.automaton
    costs = solve_costs(network, np.ones(256, np.bool_), None, ())
    return Automaton(network, costs, grammar.limits)


class _Walker:
    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        network = automaton.network
        self._members = [members for members in network.class_bytes if members]
        self._classes = [c for c, members in enumerate(network.class_bytes) if members]

    def walk(self, rng: random.Random, left: int) -> bytes:
        """One text of at most `left` bytes, or of the fewest that are known to suffice."""
        automaton = self._automaton
        state = automaton.start
        left = max(left, automaton.cost(state))
        text = bytearray()
        while True:
            targets: dict[int, list[int]] = {}
            for number, label in enumerate(self._classes):
                target = automaton.step(state, label)
                if target != DEAD and automaton.cost(target) <= left - 1:
                    targets.setdefault(target, []).append(number)
            accepting = automaton.accepting(state)
            choice = rng.randrange(len(targets) + accepting)
            if choice == len(targets):
                return bytes(text)
            state = list(targets)[choice]
            members = b"".join(self._members[number] for number in targets[state])
            text.append(rng.choice(members))
            left -= 1
