"""Formats against the official suite, their factored nodes, and automata as spelled JSON text."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import ir
from structspec.automata.automaton import DEAD, Automaton, byte_costs
from structspec.automata.chardfa import CharDfa
from structspec.automata.network import build_network
from structspec.errors import BudgetExceeded, SchemaError, UnsupportedFeature
from structspec.frontends.jsonschema import lower_schema
from structspec.frontends.jsonschema.format_texts import format_texts
from structspec.frontends.jsonschema.formats import FORMATS, Format, format_of
from structspec.frontends.jsonschema.intervals import LENGTHS, Intervals
from structspec.frontends.jsonschema.spelling import Spelling
from structspec.frontends.jsonschema.stored import BUILDERS, FILE, unpack
from structspec.frontends.jsonschema.strings import StringShape
from structspec.frontends.jsonschema.text import _one_large_format
from structspec.frontends.jsonschema.text_automata import lower, pattern_dfa
from structspec.frontends.rules.plain import plain

DRAFTS = {"draft4": 4, "draft6": 6, "draft7": 7, "draft2019-09": 2019, "draft2020-12": 2020}

#: Valid strings that are left out, and why; everything else in the suite is decided as it says.
NARROWED = {
    # hostname, from draft 7 on: an A-label is valid if it decodes to a valid U-label of IDNA 2008,
    # so all labels with hyphens in third and fourth place are left out.
    ("hostname", "xn--9n2bp8q.xn--9t4b11yi5a"): "A-label: Hangul",
    ("hostname", "xn--zca29lwxobi7a"): "A-label: exceptions that are PVALID",
    ("hostname", "xn--qmbc"): "A-label: exceptions that are PVALID, right to left",
    ("hostname", "xn--ll-0ea"): "A-label: MIDDLE DOT between two l",
    ("hostname", "xn--wva3je"): "A-label: Greek KERAIA",
    ("hostname", "xn--4dbc5h"): "A-label: Hebrew GERESH",
    ("hostname", "xn--4dbc8h"): "A-label: Hebrew GERSHAYIM",
    ("hostname", "xn--k8j5u"): "A-label: KATAKANA MIDDLE DOT with Hiragana",
    ("hostname", "xn--bck0j"): "A-label: KATAKANA MIDDLE DOT with Katakana",
    ("hostname", "xn--vek778f"): "A-label: KATAKANA MIDDLE DOT with Han",
    ("hostname", "xn--ngba1o"): "A-label: Arabic-Indic digits",
    ("hostname", "xn--0-gyc"): "A-label: extended Arabic-Indic digits",
    ("hostname", "xn--11b2ezcw70k"): "A-label: ZERO WIDTH JOINER after Virama",
    ("hostname", "xn--11b2ezcs70k"): "A-label: ZERO WIDTH NON-JOINER after Virama",
    ("hostname", "xn--ngba5hb2804a"): "A-label: ZERO WIDTH NON-JOINER by its rule",
    # idn-email: a domain beyond ASCII must be made of valid U-labels.
    ("idn-email", "실례@실례.테스트"): "U-labels",
    ("idn-email", "user@cafe\u0301.com"): "U-label",
}


def suite(directory: Path) -> Iterator[tuple[int, Format, str, bool]]:
    """Every string of the suite's format tests with a format that is not refused."""
    folder = directory / "json-schema-test-suite" / "tests"
    if not folder.is_dir():
        pytest.skip(f"the JSON Schema test suite is missing: no directory {folder}")
    for name, draft in DRAFTS.items():
        for path in sorted((folder / name / "optional" / "format").glob("*.json")):
            for group in json.loads(path.read_text(encoding="utf-8")):
                entry = format_of(group["schema"].get("format", ""), draft)
                if entry is not None and not entry.reason:
                    for test in group["tests"]:
                        if isinstance(test["data"], str):
                            yield draft, entry, test["data"], test["valid"]


