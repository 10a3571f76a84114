"""The ready-made grammars against parsers that know nothing of them."""

from __future__ import annotations

import ast
import csv
import datetime
import email.headerregistry
import io
import itertools
import json
import random
import re
import sqlite3
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

pytest.importorskip("lark", reason="the extra 'grammars' is not installed: pip install lark")

from random_grammars import mutated

import structspec
from structspec import grammars
from structspec.frontends.gbnf.parse import parse as parse_gbnf
from structspec.sampling import sample

TEXT_GRAMMARS = [name for name in grammars.names() if grammars.syntax(name) != "json_schema"]


@pytest.fixture(scope="module")
def load() -> Callable[..., structspec.Grammar]:
    known: dict[tuple[str, str], structspec.Grammar] = {}

    def loaded(name: str, start: str = "") -> structspec.Grammar:
        if (name, start) not in known:
            known[name, start] = grammars.load(name, **({"start": start} if start else {}))
        return known[name, start]

    return loaded


def texts(
    grammar: structspec.Grammar, count: int = 120, seed: int = 1, size: int = 60
) -> list[str]:
    return [text.decode() for text in sample(grammar, count, seed=seed, max_bytes=size)]


@pytest.mark.parametrize("name", TEXT_GRAMMARS)
def test_every_grammar_says_what_it_is_where_it_starts_and_what_it_leaves_out(name: str) -> None:
    head = re.match(r"(?:(?://|#).*\n)+", grammars.read(name))
    assert head and "Start rule:" in head[0] and "Limits:" in head[0]
    report = grammars.load(name).report
    assert report.exact and not report.with_status("narrowed")
    assert not [entry for entry in report if "bar reaches" in entry.note or "no text" in entry.note]


# -- texts of the language are read by the other parser ------------------------------------------


def accepted_by(read: Callable[[str], object]) -> Callable[[str], bool]:
    def accepts(text: str) -> bool:
        try:
            read(text)
        except (ValueError, SyntaxError, ElementTree.ParseError, csv.Error):
            return False
        return True

    return accepts


def sql_parses(text: str) -> bool:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"EXPLAIN {text}")
    except (sqlite3.Error, sqlite3.Warning) as error:
        return not re.search(
            "syntax error|unrecognized token|incomplete input|one statement", str(error)
        )
    finally:
        connection.close()
    return True


def address(text: str) -> object:
    found = email.headerregistry.Address(addr_spec=text)
    if found.addr_spec != text:
        raise ValueError(text)
    return found


def json_lines(text: str) -> object:
    return [json.loads(line) for line in text.split("\n")[:-1]]


READERS: dict[str, Callable[[str], bool]] = {
    "arithmetic": accepted_by(lambda text: ast.parse(text.strip(), mode="eval")),
    "csv": accepted_by(lambda text: list(csv.reader(io.StringIO(text, newline=""), strict=True))),
    "email": accepted_by(address),
    "gbnf": lambda text: gbnf_syntax(text),
    "iso_date": accepted_by(datetime.date.fromisoformat),
    "iso_datetime": accepted_by(datetime.datetime.fromisoformat),
    "json_lines": accepted_by(json_lines),
    "python_expression": accepted_by(lambda text: ast.parse(text, mode="eval")),
    "python_literal": accepted_by(ast.literal_eval),
    "sql_select": sql_parses,
    "xml_tags": accepted_by(lambda text: ElementTree.fromstring(text.encode())),
}


