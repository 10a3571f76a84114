r"""The string formats of JSON Schema as automata: one table, one entry per format and definition.

Each entry names the drafts that define the format so, and what it stands for. `inside` holds
strings that certainly have the format, `outside` strings that certainly have not. For most formats
they are complements. Where the definition is not regular, or rests on tables of Unicode's that
change, the strings between the two are in neither, and `note` says which: an assertion then writes
fewer strings than the format allows, under `not` too, and never a wrong one. Formats of which no
useful part is certain have a `reason` to refuse them.

Definitions are read as their grammars (ABNF) say. So digits are ASCII digits, letters in quotes
of a grammar stand for both cases (``t`` and ``z`` in dates, ``p`` in durations), and nothing may
precede or follow. A leap second must fall on 23:59:60 UTC.

Cost: automata are built on first use and kept; `date-time` (11,000 states) and `hostname` (24,000
states) take a second or two, the others milliseconds. Siblings: `format_texts`, which writes those
two without their automata; `stored`, for those that would take tens of milliseconds.

Sources: RFC 3339 (dates, durations), 5321 and 5322 (email), 6531 (internationalised), 1123 and
5891 (hostnames), 2673 and 4291 (addresses), 3986 and 3987 (URIs and IRIs), 6570 (templates),
6901 (pointers), 4122 (UUIDs).

Example::

    >>> from structspec.frontends.jsonschema.formats import format_of
    >>> date = format_of("date", 2020)
    >>> date.inside.accepts("2000-02-29"), date.inside.accepts("2100-02-29")
    (True, False)
    >>> format_of("date", 4) is None
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from structspec.automata.chardfa import MOST_PAIRS, Budget, CharDfa, CharNfa
from structspec.frontends.jsonschema.stored import stored
from structspec.frontends.jsonschema.text_automata import add_regex, regex_dfa
from structspec.frontends.regex import parse, resolve

__all__ = [
    "FORMATS",
    "Format",
    "date_dfa",
    "format_of",
    "label_dfa",
    "names_dfa",
    "ordinary_time_dfa",
]


@dataclass(frozen=True)
class Format:
    """One definition of a format, in the drafts `since` to `until`.

    `note`: which strings are in neither automaton ("" if none are); `reason`: why the format is
    refused ("" if it is not), in which case there are no automata.
    """

    name: str
    since: int
    until: int
    make: Callable[[], CharDfa] | None = None
    superset: Callable[[], CharDfa] | None = None
    note: str = ""
    reason: str = ""
    #: Whether the automaton has thousands of states; see `format_texts`.
    large: bool = False
    #: The least and the greatest length of a large one, known without its automaton.
    span: tuple[float, float] = (0, math.inf)

    @property
    def exact(self) -> bool:
        """Whether every string is inside or outside."""
        return self.make is not None and self.superset is None

    @property
    def inside(self) -> CharDfa:
        """Strings that have the format: all of them if `exact`."""
        if self.make is None:
            raise ValueError(f"the format {self.name!r} has no automaton: {self.reason}")
        return self.make()

    @property
    def outside(self) -> CharDfa:
        """Strings that have not the format: all of them if `exact`."""
        if self.make is None:
            raise ValueError(f"the format {self.name!r} has no automaton: {self.reason}")
        return _complement(self.superset or self.make)


def format_of(name: str, draft: int) -> Format | None:
    """What `name` means in a draft (4, 6, 7, 2019 or 2020); None if nothing."""
    for entry in _BY_NAME.get(name, ()):
        if entry.since <= draft <= entry.until:
            return entry
    return None


@cache
def _complement(make: Callable[[], CharDfa]) -> CharDfa:
    return make().complement(Budget(states=MOST_PAIRS))


def _whole(pattern: str) -> CharDfa:
    """The strings that match a pattern from start to end."""
    return regex_dfa(resolve(parse(pattern)))


# Dates and times ---------------------------------------------------------------------------------

_DATE: Final = (
    r"(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))"
    r"|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_FRACTION: Final = r"(?:\.\d+)?"
_HOURS_MINUTES: Final = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIME: Final = (
    rf"{_HOURS_MINUTES}:[0-5]\d{_FRACTION}(?:[Zz]|[+\-]{_HOURS_MINUTES})"
    rf"|23:59:60{_FRACTION}[Zz]"
)
_DAY: Final = 24 * 60


@cache
def date_dfa() -> CharDfa:
    """Dates of RFC 3339, with the days that each month has."""
    return _whole(_DATE)


@cache
def ordinary_time_dfa() -> CharDfa:
    """Times of RFC 3339 without leap seconds, except in UTC."""
    return _whole(_TIME)


@cache
def _time() -> CharDfa:
    return _timed("")


@cache
def _date_time() -> CharDfa:
    return _timed(rf"{_DATE}[Tt]")


@cache
def loose_time_dfa(dated: bool) -> CharDfa:
    """Times of RFC 3339, behind a date or alone, with second 60 in any minute and at any offset."""
    before = rf"{_DATE}[Tt]" if dated else ""
    sixty = rf"{_HOURS_MINUTES}:60{_FRACTION}[+\-]{_HOURS_MINUTES}"
    return _whole(rf"{before}(?:{_TIME}|{sixty})")


def _timed(before: str) -> CharDfa:
    """Times of day behind a pattern, leap seconds included."""
    nfa = CharNfa()
    start, middle, end = nfa.state(), nfa.state(), nfa.state()
    add_regex(nfa, resolve(parse(before)), start, middle)
    add_regex(nfa, resolve(parse(_TIME)), middle, end)
    _add_leap_seconds(nfa, middle, end)
    return CharDfa.of_nfa(nfa, start, end)


def _add_leap_seconds(nfa: CharNfa, start: int, end: int) -> None:
    """Local times ``hh:mm:60`` with the one offset either way that makes them 23:59:60 UTC.

    The minute of the day has to be remembered up to the offset, so no automaton has fewer than
    1,440 states for each place between the two.
    """

    def step(source: int, text: str, known: dict[tuple[int, str], int]) -> int:
        for character in text:
            target = known.get((source, character))
            if target is None:
                target = known[source, character] = nfa.state()
                code = ord(character)
                nfa.read(source, ((code, code),), target)
            source = target
        return source

    # Ways to the end, read backwards, so that equal ends are shared.
    def back(target: int, text: str, known: dict[tuple[int, str], int]) -> int:
        for character in reversed(text):
            source = known.get((target, character))
            if source is None:
                source = known[target, character] = nfa.state()
                code = ord(character)
                nfa.read(source, ((code, code),), target)
            target = source
        return target

    forwards: dict[tuple[int, str], int] = {}
    backwards: dict[tuple[int, str], int] = {}
    texts = [f"{minute // 60:02}:{minute % 60:02}" for minute in range(_DAY)]
    offsets = [back(end, text, backwards) for text in texts]
    plus, minus = ((ord("+"), ord("+")),), ((ord("-"), ord("-")),)
    dot, digit = ((ord("."), ord(".")),), ((ord("0"), ord("9")),)
    for minute, text in enumerate(texts):
        whole = step(start, f"{text}:60", forwards)
        point, fraction = nfa.state(), nfa.state()
        nfa.read(whole, dot, point)
        nfa.read(point, digit, fraction)
        nfa.read(fraction, digit, fraction)
        for place in (whole, fraction):
            nfa.read(place, plus, offsets[(minute + 1) % _DAY])
            nfa.read(place, minus, offsets[_DAY - 1 - minute])


@cache
def _duration() -> CharDfa:
    time = r"[Tt](?:\d+[Hh](?:\d+[Mm](?:\d+[Ss])?)?|\d+[Mm](?:\d+[Ss])?|\d+[Ss])"
    day = r"\d+[Dd]"
    month = rf"\d+[Mm](?:{day})?"
    date = rf"(?:\d+[Yy](?:{month})?|{month}|{day})"
    return _whole(rf"[Pp](?:{date}(?:{time})?|{time}|\d+[Ww])")


# Addresses ---------------------------------------------------------------------------------------

_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_SNUM: Final = r"(?:25[0-5]|2[0-4]\d|[01]?\d?\d)"
_IPV4: Final = rf"{_OCTET}(?:\.{_OCTET}){{3}}"


def _ipv6_pattern(most: int, ipv4: str) -> str:
    """Addresses in which ``::`` stands for one or more groups, beside at most `most` others."""
    group = "[0-9A-Fa-f]{1,4}"
    options = [rf"(?:{group}:){{7}}{group}", rf"(?:{group}:){{6}}{ipv4}"]
    for before in range(most + 1):
        head = rf"{group}(?::{group}){{{before - 1}}}" if before else ""
        after = most - before
        tails = [rf"(?:{group}(?::{group}){{0,{after - 1}}})?"] if after else [""]
        if after >= 2:
            tails.append(rf"(?:{group}:){{0,{after - 2}}}{ipv4}")
        options.append(f"{head}::(?:{'|'.join(tails)})")
    return f"(?:{'|'.join(options)})"


_IPV6: Final = _ipv6_pattern(7, _IPV4)


@cache
def _ipv4() -> CharDfa:
    # RFC 2673 has leading zeros; addresses inside IPv6 and URIs have none.
    return _whole(rf"{_SNUM}(?:\.{_SNUM}){{3}}")


@stored
def _ipv6() -> CharDfa:
    return _whole(_IPV6)


# Hostnames ---------------------------------------------------------------------------------------


@cache
def label_dfa(tagged: bool) -> CharDfa:
    """Labels of RFC 1123; without `tagged`, none with hyphens in third and fourth place."""
    unit, inner = "[A-Za-z0-9]", r"[A-Za-z0-9\-]"
    labels = _whole(rf"{unit}(?:{inner}{{0,61}}{unit})?")
    return labels if tagged else labels.difference(_whole(rf"{inner}{{2}}--{inner}*"))


@cache
def names_dfa(tagged: bool) -> CharDfa:
    """Labels with dots between them, of any length together."""
    label = label_dfa(tagged)
    nfa = CharNfa()
    place = nfa.state()
    states = [nfa.state() for _ in label.rows]
    end, last = nfa.state(), nfa.state()
    nfa.join(place, states[0])
    for state in range(len(label.rows)):
        for ranges, target in label.edges(state):
            nfa.read(states[state], ranges, states[target])
        if state in label.accepting:
            nfa.join(states[state], end)
    nfa.read(end, ((0x2E, 0x2E),), place)
    nfa.join(end, last)
    return CharDfa.of_nfa(nfa, place, last)


@cache
def _hostname() -> CharDfa:
    return names_dfa(True).with_length(1, 253)


@cache
def _hostname_without_tags() -> CharDfa:
    return names_dfa(False).with_length(1, 253)


# Email -------------------------------------------------------------------------------------------

_ATEXT: Final = r"A-Za-z0-9!#$%&'*+\-\/=?\^_`\{\|\}~"
_BEYOND_ASCII: Final = r"\u0080-\u{10FFFF}"


def _mailbox(letters: str, more: str) -> str:
    """RFC 5321, 4.1.2; `more`: further characters of the local part; `letters`: of labels."""
    atom = rf"[{_ATEXT}{more}]+"
    quoted = rf'"(?:[ !#-\[\]-~{more}]|\\[ -~])*"'
    label = rf"[{letters}](?:[{letters}\-]*[{letters}])?"
    snums = rf"{_SNUM}(?:\.{_SNUM}){{3}}"
    tagged = rf"[Ii][Pp][Vv]6:{_ipv6_pattern(6, snums)}"
    return rf"(?:{atom}(?:\.{atom})*|{quoted})@(?:{label}(?:\.{label})*|\[(?:{snums}|{tagged})\])"


@stored
def _email() -> CharDfa:
    return _whole(_mailbox("A-Za-z0-9", ""))


@cache
def _address() -> CharDfa:
    """RFC 5322, 3.4.1, without comments, folding and obsolete forms."""
    atoms = rf"[{_ATEXT}]+(?:\.[{_ATEXT}]+)*"
    return _whole(rf'(?:{atoms}|"(?:[ \t!#-\[\]-~]|\\[ \t!-~])*")@(?:{atoms}|\[[ \t!-Z\^-~]*\])')


@cache
def _some_address() -> CharDfa:
    """All of RFC 5322's addresses and more: exact but for white space, unless there is a "("."""
    blank = r"[ \t\r\n]*"
    atom = rf"[{_ATEXT}]+"
    word = rf'{blank}(?:{atom}|"(?:[\0-!#-\[\]-\x7F]|\\[\0-\x7F])*"){blank}'
    domain = rf"{blank}(?:{atom}(?:{blank}\.{blank}{atom})*|\[[\0-\x7F]*\]){blank}"
    plain = rf"{word}(?:\.{word})*@{domain}"
    commented = r"[\0-\x7F]*(?:\([\0-\x7F]*@|@[\0-\x7F]*\()[\0-\x7F]*"
    return _whole(rf"{plain}|{commented}")