def test_the_official_suite_agrees_in_every_draft(data_directory: Path) -> None:
    seen = 0
    narrowed = set()
    for draft, entry, text, valid in suite(data_directory):
        seen += 1
        found = entry.inside.accepts(text)
        if valid and not found:
            narrowed.add((entry.name, text))
            assert not entry.exact
        else:
            assert found == valid, (draft, entry.name, text)
        # What is outside for certain is never valid, whether or not the format is narrowed.
        outside = entry.outside.accepts(text)
        assert not (outside and valid), (draft, entry.name, text)
        if entry.exact:
            assert outside != found
    assert seen > 1900
    assert narrowed == set(NARROWED)


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: f"{entry.name}-{entry.since}")
def test_no_string_is_inside_and_outside(entry: Format) -> None:
    if entry.reason:
        assert not entry.exact
        with pytest.raises(ValueError, match="no automaton"):
            _ = entry.inside
        return
    assert bool(entry.note) != entry.exact
    if not entry.exact:
        inside = entry.inside
        assert inside.intersect(entry.outside) == CharDfa.nothing()
    elif len(entry.inside.rows) < 1000:
        assert entry.outside == entry.inside.complement()


def test_formats_exist_from_their_draft_on() -> None:
    born = {"date": 7, "uuid": 2019, "duration": 2019, "uri-template": 6, "date-time": 4}
    for name, since in born.items():
        for draft in DRAFTS.values():
            assert (format_of(name, draft) is not None) == (draft >= since)
    assert format_of("colour", 2020) is None


def test_every_day_of_four_centuries_is_a_date_and_no_other() -> None:
    date = format_of("date", 2020).inside
    for year in (0, 1, 4, 100, 400, 1900, 1999, 2000, 2023, 2024, 2100, 9999):
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        days = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
        for month, day in itertools.product(range(14), range(33)):
            valid = 1 <= month <= 12 and 1 <= day <= days[month - 1]
            assert date.accepts(f"{year:04}-{month:02}-{day:02}") == valid


def test_a_leap_second_is_at_midnight_utc() -> None:
    time = format_of("time", 2020).inside
    for minute in range(0, 1440, 7):
        for offset in range(0, 1440, 11):
            for sign, turn in (("+", -1), ("-", 1)):
                utc = (minute + turn * offset) % 1440
                text = (
                    f"{minute // 60:02}:{minute % 60:02}:60{sign}{offset // 60:02}:{offset % 60:02}"
                )
                assert time.accepts(text) == (utc == 1439)
    for minute in range(1440):
        offset = (minute + 1) % 1440
        text = f"{minute // 60:02}:{minute % 60:02}:60.5+{offset // 60:02}:{offset % 60:02}"
        assert time.accepts(text)


def _fits(label: str, tagged: bool) -> bool:
    return re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", label) is not None and (
        tagged or label[2:4] != "--"
    )


def test_hostnames_obey_both_limits() -> None:
    source = random.Random(7)
    for draft in (4, 7):
        names = format_of("hostname", draft).inside
        for _ in range(300):
            labels = [
                "".join(
                    source.choices("ab-", (4, 4, 1), k=source.choice((1, 2, 5, 30, 62, 63, 64)))
                )
                for _ in range(source.randint(1, 9))
            ]
            text = ".".join(labels)
            valid = len(text) <= 253 and all(_fits(label, draft < 7) for label in labels)
            assert names.accepts(text) == valid, text
        for last in (60, 61, 62):
            text = ".".join(["a" * 63] * 3 + ["a" * last])
            assert names.accepts(text) == (last <= 61)


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_stored_automata_are_what_their_builders_make(name: str) -> None:
    data = json.loads(FILE.read_text())
    assert unpack(data[name]) == BUILDERS[name]()


def test_the_file_holds_the_automata_of_all_builders() -> None:
    assert json.loads(FILE.read_text()).keys() == BUILDERS.keys()
    assert format_of("ipv6", 2020).inside == BUILDERS["ipv6"]()


# Nodes -------------------------------------------------------------------------------------------


def _reader(node: ir.Node, rules: dict[str, ir.Node]) -> Callable[[str], bool]:
    whole = {**rules, "root": ir.sequence((ir.Bytes(b'"'), node, ir.Bytes(b'"')))}
    network = build_network(ir.GrammarIR(whole, "root"))
    automaton = Automaton(network, byte_costs(network))

    def accepts(text: str) -> bool:
        if automaton.start == DEAD:
            return False
        state = automaton.advance(automaton.start, text.encode())
        return state != DEAD and bool(automaton.accepting(state))

    return accepts


