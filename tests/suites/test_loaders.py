"""Reading suites: every format, numbers and texts exactly as written."""

from __future__ import annotations

import json
import lzma
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from structspec.errors import SchemaError
from structspec.suites import load_suite
from structspec.suites.exact import read, write
from structspec.suites.loading import detect

NUMBERS = ["1", "1.0", "-0", "-0.0", "1e2", "1E+2", "123456789012345678901234567890", "0.1000",
           "1e400", "12345678901234567890.12345678901234567890"]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_keeps_its_spelling(number: str) -> None:
    assert write(read(f'[{number},{{"a":{number}}}]')) == f'[{number}, {{"a": {number}}}]'


VALUES = [
    {},
    [],
    [[], {}],
    {"a": [1, "x", None, True, {"b": "é\n\u2028\x00"}]},
    "😀",
    {"": {"": ""}},
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_writing_is_json_dumps_without_ascii(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert write(read(text)) == text == write(value)


def test_half_a_surrogate_pair_stays_an_escape_and_a_pair_is_one_character() -> None:
    assert write(read(r'["\ud800", "\ud83d\ude00"]')) == r'["\ud800", "😀"]'
    write(read(r'"\ud800"')).encode("utf-8")


def test_what_is_not_json_is_named_with_its_place() -> None:
    with pytest.raises(SchemaError, match="line 2, column 1"):
        read("[1\n1]")
    with pytest.raises(SchemaError, match="NaN"):
        read("[NaN]")


def test_writing_a_float_is_refused_rather_than_rounded() -> None:
    with pytest.raises(TypeError, match="Decimal"):
        write([Decimal("0.1")])


@pytest.fixture
def official(tmp_path: Path) -> Path:
    root = tmp_path / "suite"
    group = [
        {
            "description": "d",
            "schema": {"const": 1},
            "tests": [
                {"description": "x", "data": 1, "valid": True},
                {"description": "y", "data": 2, "valid": False},
            ],
        }
    ]
    for draft in ("draft4", "draft2020-12"):
        for folder in ("", "optional", "optional/format"):
            place = root / "tests" / draft / folder
            place.mkdir(parents=True, exist_ok=True)
            (place / "const.json").write_text(json.dumps(group).replace('"data": 1', '"data": 1.0'))
    (root / "remotes" / "nested").mkdir(parents=True)
    (root / "remotes" / "nested" / "s.json").write_text('{"minimum": 1.50}')
    return root


def test_an_official_draft_has_its_dialect_its_remotes_and_exact_texts(official: Path) -> None:
    suite = load_suite(official / "tests" / "draft4")
    (group,) = suite.groups
    assert suite.name == "official-draft4-required"
    assert (group.id, group.topic) == ("draft4/const/0", "const")
    assert [(t.id, t.text, t.valid) for t in group.tests] == [
        ("draft4/const/0/0", "1.0", True),
        ("draft4/const/0/1", "2", False),
    ]
    assert group.options["default_dialect"] == "http://json-schema.org/draft-04/schema#"
    assert group.options["assert_formats"] is False
    assert suite.resources == {"http://localhost:1234/nested/s.json": '{"minimum": 1.50}'}


def test_the_parts_of_the_official_suite_are_separate(official: Path) -> None:
    place = official / "tests" / "draft2020-12"
    ids = {p: [g.id for g in load_suite(place, part=p).groups] for p in ("optional", "format")}
    assert ids["optional"] == ["draft2020-12/optional/const/0"]
    assert ids["format"] == ["draft2020-12/optional/format/const/0"]
    assert load_suite(place, part="format").groups[0].options["assert_formats"] is True
    assert len(load_suite(place, part="all").groups) == 3
    with pytest.raises(SchemaError, match="required, optional, format, all"):
        load_suite(place, part="some")


def test_a_root_of_the_official_suite_is_all_drafts_and_a_file_is_itself(official: Path) -> None:
    assert [g.topic for g in load_suite(official).groups] == ["draft4/const", "draft2020-12/const"]
    file = official / "tests" / "draft4" / "optional" / "const.json"
    assert [g.id for g in load_suite(file).groups] == ["draft4/optional/const/0"]


def test_maskbench_lines_may_be_compressed(tmp_path: Path) -> None:
    case = {
        "id": "Some---thing",
        "schema": {"type": "number"},
        "tests": [{"valid": True, "data": {"é": 0.10}, "description": "x"}],
    }
    line = json.dumps(case).replace("0.1}", "0.10}") + "\n"
    plain, packed = tmp_path / "m.jsonl", tmp_path / "m.jsonl.xz"
    plain.write_text(line)
    packed.write_bytes(lzma.compress(line.encode()))
    for path in (plain, packed):
        (group,) = load_suite(path).groups
        assert (group.topic, group.id) == ("Some", "Some---thing")
        assert group.tests[0].text == '{"é": 0.10}'
    assert load_suite(plain).sha256 == load_suite(packed).sha256


def test_cases_judge_valid_other_and_invalid_texts_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    case = {"id": "js-1", "topic": "t", "schema": {"type": "integer"}, "valid": ["1"],
            "valid_other_spelling": [" 1.0"], "invalid": ["1,"], "either": ["?"],
            "formats_asserted": True}  # fmt: skip
    path.write_text(json.dumps(case))
    (group,) = load_suite(path).groups
    assert [(t.id, t.text, t.valid, t.optional) for t in group.tests] == [
        ("js-1/valid/0", "1", True, False),
        ("js-1/valid_other_spelling/0", " 1.0", True, True),
        ("js-1/invalid/0", "1,", False, False),
    ]
    assert group.options == {"assert_formats": True} and not group.may_refuse


def test_a_line_of_another_form_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"id": "a", "schema": {}, "tests": []}\n\n{"id": "b"}\n')
    with pytest.raises(SchemaError, match="line 3 lacks 'schema', 'tests'"):
        load_suite(path, "maskbench")


def test_a_plain_folder_reads_the_verdict_from_the_names(tmp_path: Path) -> None:
    files = {
        "person.schema.json": "true",
        "person.valid.json": '{"n":1.0}',
        "person.invalid-broken.txt": '{"n":',
        "person.validation-notes.json": "1",
        "personal.valid.json": "2",
        "deep/er/schema.json": "{}",
        "deep/er/valid/one.json": "1",
        "deep/er/invalid/two.json": "2",
        "deep/er/invalid.three.json": "3",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    groups = {g.id: [(t.id, t.text, t.valid) for t in g.tests] for g in load_suite(tmp_path).groups}
    assert groups == {
        "person.schema.json": [
            ("person.invalid-broken.txt", '{"n":', False),
            ("person.valid.json", '{"n": 1.0}', True),
        ],
        "deep/er/schema.json": [
            ("deep/er/invalid.three.json", "3", False),
            ("deep/er/valid/one.json", "1", True),
            ("deep/er/invalid/two.json", "2", False),
        ],
    }


def test_a_folder_without_the_names_is_all_schemas(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text("true")
    assert [(g.id, g.tests) for g in load_suite(tmp_path).groups] == [
        ("a.json", ()),
        ("b.json", ()),
    ]


def test_the_format_is_guessed(official: Path, tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"id": "a", "schema": {}, "tests": []}')
    (tmp_path / "c.jsonl").write_text('{"id": "a", "schema": {}, "valid": []}')
    found = [detect(p) for p in (official, tmp_path / "m.jsonl", tmp_path / "c.jsonl", tmp_path)]
    assert found == ["official", "maskbench", "cases", "folder"]


def test_a_missing_path_an_empty_folder_and_an_unknown_format_are_said(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="nowhere"):
        load_suite(tmp_path / "nowhere")
    with pytest.raises(SchemaError, match=r"no \.json file"):
        load_suite(tmp_path)
    with pytest.raises(SchemaError, match="official, maskbench, cases, folder"):
        load_suite(tmp_path, "yaml")


def test_the_digest_changes_with_the_content_and_not_with_a_sample(official: Path) -> None:
    before = load_suite(official)
    assert before.sample(2).sha256 == before.sha256 and len(before.sample(2).groups) == 1
    file = official / "tests" / "draft4" / "const.json"
    file.write_text(file.read_text().replace("true", "false"))
    assert load_suite(official).sha256 != before.sha256
