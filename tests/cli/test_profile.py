"""`structspec profile` and `structspec warmup`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from structspec.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    try:
        main(list(arguments))
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    return code, capsys.readouterr().out


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, Path]:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "array", "items": {"type": "string", "maxLength": 3}}')
    text = tmp_path / "text.json"
    text.write_text('["ab", "ab", "ab"]\n')
    return str(schema), text


def test_profile_shows_a_row_per_state(
    files: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    schema, text = files
    code, out = run(capsys, "profile", schema, "--text", str(text), "--json")
    report = json.loads(out)
    states = report["states"]
    assert code == 0 and len(states) == len('["ab", "ab", "ab"]') + 1
    assert set(report["milliseconds"]) == {"compile", "bind"}
    assert states[0]["allowed"] == 5  # the bracket and four blanks
    assert all(row["cold_us"] > 0 and row["warm_us"] > 0 for row in states)
    # The third string is the second one's twin, so its rows are known.
    assert [row["how"] for row in states].count("cached") >= 2
    code, out = run(capsys, "profile", schema, "--text", str(text))
    assert code == 0 and "cold" in out and "cached" in out


def test_profile_says_where_a_text_stops_fitting(
    files: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    schema, text = files
    text.write_text('["abcd"]')
    code, out = run(capsys, "profile", schema, "--text", str(text), "--slowest", "3")
    assert code == 1 and "does not fit" in out
    text.write_text('["abc"')
    assert run(capsys, "profile", schema, "--text", str(text))[0] == 1
    assert run(capsys, "profile", schema, "--text", str(text), "--tokenizer", "no/file")[0] == 2


def test_warmup_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "warmup")
    assert code == 0 and "masks:" in out and "ready after" in out