def _escaped(text: str, source: random.Random) -> str:
    """A JSON spelling of `text` with some characters escaped for no reason."""
    units = []
    for character in text:
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        numbered = json.dumps(character)[1:-1]
        if len(numbered) == 1:
            numbered = f"\\u{ord(character):04X}"
        units.append(source.choice((plain, numbered)))
    return '"' + "".join(units) + '"'


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(
            entry,
            id=f"{entry.name}-{entry.since}",
            marks=[pytest.mark.full] if entry.name == "hostname" else [],
        )
        for entry in FORMATS
        if entry.large
    ],
)
def test_large_formats_know_their_lengths(entry: Format) -> None:
    assert entry.inside.length_range == entry.span


@pytest.mark.parametrize(
    ("name", "shorter", "kept"),
    [("hostname", 252, 253), ("date-time", None, None), ("time", None, None)],
)
def test_bounds_that_a_large_format_keeps_anyway_take_no_automaton(
    name: str, shorter: int | None, kept: int | None
) -> None:
    """Names of 253 characters have maxLength 255 for certain; its automaton would take a second."""
    entry = format_of(name, 2020)
    assert entry is not None
    least, most = entry.span
    bounds = {"minLength": int(least)} | ({} if kept is None else {"maxLength": kept})
    free, _ = lower_schema({"type": "string", "format": name})
    bound, _ = lower_schema({"type": "string", "format": name, **bounds})
    assert bound == free
    if shorter is not None and most != math.inf:
        shape = StringShape(lengths=((0, shorter + 1),), formats=frozenset({(entry, True)}))
        assert _one_large_format(shape) is None


@pytest.mark.parametrize(
    ("name", "has", "registers"),
    [
        ("date-time", True, True),
        ("date-time", False, True),
        ("time", True, True),
        ("time", False, True),
        ("hostname", True, True),
        ("hostname", True, False),
    ],
)
@pytest.mark.parametrize("spelling", ["canonical", "any"])
def test_factored_formats_are_their_automata(
    name: str, has: bool, registers: bool, spelling: str, data_directory: Path
) -> None:
    rules: dict[str, ir.Node] = {}
    entry = format_of(name, 2020)
    node = format_texts(entry, Spelling(spelling, rules), has=has, registers=registers)
    accepts = _reader(node, rules)
    source = random.Random(3)
    texts = {text for _, other, text, _ in suite(data_directory) if other.name == name}
    for _ in range(300):
        minute, offset = source.randrange(1440), source.randrange(1440)
        sign = source.choice("+-")
        if source.random() < 0.7:
            offset = (minute + 1) % 1440 if sign == "+" else 1439 - minute
        clock = f"{minute // 60:02}:{minute % 60:02}:60{source.choice(('', '.', '.0', '.123'))}"
        local = f"{clock}{sign}{offset // 60:02}:{offset % 60:02}"
        texts |= {local, "2016-12-31T" + local}
        sizes = [
            source.choice((1, 2, 3, 4, 5, 20, 61, 62, 63)) for _ in range(source.randint(1, 7))
        ]
        texts.add(".".join("".join(source.choices("a-", (9, 1), k=size)) for size in sizes))
    for last in range(50, 64):
        texts.add(".".join(["a" * 63] * 3 + ["a" * last]))
        texts.add("a." * 95 + "b" * last)
    for text in sorted(texts):
        expected = (entry.inside if has else entry.outside).accepts(text)
        assert accepts(json.dumps(text, ensure_ascii=False)) == expected, text
        if spelling == "any":
            assert accepts(_escaped(text, source)) == expected, text


def test_what_is_no_date_time_needs_no_minute_of_the_day_beside_every_wrong_text() -> None:
    """Its own automaton has twenty thousand states, with an edge for every character in each."""
    grammar, report = lower_schema({"type": "string", "not": {"format": "date-time"}})
    assert "narrowed" not in {entry.status for entry in report.entries}
    network = build_network(grammar)
    assert network.n_states < 12_000


def test_a_hostname_can_be_written_as_rules() -> None:
    grammar, _ = lower_schema({"type": "string", "format": "hostname"})
    rules = plain(grammar).rules
    assert not any(isinstance(node, ir.Automaton) for node in rules.values())