@stored
def _idn_email() -> CharDfa:
    return _whole(_mailbox("A-Za-z0-9", _BEYOND_ASCII))


@stored
def _some_idn_email() -> CharDfa:
    return _whole(_mailbox("A-Za-z0-9" + _BEYOND_ASCII, _BEYOND_ASCII))


# URIs and IRIs -----------------------------------------------------------------------------------

_PLANES: Final = "".join(rf"\u{{{p:X}0000}}-\u{{{p:X}FFFD}}" for p in range(1, 14))
_UCSCHAR: Final = r"\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF" + _PLANES + r"\u{E1000}-\u{EFFFD}"
_IPRIVATE: Final = r"\uE000-\uF8FF\u{F0000}-\u{FFFFD}\u{100000}-\u{10FFFD}"
_PERCENT: Final = "%[0-9A-Fa-f]{2}"


def _uri_pattern(unicode: bool, relative: bool) -> str:
    """RFC 3986, or 3987 with `unicode`; `relative`: references too."""
    unreserved = r"A-Za-z0-9\-._~" + (_UCSCHAR if unicode else "")
    some = rf"{unreserved}!$&'()*+,;="
    private = _IPRIVATE if unicode else ""
    future = r"[Vv][0-9A-Fa-f]+\.[A-Za-z0-9\-._~!$&'()*+,;=:]+"
    host = rf"(?:\[(?:{_IPV6}|{future})\]|(?:[{some}]|{_PERCENT})*)"
    authority = rf"(?:(?:[{some}:]|{_PERCENT})*@)?{host}(?::\d*)?"
    pchar = rf"(?:[{some}:@]|{_PERCENT})"
    absolute = rf"\/(?:{pchar}+(?:\/{pchar}*)*)?"
    network = rf"\/\/{authority}(?:\/{pchar}*)*"
    ending = rf"(?:\?(?:[{some}:@\/?{private}]|{_PERCENT})*)?(?:#(?:[{some}:@\/?]|{_PERCENT})*)?"
    rootless = rf"{pchar}+(?:\/{pchar}*)*"
    uri = rf"[A-Za-z][A-Za-z0-9+\-.]*:(?:{network}|{absolute}|{rootless}|){ending}"
    if not relative:
        return uri
    noscheme = rf"(?:[{some}@]|{_PERCENT})+(?:\/{pchar}*)*"
    return rf"(?:{uri}|(?:{network}|{absolute}|{noscheme}|){ending})"


