"""Every case of the corpus of reported faults: right or refused by name, never wrong in silence."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from structspec.errors import UnsupportedFeature
from structspec.frontends.jsonschema import SchemaOptions, lower_schema

_HERE = Path(__file__).parent
_CASES = [
    json.loads(line)
    for line in (_HERE.parent / "corpus" / "json_schema.jsonl").read_text("utf-8").splitlines()
]

_spec = importlib.util.spec_from_file_location("ir_reference", _HERE / "ir_reference.py")
assert _spec is not None and _spec.loader is not None
ir_reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ir_reference)

# The keywords that the front end may refuse; a refusal for anything else is a regression.
_REFUSED_KEYWORDS = {
    "format",
    "pattern",
    "uniqueItems",
}
# How many cases compile; the number may only grow.
_COMPILED_AT_LEAST = 126


def _compile(case: dict[str, Any], **policies: Any) -> Any:
    asserted = case.get("formats_asserted", False)
    return lower_schema(case["schema"], SchemaOptions(assert_formats=asserted, **policies))


@pytest.mark.parametrize("spelling", ["any", "canonical"])
@pytest.mark.parametrize("key_order", ["declared", "any"])
@pytest.mark.parametrize("case", _CASES, ids=[case["id"] for case in _CASES])
def test_a_case_is_right_or_refused_by_name(
    case: dict[str, Any], spelling: str, key_order: str
) -> None:
    try:
        grammar, report = _compile(case, spelling=spelling, key_order=key_order)
    except UnsupportedFeature as refusal:
        assert refusal.keyword in _REFUSED_KEYWORDS, refusal
        assert f'"{refusal.keyword}"' in json.dumps(case["schema"])
        return
    assert report.exact
    doubt = any(entry.keyword == "format" for entry in report.with_status("narrowed"))
    for text in case["valid"]:
        if doubt and "xn--" in text:
            continue  # which Punycode labels are valid is left open, as the report says
        assert ir_reference.accepts(grammar, text), f"refuses the valid {text[:200]}"
    for text in case["invalid"]:
        assert not ir_reference.accepts(grammar, text), f"accepts the invalid {text[:200]}"


def test_most_cases_compile() -> None:
    refused: dict[str, int] = {}
    for case in _CASES:
        try:
            _compile(case)
        except UnsupportedFeature as refusal:
            refused[refusal.keyword] = refused.get(refusal.keyword, 0) + 1
    print(f"{len(_CASES) - sum(refused.values())} of {len(_CASES)} compile; refused: {refused}")
    assert len(_CASES) - sum(refused.values()) >= _COMPILED_AT_LEAST


def test_other_spellings_are_accepted_where_the_report_promises_them() -> None:
    accepted = total = 0
    for case in _CASES:
        try:
            grammar, _ = _compile(case, key_order="any")
        except UnsupportedFeature:
            continue
        for text in case.get("valid_other_spelling", []):
            total += 1
            ok = ir_reference.accepts(grammar, text)
            accepted += ok
            # Exponents are the one spelling that is left out.
            assert ok or any(mark in text.lower() for mark in ("e-", "e+", "e0", "e1", "e2")), text
    assert accepted > total / 2
