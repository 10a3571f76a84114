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

Identity is JSON's: strings by their decoded characters, numbers by value, literals by name. Items
are scalars; front ends see to that, and to arrays of at least two items not being demanded.

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
from typing import NamedTuple

from structspec.automata.automaton import DEAD, UNREACHABLE, Automaton
from structspec.automata.tables import Network
from structspec.errors import BudgetExceeded

__all__ = ["OPENED", "REPEATED", "Distinct", "History", "tells_apart"]

#: Symbols of the network that stand for no text; no tokenizer names a token so.
OPENED, REPEATED = "\0items told apart", "\0item repeated"

# Phases of a history: behind the bracket, behind an item, behind a comma, in an item of some kind.
START, AFTER, COMMA, STRING, NUMBER, LITERAL = range(6)

_QUOTE, _BACKSLASH, _COMMA, _OPEN, _CLOSE = b'"\\,[]'
_BLANKS = frozenset(b" \t\n\r")
_DIGITS = frozenset(b"0123456789")
_NUMERIC = frozenset(b"0123456789+-.eE")
_ESCAPES = dict(
    zip(b'"\\/bfnrt', (b'"', b"\\", b"/", b"\b", b"\f", b"\n", b"\r", b"\t"), strict=True)
)
_LITERALS = frozenset((b"true", b"false", b"null"))

# A search for a place where the running item differs may look at so many states.
_MOST_NODES = 20_000
# Longer exponents are not compared.
_MOST_DIGITS = 1000
# Results of searches that are kept.
_MOST_KNOWN = 4096


class History(NamedTuple):
    """What has been written of an array since its bracket.

    used: identities of the finished items. text: of the running item what has been decoded, a
    quote before strings. pending: an escape that has begun.
    """

    used: frozenset[bytes]
    phase: int = START
    text: bytes = b""
    pending: bytes = b""

    @property
    def contested(self) -> bool:
        """Whether the running item, or the one that has to come, may still equal an earlier one."""
        used, phase, text, _ = self
        if phase in (STRING, LITERAL):
            return any(identity.startswith(text) for identity in used)
        if phase == NUMBER:
            return any(identity.startswith(b"#") for identity in used)
        return phase == COMMA and bool(used)


_EMPTY = History(frozenset())


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

    # Running -------------------------------------------------------------------------------

    def run(self, config: int, history: History | None, data: bytes) -> tuple[int, History | None]:
        """The state after some bytes; its configuration is `DEAD` if they do not fit."""
        at, size = 0, len(data)
        while at < size and config != DEAD:
            if history is None:
                stop = data.find(b"[", at) + 1 or size
            elif history.phase == STRING and not history.pending:
                stop = at
                while stop < size and data[stop] not in (_QUOTE, _BACKSLASH):
                    stop += 1
                if stop > at:
                    config = self.automaton.advance(config, data[at:stop])
                    history = history._replace(text=history.text + data[at:stop])
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
        automaton, byte_class = self.automaton, self._class_of[byte]
        following: History | None = None
        finished: bytes | None = None
        before = False
        if history is not None:
            following, finished, before = _after(history, byte)
            if finished is not None and finished in history.used:
                following = None  # only readings that do not mind are left
            else:
                finished = None
        if finished is not None and before:
            config = self._without_repeats(config)
        if config != DEAD:
            config = automaton.step(config, byte_class)
        if config != DEAD and finished is not None and not before:
            config = self._without_repeats(config)
        opens = following is None and byte == _OPEN and config != DEAD
        if opens and automaton.step(config, self._opened) != DEAD:
            following = _EMPTY
        return config, following

    def _without_repeats(self, config: int) -> int:
        return DEAD if self._repeated < 0 else self.automaton.step(config, self._repeated)

    def repeats(self, history: History, data: bytes) -> bool:
        """Whether some item of `data` equals an earlier one, or the last may come to."""
        current = history
        for at, byte in enumerate(data):
            following, finished, _ = _after(current, byte)
            if finished is not None and finished in current.used:
                return True
            if following is None:
                return _OPEN in data[at:]
            current = following
        return current.contested

    # Completing ----------------------------------------------------------------------------

    def bound(self, config: int, history: History | None) -> int:
        """A certified distance to a complete text, `UNREACHABLE` if there is none.

        Certificate: the shortest way to a state where nothing can repeat any more, `length` bytes,
        ends at the least distance of the automaton; behind its first byte the same way is one
        shorter.
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
        seen: set[tuple[int, History | None]] = {(config, history)}
        level: list[tuple[int, History]] = [(config, history)]
        # Spellings of one value are without end (0.0, 0.00, ...). What is added gives all of them
        # the same value or each another, so one more than there are earlier items is enough.
        spellings: Counter[tuple[int, bytes]] = Counter()
        length = 0
        while level:
            length += 1
            best = UNREACHABLE
            following: list[tuple[int, History]] = []
            for here, written in level:
                for byte in self._ways(here, written):
                    after, text = self.step(here, written, byte)
                    if after == DEAD or (after, text) in seen:
                        continue
                    seen.add((after, text))
                    if text is not None and text.phase == NUMBER:
                        value = (after, _number(text.text))
                        spellings[value] += 1
                        if spellings[value] > len(history.used) + 1:
                            continue
                    if text is None or self._settled(after, text):
                        best = min(best, self.automaton.cost(after))
                    else:
                        following.append((after, text))
                if len(seen) > _MOST_NODES:
                    raise BudgetExceeded("states", _MOST_NODES, len(seen))
            if best < UNREACHABLE:
                return min(UNREACHABLE, length + best)
            level = following
        return UNREACHABLE

    def _ways(self, config: int, history: History) -> list[int]:
        """Bytes that stand for all that may follow: those of earlier items, and one other."""
        automaton = self.automaton
        telling: set[int] | None = None
        if history.phase == STRING and not history.pending:
            at, text = len(history.text), history.text
            telling = {
                identity[at]
                for identity in history.used
                if len(identity) > at and identity.startswith(text)
            }
        ways: list[int] = []
        for byte_class, members in enumerate(self._bytes):
            if not members or automaton.step(config, byte_class) == DEAD:
                continue
            if telling is None:
                ways += members
                continue
            other = False
            for byte in members:
                if byte in telling or byte in (_QUOTE, _BACKSLASH):
                    ways.append(byte)
                elif not other:
                    other = True
                    ways.append(byte)
        return ways

    def _settled(self, config: int, history: History) -> bool:
        """Whether the automaton's cheapest completion repeats nothing."""
        if not history.contested:
            return True
        if history.phase == STRING:
            return (
                not history.pending
                and history.text not in history.used
                and self._goes_on(config, (_QUOTE,))
            )
        if history.phase == NUMBER:
            return self._goes_on(config, (_CLOSE, _COMMA)) and (
                _number(history.text) not in history.used
            )
        return False

    def _goes_on(self, config: int, some: tuple[int, ...]) -> bool:
        class_of, step = self._class_of, self.automaton.step
        return any(step(config, class_of[byte]) != DEAD for byte in some)


