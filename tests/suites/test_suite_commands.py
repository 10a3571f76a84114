"""`structspec suite run` and `structspec explain`: what they print, exit codes, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from structspec.cli.main import main

ENGINE = f"{Path(__file__).with_name('scripted_engine.py')}:make"


def run(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one call."""
    code: Any = 0
    try:
        main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "n.schema.json").write_text('{"type": "integer", "maximum": 5}')
    (place / "n.valid.json").write_text("3")
    (place / "n.invalid.json").write_text("6")
    (place / "u.schema.json").write_text('{"type": "array", "uniqueItems": true, "minItems": 2}')
    (place / "u.valid.json").write_text("[1, 2]")
    return place


def test_a_folder_is_judged_and_reported_in_every_form(capsys: Any, folder: Path) -> None:
    out_json, out_xml = folder.parent / "out.json", folder.parent / "out.xml"
    code, out, err = run(
        capsys, "suite", "run", folder, "--json", out_json, "--junit", out_xml, "--jobs", 2
    )
    assert code == 0 and err == ""
    assert "folder-mine: 2 schemas, 3 tests" in out and "n.schema.json" in out
    report = json.loads(out_json.read_text())
    assert report["runs"][0]["engine"] == "structspec"
    assert report["runs"][0]["counts"]["right"] >= 2
    assert out_xml.read_text().count("<testcase") == 3


def test_wrong_answers_are_exit_code_1_and_engines_stand_side_by_side(
    capsys: Any, tmp_path: Path
) -> None:
    (tmp_path / "s.schema.json").write_text("{}")
    (tmp_path / "s.invalid.json").write_text('"yes"')
    code, out, _ = run(
        capsys, "suite", "run", tmp_path, "--engine", "structspec", "--engine", ENGINE
    )
    assert code == 1
    assert "structspec" in out and "false accept: s.invalid.json" in out


def test_json_goes_to_standard_output_alone(capsys: Any, folder: Path) -> None:
    _, out, _ = run(capsys, "suite", "run", folder, "--json", "-", "--limit", 1)
    assert json.loads(out)["schemas"] == 1


def test_a_baseline_is_written_then_kept(capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "s.schema.json").write_text("{}")
    (tmp_path / "s.valid.json").write_text('"no"')
    path = tmp_path / "base.txt"
    arguments = ("suite", "run", tmp_path, "--engine", ENGINE, "--baseline", path)
    assert run(capsys, *arguments, "--update-baseline")[0] == 0
    code, _, err = run(capsys, *arguments)
    assert code == 0 and "as in the baseline" in err
    path.write_text(path.read_text().replace('"false reject": [', '"refused": ['))
    code, _, err = run(capsys, *arguments)
    assert code == 1 and "regression: s.valid.json: refused -> false reject" in err


def test_files_that_are_not_json_are_named_and_the_others_run(capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "broken.schema.json").write_text('{"type": ')
    (tmp_path / "broken.valid.json").write_text("1")
    (tmp_path / "alone.schema.json").write_bytes(b"\xff")
    (tmp_path / "good.schema.json").write_text("{}")
    (tmp_path / "good.valid.json").write_text('"yes"')
    (tmp_path / "good.invalid-cut.json").write_text("[1,")
    arguments = ("suite", "run", tmp_path, "--engine", ENGINE)
    code, out, _ = run(capsys, *arguments)
    assert code == 1
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert lines["topic"] == ["topic", "tests", "right", "refused", "unreadable", "false",
                              "reject", "false", "accept"]  # fmt: skip
    assert lines["all"] == ["all", "4", "1", "·", "3", "·", "·"]
    assert lines["good.schema.json"][1:3] == ["1", "1"]
    for name in ("broken.valid.json", "alone.schema.json", "good.invalid-cut.json"):
        assert any(line.startswith(f"unreadable: {name}") for line in out.splitlines())
    assert "line 1, column 10" in out
    code, out, _ = run(capsys, *arguments, "--json", "-")
    groups = {group["id"]: group for group in json.loads(out)["runs"][0]["groups"]}
    assert code == 1 and groups["broken.schema.json"]["failure"] == "unreadable"


BAD = {
    "no such path": (("nowhere",), "nowhere"),
    "unknown format": ((".", "--format", "yaml"), "yaml"),
    "unknown engine": ((".", "--engine", "nonsense"), "nonsense"),
    "unknown key order": ((".", "--key-order", "random"), "random"),
    "a baseline of a part": ((".", "--update-baseline"), "--baseline"),
    "a malformed suite": ((".", "--format", "official"), "draft"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_message_and_exit_code_2(
    capsys: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(folder)
    arguments, expected = BAD[name]
    code, _, err = run(capsys, "suite", "run", *arguments)
    assert code == 2 and expected in err and "Traceback" not in err


def test_explain_lists_keywords_and_the_size(capsys: Any, folder: Path) -> None:
    code, out, err = run(capsys, "explain", folder / "n.schema.json")
    assert code == 0 and err == ""
    assert "maximum" in out and "states" in out and "byte classes" in out
    code, out, _ = run(capsys, "explain", folder / "n.schema.json", "--json")
    value = json.loads(out)
    assert code == 0 and value["compiles"] and value["refused"] is None
    assert {(e["pointer"], e["keyword"]) for e in value["keywords"]} == {
        ("", "type"),
        ("", "maximum"),
    }
    assert set(value["built"]) == {"states", "rules", "byte_classes"}


def test_explain_shows_a_refused_keyword_beside_the_others(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"title": "t", "type": "string", "pattern": "^(a)\\\\1$"}')
    code, out, err = run(capsys, "explain", path)
    assert code == 2 and "pattern" in err and "Traceback" not in err
    assert "refused" in out and "nothing was built" in out
    code, out, _ = run(capsys, "explain", path, "--json")
    value = json.loads(out)
    assert code == 2 and value["refused"]["keyword"] == "pattern" and not value["compiles"]
    statuses = {e["keyword"]: e["status"] for e in value["keywords"]}
    assert statuses["pattern"] == "refused"


def test_explain_names_what_is_no_schema(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"type": "intger"}')
    code, out, err = run(capsys, "explain", path)
    assert (code, out) == (2, "") and "intger" in err
    code, _, err = run(capsys, "explain", tmp_path / "none.json")
    assert code == 2 and "none.json" in err