@stored
def _uri() -> CharDfa:
    return _whole(_uri_pattern(False, False))


@stored
def _uri_reference() -> CharDfa:
    return _whole(_uri_pattern(False, True))


@stored
def _iri() -> CharDfa:
    return _whole(_uri_pattern(True, False))


@stored
def _iri_reference() -> CharDfa:
    return _whole(_uri_pattern(True, True))


@cache
def _uri_template() -> CharDfa:
    # RFC 6570 leaves the apostrophe out of its literals by mistake; the suite has it.
    literal = rf"[!#$&-;=?-\[\]_a-z~{_UCSCHAR}{_IPRIVATE}]|{_PERCENT}"
    varchar = rf"(?:[A-Za-z0-9_]|{_PERCENT})"
    varspec = rf"{varchar}(?:\.?{varchar})*(?::[1-9]\d{{0,3}}|\*)?"
    return _whole(rf"(?:{literal}|\{{[+#.\/;?&=,!@\|]?{varspec}(?:,{varspec})*\}})*")


# Identifiers and pointers ------------------------------------------------------------------------

_POINTER: Final = r"(?:\/(?:[^\/~]|~[01])*)*"


@cache
def _uuid() -> CharDfa:
    return _whole("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


@cache
def _json_pointer() -> CharDfa:
    return _whole(_POINTER)


@cache
def _relative_pointer() -> CharDfa:
    return _whole(rf"(?:0|[1-9]\d*)(?:#|{_POINTER})")


@cache
def _adjusted_pointer() -> CharDfa:
    return _whole(rf"(?:0|[1-9]\d*)(?:[+\-][1-9]\d*)?(?:#|{_POINTER})")


# The table ---------------------------------------------------------------------------------------

_PUNYCODE: Final = (
    "labels with hyphens in third and fourth place (xn--…) are left out: whether one is valid "
    "depends on the tables of IDNA 2008"
)
_COMMENTS: Final = (
    "comments (which nest), folding white space around the parts, and obsolete forms are left out"
)
_U_LABELS: Final = (
    "domains with characters beyond ASCII are left out: whether one is valid depends on the "
    "tables of IDNA 2008"
)

FORMATS: Final[tuple[Format, ...]] = (
    Format("date-time", 4, 2020, _date_time, large=True, span=(20, math.inf)),
    Format("date", 7, 2020, date_dfa),
    Format("time", 7, 2020, _time, large=True, span=(9, math.inf)),
    Format("duration", 2019, 2020, _duration),
    Format("email", 4, 2019, _address, _some_address, _COMMENTS),
    Format("email", 2020, 2020, _email),
    Format("idn-email", 7, 2020, _idn_email, _some_idn_email, _U_LABELS),
    Format("hostname", 4, 6, _hostname, large=True, span=(1, 253)),
    Format(
        "hostname",
        7,
        2020,
        _hostname_without_tags,
        _hostname,
        _PUNYCODE,
        large=True,
        span=(1, 253),
    ),
    Format(
        "idn-hostname",
        7,
        2020,
        reason="which hostnames are valid depends on the tables of IDNA 2008 and on the length "
        "of their Punycode, which no automaton of reasonable size computes",
    ),
    Format("ipv4", 4, 2020, _ipv4),
    Format("ipv6", 4, 2020, _ipv6),
    Format("uri", 4, 2020, _uri),
    Format("uri-reference", 6, 2020, _uri_reference),
    Format("iri", 7, 2020, _iri),
    Format("iri-reference", 7, 2020, _iri_reference),
    Format("uri-template", 6, 2020, _uri_template),
    Format("uuid", 2019, 2020, _uuid),
    Format("json-pointer", 6, 2020, _json_pointer),
    Format("relative-json-pointer", 7, 2019, _relative_pointer),
    Format("relative-json-pointer", 2020, 2020, _adjusted_pointer),
    Format("regex", 7, 2020, reason="the syntax of regular expressions is not regular"),
)

_BY_NAME: Final[dict[str, tuple[Format, ...]]] = {
    name: tuple(entry for entry in FORMATS if entry.name == name)
    for name in dict.fromkeys(entry.name for entry in FORMATS)
}
