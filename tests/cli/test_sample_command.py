"""`structspec sample`, and `structspec explain` of grammars."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="the extra 'grammars' is not installed: pip install lark")

import structspec
from structspec.cli.main import main

LARK = 'start: "a"~1..3 | "(" start ")" | "\\n"\nunused: "b"\n'


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    try:
        main([str(a) for a in arguments])
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_samples_are_texts_of_the_language_and_repeat_with_the_seed(capsys, tmp_path) -> None:
    path = write(tmp_path, "g.lark", LARK)
    code, out, _ = run(capsys, "sample", path, "-n", 20, "--seed", 1, "--max-bytes", 9, "--json")
    texts = [json.loads(line) for line in out.splitlines()]
    grammar = structspec.compile(LARK, syntax="lark")
    assert code == 0 and len(texts) == 20
    assert all(grammar.accepts(text) and len(text) <= 9 for text in texts)
    assert run(capsys, "sample", path, "-n", 20, "--seed", 1, "--max-bytes", 9, "--json")[1] == out
    plain = run(capsys, "sample", path, "-n", 20, "--seed", 1, "--max-bytes", 9)[1].splitlines()
    assert plain == [t if "\n" not in t else json.dumps(t) for t in texts]


@pytest.mark.parametrize(
    ("name", "text"),
    [("g.gbnf", 'root ::= "a"+'), ("g.regex", "a{2,3}\n"), ("g.json", '{"type": "boolean"}')],
)
def test_every_notation_is_sampled_by_its_ending(capsys, tmp_path, name: str, text: str) -> None:
    code, out, _ = run(capsys, "sample", write(tmp_path, name, text), "-n", 3, "--seed", 2)
    assert code == 0 and len(out.splitlines()) == 3
    assert set(out) <= set("atruefls\n")


def test_a_limit_below_the_shortest_text_is_refused_with_both_numbers(capsys, tmp_path) -> None:
    path = write(tmp_path, "g.regex", "a{9}")
    code, out, err = run(capsys, "sample", path, "--max-bytes", 4)
    assert (code, out) == (2, "") and "4" in err and "9" in err


def test_grammars_are_explained_rule_by_rule(capsys, tmp_path) -> None:
    path = write(tmp_path, "g.lark", LARK)
    code, out, _ = run(capsys, "explain", path)
    assert code == 0 and "not used" in out and "unused" in out and "states" in out
    code, out, _ = run(capsys, "explain", path, "--json", "--start", "unused")
    assert code == 0 and json.loads(out)["compiles"]


def test_a_grammar_may_import_from_the_files_beside_it(capsys, tmp_path) -> None:
    write(tmp_path, "words.lark", 'WORD: "x"+\n')
    path = write(tmp_path, "g.lark", "%import .words.WORD\nstart: WORD\n")
    code, out, _ = run(capsys, "sample", path, "-n", 2)
    assert code == 0 and set(out) <= set("x\n")


def test_a_mistake_is_shown_with_a_caret(capsys, tmp_path) -> None:
    path = write(tmp_path, "g.gbnf", 'root ::= "a" tail\n')
    for command in ("sample", "explain"):
        code, out, err = run(capsys, command, path)
        assert (code, out) == (2, "")
        assert "line 1, column 14" in err and err.rstrip().endswith("^")
