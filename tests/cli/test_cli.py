"""The command line: what it prints, and one helpful message with exit code 2 for bad input."""

import json

import pytest

from structspec.cli.main import main

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def run(capsys, *arguments):
    """Exit code, standard output and standard error of one call."""
    code = 0
    try:
        main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def schema_file(tmp_path, content):
    path = tmp_path / "schema.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_version_and_help_need_no_model(capsys):
    assert run(capsys, "--version")[:2] == (0, "structspec 0.1.0\n")
    code, out, _ = run(capsys, "generate", "--help")
    assert code == 0 and "--schema" in out


BAD_SCHEMAS = {
    "malformed JSON": ('{"type": "integer",}', "line 1"),
    "not a schema": ({"type": "intger"}, "intger"),
    "a reference to nowhere": ({"$ref": "#/$defs/none"}, "#/$defs/none"),
    "an unsupported keyword": (
        {"type": "array", "uniqueItems": True, "minItems": 2},
        "uniqueItems",
    ),
}


@pytest.mark.parametrize("name", BAD_SCHEMAS)
def test_a_bad_schema_is_one_message_and_exit_code_2(capsys, tmp_path, name):
    content, expected = BAD_SCHEMAS[name]
    code, out, err = run(
        capsys, "generate", "--schema", schema_file(tmp_path, content), "--prompt", "x"
    )
    assert (code, out) == (2, "")
    assert expected in err and err.startswith("structspec: error: ") and "Traceback" not in err
    assert len(err.strip().splitlines()) <= 3


def test_a_missing_schema_file_names_the_file(capsys, tmp_path):
    code, _, err = run(capsys, "generate", "--schema", tmp_path / "no.json", "--prompt", "x")
    assert code == 2 and "no.json" in err and "Traceback" not in err


def test_a_missing_prompt_says_how_to_give_one(capsys, tmp_path):
    code, _, err = run(capsys, "generate", "--schema", schema_file(tmp_path, PERSON))
    assert code == 2 and "--prompt" in err


def test_a_missing_model_directory_names_it(capsys, tmp_path):
    code, _, err = run(
        capsys, "generate", "--schema", schema_file(tmp_path, PERSON), "--prompt", "x",
        "--model", tmp_path / "nowhere",
    )  # fmt: skip
    assert code == 2 and "nowhere" in err and "Traceback" not in err


def test_an_unknown_option_is_exit_code_2(capsys):
    code, _, err = run(capsys, "generate", "--nonsense")
    assert code == 2 and "nonsense" in err


@pytest.mark.model
def test_an_unsatisfiable_schema_says_so(capsys, tmp_path, default_model):
    code, out, err = run(
        capsys, "generate", "--schema", schema_file(tmp_path, "false"), "--prompt", "x"
    )
    assert (code, out) == (2, "") and "empty" in err


@pytest.mark.model
def test_a_prompt_beyond_the_window_names_both_numbers(capsys, tmp_path, default_model):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("word " * 9000)
    code, _, err = run(
        capsys, "generate", "--schema", schema_file(tmp_path, PERSON), "--prompt-file", prompt
    )
    assert code == 2 and "8192" in err.replace(",", "") and "Traceback" not in err


@pytest.mark.model
def test_a_budget_that_is_too_small_is_refused_with_both_numbers(capsys, tmp_path, default_model):
    code, out, err = run(
        capsys, "generate", "--schema", schema_file(tmp_path, PERSON), "--prompt", "x",
        "--max-tokens", 2,
    )  # fmt: skip
    assert (code, out) == (2, "") and "max_tokens=2" in err


@pytest.mark.model
def test_json_output_holds_value_text_tokens_and_statistics(capsys, tmp_path, default_model):
    code, out, _ = run(
        capsys, "generate", "--schema", schema_file(tmp_path, PERSON), "--json",
        "--prompt", "Ada is 36. Answer as JSON with name and age.", "--max-tokens", 40,
    )  # fmt: skip
    assert code == 0
    report = json.loads(out)
    assert set(report["value"]) == {"name", "age"}
    assert json.loads(report["text"]) == report["value"]
    stats = report["stats"]
    assert stats["tokens"] == len(report["tokens"]) and stats["forwards"] >= 1
    assert stats["accepted"] <= stats["drafted"]