@pytest.mark.parametrize("name", sorted(READERS))
def test_every_text_is_read_by_an_independent_parser(name: str, load: Callable) -> None:
    grammar = load(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SyntaxWarning: "is" with a literal
        for text in texts(grammar, 150) + texts(grammar, 80, seed=2, size=160):
            assert READERS[name](text), text


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(READERS))
def test_thousands_of_texts_are_read_by_an_independent_parser(name: str, load: Callable) -> None:
    grammar = load(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in texts(grammar, 3000, seed=3, size=120):
            assert READERS[name](text), text


# -- what the other parser refuses is refused ----------------------------------------------------

#: Grammars of everything that their parser takes, or of all of it up to what `known` tells.
STRICT: dict[str, Callable[[str], bool]] = {
    # Python takes more numbers (1_0, 1e5, .5), other blanks, and comments.
    "arithmetic": lambda text: (
        READERS["arithmetic"](text)
        and not re.search(r"[^-+*/%().0-9 ]|//|\.(?![0-9])|(?<![0-9])\.|\d *\(|\( *\)|\) *\(", text)
    ),
    "iso_date": lambda text: (
        bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text)) and READERS["iso_date"](text)
    ),
    # An empty text has no record; a carriage return alone ends a record for the module.
    "csv": lambda text: (
        text.endswith("\n")
        and READERS["csv"](text)
        # For the module, quotes may stand in a bare field.
        and not re.search(
            '"|\0|\r(?!\n)', re.sub(r'(^|(?<=[,\n]))"(""|[^"])*"(?=,|\r?\n)', "", text)
        )
    ),
    "gbnf": lambda text: gbnf_syntax(text),
    "json_lines": lambda text: (
        (not text or text.endswith("\n"))
        and not re.search(r"[\r\f\v]|NaN|Infinity", text)
        and READERS["json_lines"](text)
        and "" not in [line.strip() for line in text.split("\n")[:-1]]
    ),
}


@pytest.mark.parametrize("name", sorted(STRICT))
def test_mutated_texts_have_the_verdict_of_the_independent_parser(
    name: str, load: Callable
) -> None:
    grammar = load(name)
    rng = random.Random(4)
    inside = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in texts(grammar, 250, seed=5):
            for _ in range(2):
                changed = mutated(rng, text)
                if name == "arithmetic" and re.search(r"(?<!\d)0\d", changed):
                    continue  # Python takes 00, an oddity
                expected = STRICT[name](changed)
                inside += expected
                assert grammar.accepts(changed) == expected, changed
    assert inside >= 20


def gbnf_syntax(text: str) -> bool:
    """Whether our parser takes the text but for what its grammar cannot know."""
    try:
        return len(parse_gbnf(text)) > 0
    except structspec.SchemaError as error:
        return bool(re.search("is already defined|out of order", str(error)))


def test_every_day_of_a_century_leap_cycle_is_a_date_and_no_other(load: Callable) -> None:
    accepts = load("iso_date").accepts
    for year in (1, 4, 100, 400, 1900, 1999, 2000, 2023, 2024, 9999):
        for month, day in itertools.product(range(14), range(33)):
            text = f"{year:04}-{month:02}-{day:02}"
            try:
                datetime.date(year, month, day)
                expected = True
            except ValueError:
                expected = False
            assert accepts(text) == expected, text
    leap = [year for year in range(10_000) if accepts(f"{year:04}-02-29")]
    assert leap == [y for y in range(1, 10_000) if y % 4 == 0 and (y % 100 or y % 400 == 0)]


def test_durations_have_their_parts_in_order_and_at_least_one(load: Callable) -> None:
    accepts = load("iso_duration").accepts
    pattern = re.compile(
        r"P(?=.)(\d+Y)?(\d+M)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?|P\d+W", re.ASCII
    )
    for size in range(6):
        for signs in itertools.product("P1YMDTHSW.", repeat=size):
            text = "".join(signs)
            if text[:1] in ("", "P"):
                assert accepts(text) == bool(pattern.fullmatch(text)), text
    assert accepts("P1Y2M3DT4H5M6.7S") and accepts("P12W") and not accepts("P1YT")


def test_a_chess_move_is_exactly_one_of_the_notation(load: Callable) -> None:
    files, ranks = "abcdefgh", "12345678"
    quiet = {f + r for f in files for r in "234567"}
    last = {f + r + "=" + piece for f in files for r in "18" for piece in "QRBN"}
    pawn = quiet | last
    pawn |= {
        f"{a}x{target}"
        for a in files
        for target in quiet | last
        if abs(ord(a) - ord(target[0])) == 1
    }
    squares = [f + r for f in files for r in ranks]
    origins = ["", *files, *ranks, *squares]
    piece = {
        k + origin + x + square
        for k in "KQRBN"
        for origin in origins
        for x in ("", "x")
        for square in squares
    }
    moves = {m + c for m in pawn | piece | {"O-O", "O-O-O"} for c in ("", "+", "#")}
    accepts = load("chess_san").accepts
    rng = random.Random(6)
    for move in rng.sample(sorted(moves), 1500):
        assert accepts(move), move
        changed = mutated(rng, move)
        assert accepts(changed) == (changed in moves), changed
    assert set(texts(load("chess_san"), 500)) <= moves
    game = load("chess_san", "game").accepts
    assert game("1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 1/2-1/2") and game("1. f3 e5 2. g4 Qh4#")
    assert not game("1. e4 e5 2.") and not game("e4 e5")


