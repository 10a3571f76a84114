"""Why a vocabulary cannot write any text of a grammar."""

from __future__ import annotations

from structspec.automata.automaton import DEAD, Automaton, byte_costs
from structspec.automata.tables import Network
from structspec.errors import Unsatisfiable
from structspec.vocab import Vocabulary

__all__ = ["unsatisfiable"]


def unsatisfiable(network: Network, vocab: Vocabulary) -> Unsatisfiable:
    """The error that says what is missing: any text at all, special tokens, or bytes.

    The shortest text is followed byte by byte.
    """
    automaton = Automaton(network, byte_costs(network))
    if automaton.start == DEAD:
        return Unsatisfiable("no text satisfies the grammar: its language is empty")
    config, needed, special, steps = automaton.start, bytearray(), [], 0
    while automaton.cost(config) and steps < 1 << 16:
        steps += 1
        for byte in range(256):
            following = automaton.advance(config, bytes((byte,)))
            if following != DEAD and automaton.cost(following) < automaton.cost(config):
                needed.append(byte)
                config = following
                break
        else:
            for name in network.specials:
                following = automaton.advance_special(config, name)
                if following != DEAD and automaton.cost(following) < automaton.cost(config):
                    special.append(name)
                    config = following
                    break
    lacking = tuple(dict.fromkeys(name for name in special if vocab.special_id(name) is None))
    if lacking:
        shown = ", ".join(map(repr, lacking))
        return Unsatisfiable(
            f"this vocabulary cannot write any text of the grammar: it has no special token "
            f"{shown}, which even the shortest text needs; use another tokenizer or grammar",
            missing_special=lacking,
        )
    missing = bytes(sorted(set(needed) - vocab.written_bytes))
    if missing:
        shown = ", ".join(f"{b:02X}" + (f" ({chr(b)!r})" if 32 < b < 127 else "") for b in missing)
        return Unsatisfiable(
            f"this vocabulary cannot write any text of the grammar: no token contains the "
            f"byte(s) {shown}, which even the shortest text needs; use another tokenizer or "
            f"change the schema",
            missing=missing,
        )
    return Unsatisfiable(
        "this vocabulary cannot write any text of the grammar: its tokens do not combine to one "
        f"(the shortest text is {bytes(needed)!r})"
    )