def _after(history: History, byte: int) -> tuple[History | None, bytes | None, bool]:
    """The history after a byte (None: the array is over, or holds no scalars after all).

    Also the identity of an item that has ended, and whether it ended before the byte.
    """
    used, phase, text, pending = history
    if phase == STRING:
        if pending:
            return _escaped(history, byte)
        if byte == _QUOTE:
            return History(used | {text}, AFTER), text, False
        if byte == _BACKSLASH:
            return History(used, STRING, text, b"\\"), None, False
        return History(used, STRING, text + bytes((byte,))), None, False
    if phase == NUMBER:
        if byte in _NUMERIC:
            return History(used, NUMBER, text + bytes((byte,))), None, False
        identity = _number(text)
        following = _between(used | {identity}, AFTER, byte)
        return following, identity, True
    if phase == LITERAL:
        text += bytes((byte,))
        if text in _LITERALS:
            return History(used | {text}, AFTER), text, False
        return History(used, LITERAL, text), None, False
    return _between(used, phase, byte), None, False


def _between(used: frozenset[bytes], phase: int, byte: int) -> History | None:
    if byte in _BLANKS:
        return History(used, phase)
    if byte == _COMMA:
        return History(used, COMMA)
    if byte == _QUOTE:
        return History(used, STRING, b'"')
    if byte in _DIGITS or byte == 0x2D:
        return History(used, NUMBER, bytes((byte,)))
    if byte in b"tfn":
        return History(used, LITERAL, bytes((byte,)))
    return None


def _escaped(history: History, byte: int) -> tuple[History | None, bytes | None, bool]:
    """The history after a byte of an escape; a pair of surrogates is one escape."""
    used, _, text, pending = history
    if len(pending) == 1 and byte in _ESCAPES:
        return History(used, STRING, text + _ESCAPES[byte]), None, False
    if len(pending) == 6 and byte != _BACKSLASH:  # half a pair stands alone
        alone = History(used, STRING, text + _encoded(_unit(pending)))
        return _after(alone, byte)
    if len(pending) == 7 and byte != 0x75:  # "u"
        alone = History(used, STRING, text + _encoded(_unit(pending)), b"\\")
        return _after(alone, byte)
    pending += bytes((byte,))
    if len(pending) == 6:
        unit = _unit(pending)
        if not 0xD800 <= unit < 0xDC00:
            return History(used, STRING, text + _encoded(unit)), None, False
    if len(pending) == 12:
        high, low = _unit(pending), _unit(pending[6:])
        if 0xDC00 <= low < 0xE000:
            code = 0x10000 + ((high - 0xD800) << 10 | (low - 0xDC00))
            return History(used, STRING, text + _encoded(code)), None, False
        text += _encoded(high)
        if 0xD800 <= low < 0xDC00:
            return History(used, STRING, text, pending[6:]), None, False
        return History(used, STRING, text + _encoded(low)), None, False
    return History(used, STRING, text, pending), None, False


def _unit(escape: bytes) -> int:
    try:
        return int(escape[2:6], 16)
    except ValueError:  # no legal escape; the automaton refuses it
        return 0


def _encoded(code: int) -> bytes:
    return chr(code).encode("utf-8", "surrogatepass")


def _number(text: bytes) -> bytes:
    """The value of a number as a text of its own: sign, digits without outer zeros, exponent."""
    mantissa, _, exponent = text.lower().partition(b"e")
    whole, _, fraction = mantissa.lstrip(b"-").partition(b".")
    digits = (whole + fraction).lstrip(b"0")
    kept = digits.rstrip(b"0")
    if not kept:
        return b"#0"
    magnitude = exponent.lstrip(b"+-").lstrip(b"0")
    if len(magnitude) > _MOST_DIGITS:
        raise BudgetExceeded("digits of an exponent", _MOST_DIGITS, len(magnitude))
    power = int(magnitude or b"0") * (-1 if exponent.startswith(b"-") else 1)
    power += len(digits) - len(kept) - len(fraction)
    return b"#%b%be%d" % (b"-" if text.startswith(b"-") else b"", kept, power)