PATTERNS = (
    "^[a-c]*$",
    "^(?:abc)*$",
    "^(?:ab|c){2,}$",
    "^(?:[ab][bc])*$",
    "^(?:[ab]c?)*$",
    "^(?:ab)*a?$",
    "^a[bc]*$",
    "^(?:a|bc)$",
    "^(?:aaa)+b?$",
    "^a{2,4}(?:b{3})*$",
    "^c(?:aab)*$",
    "b",
    "a.c",
    "^b|c$",
    "^[^a]{1,4}$",
    "^$",
    "[^\\s\\S]",
    "^(?:aa|aaaaa)*$",
)
WINDOWS: tuple[Intervals, ...] = (
    LENGTHS,
    ((0, 4),),
    ((2, 5),),
    ((3, math.inf),),
    ((0, 1), (4, 6)),
    ((1, 3), (5, math.inf)),
    (),
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_lowered_automata_have_their_language_and_lengths(pattern: str) -> None:
    dfa = pattern_dfa(pattern)
    texts = ["".join(t) for n in range(8) for t in itertools.product("abc", repeat=n)]
    texts = [text for text in texts if len(text) < 6 or hash_of(text) % 7 == 0]
    for window in WINDOWS:
        for spelling in ("canonical", "any"):
            rules: dict[str, ir.Node] = {}
            accepts = _reader(lower(dfa, window, Spelling(spelling, rules)), rules)
            for text in texts:
                expected = dfa.accepts(text) and any(
                    low <= len(text) < high for low, high in window
                )
                assert accepts(f'"{text}"') == expected, (pattern, window, spelling, text)


def hash_of(text: str) -> int:
    return sum(3**place * ord(character) for place, character in enumerate(text))


def _labels(node: ir.Node) -> Iterator[ir.Node]:
    if isinstance(node, ir.Automaton):
        for edges in node.edges:
            for label, _ in edges:
                yield label


def _nullable(node: ir.Node) -> bool:
    match node:
        case ir.Bytes(value):
            return not value
        case ir.Sequence(items):
            return all(map(_nullable, items))
        case ir.Choice(items):
            return any(map(_nullable, items))
        case ir.Repeat(item, minimum, _):
            return minimum == 0 or _nullable(item)
        case ir.Variant(item):
            return _nullable(item)
    return False


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_label_matches_the_empty_string(pattern: str) -> None:
    for window in WINDOWS:
        node = lower(pattern_dfa(pattern), window, Spelling("any", {}))
        assert not any(map(_nullable, _labels(node)))


@given(st.text(max_size=8), st.integers(0, 1 << 30))
@settings(max_examples=100, deadline=None)
def test_any_spelling_of_a_string_is_read(text: str, seed: int) -> None:
    if any("\ud800" <= character <= "\udfff" for character in text):
        return
    rules: dict[str, ir.Node] = {}
    dfa = CharDfa.of_strings([text, text + "x"])
    accepts = _reader(lower(dfa, LENGTHS, Spelling("any", rules)), rules)
    assert accepts(_escaped(text, random.Random(seed)))
    assert not accepts(_escaped(text + "y", random.Random(seed)))


def test_lengths_beside_plain_repetitions_cost_no_states() -> None:
    spelling = Spelling("canonical", {})
    letters = ir.Chars(((97, 122),))
    window: Intervals = ((0, 50_001),)
    node = lower(pattern_dfa("^[a-z]*$"), window, spelling)
    assert node == ir.Repeat(letters, 0, 50_000)
    assert lower(CharDfa.everything(), ((2, 9),), spelling) == ir.Repeat(spelling.character(), 2, 8)
    for pattern in ("^(?:abc)*$", "^[A-Z][a-z]*$", "^(?:get|set)[A-Z]\\w*$", "^x.*$"):
        node = lower(pattern_dfa(pattern), window, spelling)
        assert not isinstance(node, ir.Automaton) or len(node.edges) < 10
    assert lower(pattern_dfa("^(?:abc)*$"), window, spelling).maximum == 16_666
    assert lower(pattern_dfa("^[a-z]{1,5000}$"), LENGTHS, spelling) == ir.Repeat(letters, 1, 5000)


def test_a_product_with_lengths_that_is_too_large_is_refused() -> None:
    dfa, canonical = pattern_dfa("foo"), Spelling("canonical", {})
    for lengths, registers in (((0, 50_001), False), ((50_001, 50_002), True)):
        with pytest.raises(BudgetExceeded, match="states"):
            lower(dfa, (lengths,), canonical, registers=registers)
    assert isinstance(lower(dfa, ((0, 50_001),), canonical), ir.Automaton)  # counted in a register


def test_patterns_that_are_no_regular_language_are_refused() -> None:
    with pytest.raises(UnsupportedFeature):
        pattern_dfa(r"^(a)\1$")
    with pytest.raises(SchemaError):
        pattern_dfa("(a")