def test_a_table_has_the_same_cells_in_every_row(load: Callable) -> None:
    grammar = load("markdown_table")

    def cells(row: str) -> list[str]:
        return re.split(r"(?<!\\)\|", row)

    for text in texts(grammar, 150, size=120):
        rows = text.split("\n")
        assert rows.pop() == ""
        assert all(row.startswith("|") and row.endswith("|") for row in rows)
        assert len({len(cells(row)) for row in rows}) == 1
        assert all(re.fullmatch(r" :?-+:? ", cell) for cell in cells(rows[1])[1:-1])
    assert grammar.accepts("| a | b |\n| --- | :-: |\n| 1 | x \\| y |\n")
    assert not grammar.accepts("| a | b |\n| --- |\n")
    assert not grammar.accepts("| a | b |\n| --- | --- |\n| 1 |\n")


@pytest.mark.parametrize(
    ("name", "valid", "invalid"),
    [
        (
            "sql_select",
            [
                "SELECT 1",
                "select a, b.c AS d from t as x left join u on x.i = u.i where a > 3 "
                "and not (b is null or c in (1, 2)) group by a having count(*) > 1 "
                "order by a desc limit 5",
                "WITH w AS (SELECT 1) SELECT * FROM w UNION ALL SELECT 2 LIMIT 3 OFFSET 1",
                "SELECT CASE WHEN a = 'x''y' THEN 1 ELSE -2 END FROM (SELECT 1) "
                "WHERE EXISTS (SELECT 2)",
            ],
            [
                "",
                "SELECT",
                "SELECT FROM t",
                "SELECT a FROM",
                "SELECT aFROM t WHERE a = 1",
                "SELECT select FROM t",
                "SELECT 1;",
                "DELETE FROM t",
                "SELECT a b c",
                "SELECT 1 -- x",
            ],
        ),
        (
            "xml_tags",
            ["<doc/>", '<doc id="a"><p>x &amp; <b>y</b></p><br/></doc>'],
            [
                "<doc>",
                "<doc></p>",
                "<p/>",
                "<doc><p><b></p></b></doc>",
                "<doc>&x;</doc>",
                "<doc>]]></doc>",
            ],
        ),
        (
            "python_literal",
            ["{1: (2,), 'a': [b'x', None]}", "{1, (2, 3)}", "-1.5e3", "()", "[1, 2,]"],
            ["", "{[1]}", "{[1]: 2}", "(,)", "[,]", "f()", "'a", "1 2", "01"],
        ),
        (
            "python_expression",
            [
                "f(x, y=1)[0].z if a and not b else lambda q: q + 1",
                "[x for x in y if x is not None]",
                "a[1:2, ::3]",
                "-x ** -y",
            ],
            [
                "",
                "a b",
                "x = 1",
                "f(x=1, y)",
                "if",
                "not",
                "1.real",
                "a if b",
                "lambda",
                "(a for b in)",
            ],
        ),
        ("json_lines", ["", '{"a": 1}\n[]\n', "null\n"], ["\n", "1", "{}\n\n", "[1,]\n"]),
        (
            "email",
            ["a.b+c@d-e.org"],
            [
                "a@b",
                "a..b@c.de",
                "@c.de",
                "a@-b.de",
                "a b@c.de",
                "x" * 65 + "@c.de",
                "a@" + "b" * 64 + ".de",
            ],
        ),
    ],
)
def test_texts_of_everyday_use_are_judged_rightly(
    name: str, valid: list[str], invalid: list[str], load: Callable
) -> None:
    grammar = load(name)
    assert [text for text in valid if not grammar.accepts(text)] == []
    assert [text for text in invalid if grammar.accepts(text)] == []


def test_the_grammar_of_gbnf_takes_every_gbnf_grammar_and_itself(load: Callable) -> None:
    grammar = load("gbnf")
    assert grammar.accepts(grammars.read("gbnf"))
    assert grammar.accepts(grammar.to_gbnf())
    for name in ("json_lines", "chess_san", "arithmetic"):
        assert grammar.accepts(load(name).to_gbnf()), name


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(KeyError, match="sql_select"):
        grammars.load("sql")
