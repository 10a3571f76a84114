"""Arrays whose items all differ, over sets without end: what has been written is run-time data.

Whether a string may be closed depends on every earlier item of its array, which no finite automaton
remembers. So the network says only *where* such arrays are, and a `History` beside the
configuration says what they hold: the identities of the items so far, and of the running item what
has been written. A state is then a pair (configuration, history), and a history is kept only
between the brackets of such an array.

The network knows two symbols that no text contains. `OPENED` can be read where the content of such
an array begins; that is how a history begins. `REPEATED` can be read behind an item of every
*other* array; it is fed behind an item that equals an earlier one, so that of several readings of
the text exactly those survive that do not mind.

What an item is, and when it equals another, is `histories`' business. Front ends see to arrays of
at least two items not being demanded.

Law 5: a repeated item may be all that a prefix can still become (`"ab"` where three characters
are the limit and `"abc"` has been written). `Distinct.bound` searches for the nearest place where
the running item is sure to differ; it is also the certified distance: the steps to that place and
the automaton's own distance from there, over which nothing can repeat.

Cost: one step per byte in Python, inside such arrays only; a search ends at the first character
that no earlier item has there, so it rarely goes beyond one step.

Example::

    >>> import structspec
    >>> grammar = structspec.compile({"items": {"type": "string"}, "type": "array",
    ...                               "uniqueItems": True})
    >>> grammar.accepts('["a", "b"]'), grammar.accepts('["a", "b", "\\u0061"]')
    (True, False)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush

from structspec.automata.automaton import DEAD, UNREACHABLE, Automaton
from structspec.automata.histories import History, Phase, beginnings, number
from structspec.automata.tables import Network
from structspec.errors import BudgetExceeded

__all__ = ["OPENED", "REPEATED", "Distinct", "tells_apart"]

#: Symbols of the network that stand for no text; no tokenizer names a token so.
OPENED, REPEATED = "\0items told apart", "\0item repeated"

_QUOTE, _BACKSLASH, _COMMA, _OPEN, _CLOSE = b'"\\,[]'

_BLANKS = frozenset(b" \t\n\r")
# Of a state outside of all such arrays: nothing is contested there.
_OVER = History.begun()

# A search for a place where the running item differs may look at so many states.
_MOST_NODES = 20_000
# Results of searches that are kept.
_MOST_KNOWN = 4096


def tells_apart(network: Network) -> bool:
    """Whether a network has arrays that need a history."""
    return OPENED in network.specials


class Distinct:
    """Runs an automaton together with histories. Hold the automaton's lock during calls.

    writable: the bytes that tokens can write.
    """

    def __init__(self, automaton: Automaton, writable: Iterable[int] = range(256)) -> None:
        network = automaton.network
        self.automaton = automaton
        self._class_of: list[int] = network.class_of.tolist()
        specials = network.specials
        self._opened = network.special_class(specials.index(OPENED))
        self._repeated = (
            network.special_class(specials.index(REPEATED)) if REPEATED in specials else -1
        )
        kept = frozenset(writable)
        self._bytes = [
            [byte for byte in members if byte in kept] for members in network.class_bytes
        ]
        self._known: dict[tuple[int, History], int] = {}
        self._classes: dict[int, list[int]] = {}

    # Running -------------------------------------------------------------------------------

    def run(self, config: int, history: History | None, data: bytes) -> tuple[int, History | None]:
        """The state after some bytes; its configuration is `DEAD` if they do not fit."""
        at, size = 0, len(data)
        while at < size and config != DEAD:
            if history is None:
                stop = data.find(b"[", at) + 1 or size
            elif history.in_string:
                stop = at
                while stop < size and data[stop] not in (_QUOTE, _BACKSLASH):
                    stop += 1
                if stop > at:
                    config = self.automaton.advance(config, data[at:stop])
                    history = history.wrote(data[at:stop])
                    at = stop
                    continue
                stop = at + 1
            else:
                stop = at + 1
            if stop - at > 1:
                config = self.automaton.advance(config, data[at : stop - 1])
                if config == DEAD:
                    break
            config, history = self.step(config, history, data[stop - 1])
            at = stop
        return config, history

    def step(self, config: int, history: History | None, byte: int) -> tuple[int, History | None]:
        """The state after one byte."""
        if history is not None and history.finishing(byte):
            history, repeated = history.finished(number(history.text))
            if repeated:
                config = self._without_repeats(config)
        if config != DEAD:
            config = self.automaton.step(config, self._class_of[byte])
        if config == DEAD:
            return DEAD, None
        following: History | None = None
        if history is not None:
            following, repeated = history.after(byte)
            if repeated:
                config = self._without_repeats(config)
        opens = byte == _OPEN and config != DEAD
        if opens and self.automaton.step(config, self._opened) != DEAD:
            following = History.begun() if following is None else following.opened()
        return config, following

    def _without_repeats(self, config: int) -> int:
        return DEAD if self._repeated < 0 else self.automaton.step(config, self._repeated)

    def repeats(self, history: History, data: bytes) -> bool:
        """Whether some item of `data` equals an earlier one, or the last may come to."""
        current = history
        for at, byte in enumerate(data):
            following, repeated = current.after(byte)
            if repeated:
                return True
            # whether items of an inner array have to differ is not known here
            inner = byte == _OPEN and not current.in_text and _COMMA in data[at:]
            if inner or following is None:
                return _OPEN in data[at:]
            current = following
        return current.contested

    # Completing ----------------------------------------------------------------------------

    def bound(self, config: int, history: History | None) -> int:
        """A certified distance to a complete text, `UNREACHABLE` if there is none.

        Certificate: it is the least length of a way to a state where nothing can repeat any more,
        plus the automaton's distance behind it; behind the first byte of that way the same one is
        one shorter.
        """
        if config == DEAD:
            return UNREACHABLE
        if history is None or self._settled(config, history):
            return self.automaton.cost(config)
        key = (config, history)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = self._search(config, history)
        return found

    def _search(self, config: int, history: History) -> int:
        """A* over bytes: what has to be written at least is what the automaton's cost says."""
        cost = self.automaton.cost
        seen: set[tuple[int, History | None]] = {(config, history)}
        # Least in all first, of equals the longest.
        queue: list[tuple[int, int, int, int, History]] = [(cost(config), 0, 0, config, history)]
        # Spellings of one value are without end (0.0, 0.00, ...). What is added gives all of them
        # the same value or each another, so one more than there are earlier items is enough.
        spellings: Counter[tuple[int, bytes]] = Counter()
        while queue:
            least, length, _, here, written = heappop(queue)
            if length and self._settled(here, written):
                return min(UNREACHABLE, least)
            for byte in self._ways(here, written):
                after, text = self.step(here, written, byte)
                if after == DEAD or (after, text) in seen:
                    continue
                seen.add((after, text))
                if text is None:
                    text = _OVER
                elif text.phase == Phase.NUMBER:
                    value = (after, number(text.text))
                    spellings[value] += 1
                    if spellings[value] > sum(1 for _ in text.scalars()) + 1:
                        continue
                entry = (1 - length + cost(after), length - 1, len(seen), after, text)
                heappush(queue, entry)
            if len(seen) > _MOST_NODES:
                raise BudgetExceeded("states", _MOST_NODES, len(seen))
        return UNREACHABLE

    def _live(self, config: int) -> list[int]:
        """The byte classes that may follow."""
        found = self._classes.get(config)
        if found is None:
            if len(self._classes) >= _MOST_KNOWN:
                self._classes.clear()
            step = self.automaton.step
            found = self._classes[config] = [
                byte_class
                for byte_class, members in enumerate(self._bytes)
                if members and step(config, byte_class) != DEAD
            ]
        return found

    def _ways(self, config: int, history: History) -> list[int]:
        """Bytes that stand for all that may follow.

        In strings those of earlier items and one other, behind which nothing is contested; blanks
        and escapes only where there is nothing else, since they change nothing.
        """
        telling = beginnings(history.scalars(), history.text) if history.in_string else None
        ways: list[int] = []
        spare: list[int] = []
        other = -1
        for byte_class in self._live(config):
            for byte in self._bytes[byte_class]:
                if telling is None:
                    (spare if byte in _BLANKS and not history.in_text else ways).append(byte)
                elif byte == _BACKSLASH:
                    spare.append(byte)
                elif byte in telling or byte == _QUOTE:
                    ways.append(byte)
                elif other < 0:
                    other = byte
        if telling is None:
            return ways or spare
        return [*ways, other] if other >= 0 else ways + spare

    def _settled(self, config: int, history: History) -> bool:
        """Whether the automaton's cheapest completion repeats nothing."""
        if not history.contested:
            return True
        if len(history.frames) > 1:  # what follows may depend on what is written here
            return False
        if history.in_string:
            return history.text not in history.scalars() and self._goes_on(config, (_QUOTE,))
        if history.phase == Phase.NUMBER:
            return self._goes_on(config, (_CLOSE, _COMMA)) and (
                number(history.text) not in history.scalars()
            )
        return False

    def _goes_on(self, config: int, some: tuple[int, ...]) -> bool:
        class_of, step = self._class_of, self.automaton.step
        return any(step(config, class_of[byte]) != DEAD for byte in some)