def test_a_schema_file_that_is_no_schema_is_named(tmp_path, capsys):
    """What the library says of a text does not help where a file was given."""
    cases = {
        "": "is empty",
        "[1, 2]": "is JSON, but no schema",
        '{"type": "object",': "is not JSON: line 1, column 19",
        'root ::= "a"': ".lark, .gbnf, .regex",
    }
    for content, said in cases.items():
        path = schema_file(tmp_path, content)
        for command in (["explain", path], ["generate", "-s", path, "-p", "x"]):
            code, _, err = run(capsys, *command)
            assert code == 2 and said in err and str(path) in err, (content, err)
            assert len(err.splitlines()) == 1


def test_a_schema_file_is_parsed_once(tmp_path, capsys, monkeypatch):
    """Whether it holds JSON at all is asked only where no grammar came of it."""
    monkeypatch.setattr("structspec.cli.files._check_json", None)
    code, out, _ = run(capsys, "explain", schema_file(tmp_path, PERSON))
    assert code == 0 and "exact" in out


def test_numbers_that_python_would_not_read_are_left_to_the_front_end(tmp_path, capsys):
    path = schema_file(tmp_path, '{"const": ' + "1" * 5000 + "}")
    code, _, err = run(capsys, "explain", path)
    assert code == 2 and "'/const' is not supported" in err and "4096 digits" in err


def test_grammars_are_known_by_their_ending_everywhere(tmp_path, capsys):
    grammar = tmp_path / "ab.gbnf"
    grammar.write_text('root ::= "a" tail')
    text = tmp_path / "text.txt"
    text.write_text("ab\n")
    commands = (
        ["explain", grammar],
        ["sample", grammar],
        ["profile", grammar, "--text", text],
        ["generate", "-s", grammar, "-p", "x"],
    )
    for command in commands:
        code, _, err = run(capsys, *command)
        assert code == 2 and "the rule 'tail' is not defined" in err, (command, err)
    grammar.write_text('root ::= "a" tail\ntail ::= "b"')
    assert run(capsys, "profile", grammar, "--text", text)[0] == 0


def test_wrong_arguments_are_told_under_the_name_of_the_command(capsys):
    for arguments in (["nonsense"], ["--bogus"], ["generate"], ["profile", "x", "--slowest", "0"]):
        code, _, err = run(capsys, *arguments)
        assert code == 2 and "structspec" in err and "Traceback" not in err, arguments


def test_tasks_that_cannot_be_read_are_told_before_a_model_is_loaded(tmp_path, capsys):
    wrong = {
        "empty.jsonl": (b"", "holds no task"),
        "schema.jsonl": (b'{"id": 1}\n', "line 1: a task needs messages"),
        "text.jsonl": (b"\xff\xfe", "not lines of JSON in UTF-8"),
        "packed.xz": (b"no archive", "not lines of JSON in UTF-8"),
    }
    for name, (content, said) in wrong.items():
        path = tmp_path / name
        path.write_bytes(content)
        arguments = ("train-draft", "-t", path, "-o", tmp_path / "out", "-m", "/no/such/model")
        code, _, err = run(capsys, *arguments)
        assert code == 2 and said in err and str(path) in err, (name, err)
    code, _, err = run(capsys, "train-draft", "-t", tmp_path, "-o", tmp_path / "out")
    assert code == 2 and "cannot read the tasks" in err


def test_a_baseline_that_cannot_be_read_is_told_before_the_run(tmp_path, capsys):
    (tmp_path / "a.schema.json").write_text('{"type": "integer"}')
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    for path, said in ((tmp_path / "no.json", "--update-baseline"), (broken, "cannot read")):
        code, out, err = run(capsys, "suite", "run", tmp_path, "--baseline", path)
        assert (code, out) == (2, "") and said in err and str(path) in err


@pytest.mark.model
def test_tasks_of_which_none_can_be_answered_are_told(tmp_path, capsys):
    tasks = tmp_path / "tasks.jsonl"
    message = {"role": "user", "content": "x"}
    tasks.write_text(json.dumps({"messages": [message], "schema": {"type": "strng"}}))
    code, _, err = run(capsys, "train-draft", "-t", tasks, "-o", tmp_path / "out")
    assert code == 2 and "none of the 1 training tasks could be answered" in err
