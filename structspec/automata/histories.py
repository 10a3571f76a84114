"""`History`: what has been written of an array whose items all differ, value by value.

Owns JSON's identity of values, and what a text inside such an array has decoded so far. Identity is
JSON Schema's: strings by their characters, numbers by value, arrays item by item, objects by their
members in any order, of members with one key the last.

An item is *contested* while it may still equal an earlier one. Its *rivals* are the parts of
earlier items that stand where the running value stands, as long as everything before is equal; once
it differs in a single key it has none.

Invariants
- a history is immutable and hashable: it is half of a state;
- its first frame is an array whose items differ, and at least one frame always is;
- bytes are those of a JSON text; whoever runs the automaton beside it sees to that.

Cost: constant per byte, and per finished value what it takes to compare it with its rivals.
Sibling: `distinct`, which runs an automaton together with histories.

Example::

    >>> history = History.begun()
    >>> for byte in b'{"a": 1}, {"a": 1':
    ...     history, repeated = history.after(byte)
    >>> history.contested, history.finishing(0x7D)
    (True, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from structspec.errors import BudgetExceeded

__all__ = ["Frame", "History", "Identity", "Phase", "number"]

Identity: TypeAlias = "bytes | tuple[Identity, ...] | frozenset[Member]"
"""What equality sees of a value: a scalar's bytes (strings behind a quote, numbers behind "#"), the
items of an array, the members of an object."""
Member: TypeAlias = "tuple[bytes, Identity]"


class Phase:
    """Where a history stands."""

    START, AFTER, COMMA, STRING, NUMBER, LITERAL, KEY, NAMED = range(8)


_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'
_OPEN, _CLOSE, _BRACE, _UNBRACE = b"[]{}"
_BLANKS = frozenset(b" \t\n\r")
_DIGITS = frozenset(b"0123456789")
_NUMERIC = frozenset(b"0123456789+-.eE")
_ESCAPES = dict(
    zip(b'"\\/bfnrt', (b'"', b"\\", b"/", b"\b", b"\f", b"\n", b"\r", b"\t"), strict=True)
)
# JSON's, and those that calls in Python's notation have in their place.
_LITERALS = frozenset((b"true", b"false", b"null", b"True", b"False", b"None"))
# Longer exponents are not compared.
_MOST_DIGITS = 1000
_NONE: frozenset[Identity] = frozenset()


class Frame(NamedTuple):
    """An array or object that is being written.

    done: the identities of an array's items in order, or the members of an object. rivals: earlier
    values that it may still equal. used: where items have to differ, those it has. key: of an
    object the key whose value is running. origin: the rivals that it began with.
    """

    done: tuple[Identity, ...] | frozenset[Member] = ()
    rivals: frozenset[Identity] = _NONE
    used: frozenset[Identity] | None = None
    key: bytes | None = None
    origin: frozenset[Identity] = _NONE

    def of_value(self) -> frozenset[Identity]:
        """The rivals of the value that is running, or has to come."""
        if isinstance(self.done, tuple):
            at = len(self.done)
            found = frozenset(
                rival[at] for rival in self.rivals if isinstance(rival, tuple) and len(rival) > at
            )
            return found | self.used if self.used else found
        return frozenset(
            value for rival in self.rivals for key, value in _members(rival) if key == self.key
        )

    def of_key(self) -> set[bytes]:
        """The keys that rivals have, and those whose value would be written anew."""
        found = {key for rival in self.rivals for key, _ in _members(rival)}
        if self.origin and isinstance(self.done, frozenset):
            found.update(key for key, _ in self.done)
        return found

    def named(self, key: bytes) -> Frame:
        """With the key of a member to come."""
        rivals = self.rivals
        assert isinstance(self.done, frozenset)
        if any(known == key for known, _ in self.done):  # whose value is thereby forgotten
            rest = frozenset(member for member in self.done if member[0] != key)
            rivals = frozenset(rival for rival in self.origin if rest <= _members(rival))
        kept = frozenset(
            rival for rival in rivals if any(known == key for known, _ in _members(rival))
        )
        return self._replace(rivals=kept, key=key)

    def finished(self, identity: Identity) -> tuple[Frame, bool]:
        """With one more value; also whether it repeats an item, which then are free to."""
        if isinstance(self.done, tuple):
            repeated = self.used is not None and identity in self.used
            used = None if repeated or self.used is None else self.used | {identity}
            at = len(self.done)
            kept: frozenset[Identity] = frozenset(
                rival
                for rival in self.rivals
                if isinstance(rival, tuple) and len(rival) > at and rival[at] == identity
            )
            return Frame((*self.done, identity), kept, used, None, self.origin), repeated
        assert self.key is not None
        member = (self.key, identity)
        done = frozenset(known for known in self.done if known[0] != self.key) | {member}
        kept = frozenset(rival for rival in self.rivals if member in _members(rival))
        return Frame(done, kept, None, None, self.origin), False


def _members(rival: Identity) -> frozenset[Member]:
    assert isinstance(rival, frozenset)
    return rival


class History(NamedTuple):
    """See the module.

    frames: the containers around the running value, the outermost one first. text: of the running
    scalar or key what has been decoded, a quote before strings. pending: an escape that has begun.
    """

    frames: tuple[Frame, ...]
    phase: int = Phase.START
    text: bytes = b""
    pending: bytes = b""

    @classmethod
    def begun(cls) -> History:
        """Behind the bracket of an array whose items differ."""
        return cls((Frame(used=frozenset()),))

    def opened(self) -> History:
        """Behind the bracket of an inner array, whose items differ, too."""
        return self._replace(frames=(*self.frames[:-1], self.top._replace(used=frozenset())))

    @property
    def top(self) -> Frame:
        """The innermost container."""
        return self.frames[-1]

    @property
    def weight(self) -> int:
        """How many identities it holds for the first time."""
        return 0 if self.text else sum(len(f.used or ()) + len(f.done) for f in self.frames)

    @property
    def in_text(self) -> bool:
        """Whether a string or a key is running."""
        return self.phase in (Phase.STRING, Phase.KEY)

    @property
    def in_string(self) -> bool:
        """The same, and the next byte begins a character of it, or ends it."""
        return self.in_text and not self.pending

    # -- rivals ------------------------------------------------------------------------------

    def scalars(self) -> Iterator[bytes]:
        """What the running scalar or key must be to equal an earlier one's."""
        if self.phase == Phase.KEY:
            yield from self.top.of_key()
        else:
            yield from (rival for rival in self.top.of_value() if isinstance(rival, bytes))

    @property
    def contested(self) -> bool:
        """Whether a running item, or one that has to come, may still equal an earlier one."""
        phase, text, top = self.phase, self.text, self.frames[-1]
        if phase in (Phase.STRING, Phase.LITERAL, Phase.KEY):
            return any(rival.startswith(text) for rival in self.scalars())
        if phase == Phase.NUMBER:
            return any(rival.startswith(b"#") for rival in self.scalars())
        if phase == Phase.NAMED or (phase == Phase.COMMA and isinstance(top.done, tuple)):
            return bool(top.of_value())
        return bool(top.rivals)

    # -- bytes -------------------------------------------------------------------------------

    def wrote(self, data: bytes) -> History:
        """After characters of a string, none of them a quote or a backslash."""
        return History(self.frames, self.phase, self.text + data)

    def finishing(self, byte: int) -> bool:
        """Whether a number ends before this byte."""
        return self.phase == Phase.NUMBER and byte not in _NUMERIC

    def finished(self, identity: Identity) -> tuple[History | None, bool]:
        """Behind one more value; see `after`."""
        frame, repeated = self.top.finished(identity)
        if len(self.frames) == 1:  # the outermost array equals nothing: its order does not matter
            frame = frame._replace(done=())
        frames = (*self.frames[:-1], frame)
        if repeated and all(each.used is None for each in frames):
            return None, True
        return History(frames, Phase.AFTER), repeated

    def after(self, byte: int) -> tuple[History | None, bool]:
        """The history behind a byte, and whether a value that ended repeats an item of its array.

        None: nothing has to differ any more. Where an item was repeated, the history is that of
        readings to which it does not matter.
        """
        if self.finishing(byte):
            following, repeated = self.finished(number(self.text))
            if following is None:
                return None, True
            then, again = following.after(byte)
            return then, repeated or again
        phase, text = self.phase, self.text
        if self.in_text:
            return self._in_string(byte)
        if phase == Phase.NUMBER:
            return self.wrote(bytes((byte,))), False
        if phase == Phase.LITERAL:
            text += bytes((byte,))
            return self.finished(text) if text in _LITERALS else (self.wrote(text[-1:]), False)
        return self._between(byte)

    def _between(self, byte: int) -> tuple[History | None, bool]:
        frames, phase = self.frames, self.phase
        if byte in _BLANKS or byte == _COLON:
            return self, False
        if byte == _COMMA:
            return History(frames, Phase.COMMA), False
        if byte == _QUOTE:
            keyed = not isinstance(self.top.done, tuple) and phase != Phase.NAMED
            return History(frames, Phase.KEY if keyed else Phase.STRING, b'"'), False
        if byte in _DIGITS or byte == 0x2D:
            return History(frames, Phase.NUMBER, bytes((byte,))), False
        if byte in b"tfnTFN":
            return History(frames, Phase.LITERAL, bytes((byte,))), False
        if byte in (_OPEN, _BRACE):
            kind = tuple if byte == _OPEN else frozenset
            rivals = frozenset(rival for rival in self.top.of_value() if isinstance(rival, kind))
            return History((*frames, Frame(kind(), rivals, origin=rivals))), False
        if byte in (_CLOSE, _UNBRACE) and len(frames) > 1:
            return History(frames[:-1], Phase.AFTER).finished(self.top.done)
        return None, False

    def _in_string(self, byte: int) -> tuple[History | None, bool]:
        if self.pending:
            return self._escaped(byte)
        if byte == _BACKSLASH:
            return History(self.frames, self.phase, self.text, b"\\"), False
        if byte != _QUOTE:
            return self.wrote(bytes((byte,))), False
        if self.phase == Phase.KEY:
            return History((*self.frames[:-1], self.top.named(self.text)), Phase.NAMED), False
        return self.finished(self.text)

    def _escaped(self, byte: int) -> tuple[History | None, bool]:
        """After a byte of an escape; a pair of surrogates is one escape."""
        pending, written = self.pending, History(self.frames, self.phase, self.text)
        if len(pending) == 1 and byte in _ESCAPES:
            return written.wrote(_ESCAPES[byte]), False
        if len(pending) == 6 and byte != _BACKSLASH:  # half a pair stands alone
            return written.wrote(_encoded(_unit(pending))).after(byte)
        if len(pending) == 7 and byte != 0x75:  # "u"
            alone = written.wrote(_encoded(_unit(pending)))
            return alone._replace(pending=b"\\").after(byte)
        pending += bytes((byte,))
        if len(pending) == 6:
            unit = _unit(pending)
            if not 0xD800 <= unit < 0xDC00:
                return written.wrote(_encoded(unit)), False
        if len(pending) == 12:
            high, low = _unit(pending), _unit(pending[6:])
            if 0xDC00 <= low < 0xE000:
                code = 0x10000 + ((high - 0xD800) << 10 | (low - 0xDC00))
                return written.wrote(_encoded(code)), False
            written = written.wrote(_encoded(high))
            if 0xD800 <= low < 0xDC00:
                return written._replace(pending=pending[6:]), False
            return written.wrote(_encoded(low)), False
        return History(self.frames, self.phase, self.text, pending), False


def _unit(escape: bytes) -> int:
    try:
        return int(escape[2:6], 16)
    except ValueError:  # no legal escape; the automaton refuses it
        return 0


def _encoded(code: int) -> bytes:
    return chr(code).encode("utf-8", "surrogatepass")


def number(text: bytes) -> bytes:
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


def beginnings(rivals: Iterable[bytes], text: bytes) -> set[int]:
    """The bytes that rivals have where a text goes on."""
    at = len(text)
    return {rival[at] for rival in rivals if len(rival) > at and rival.startswith(text)}
