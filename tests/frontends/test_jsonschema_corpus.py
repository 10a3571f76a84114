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
    for line in (_HERE.parent / "corpus" / "json_schema.jsonl").read_text().splitlines()
]

_spec = importlib.util.spec_from_file_location("ir_reference", _HERE / "ir_reference.py")
assert _spec is not None and _spec.loader is not None
ir_reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ir_reference)

# What the front end refuses at present; every other case of the corpus has to be compiled.
_REFUSED_KEYWORDS = {"pattern", "patternProperties", "format", "uniqueItems", "contains", 
                     "minProperties", "multipleOf"}


@pytest.mark.parametrize("case", _CASES, ids=[case["id"] for case in _CASES])
@pytest.mark.parametrize("spelling", ["any", "canonical"])
def test_a_case_is_right_or_refused_by_name(case: dict[str, Any], spelling: Any) -> None:
    options = SchemaOptions(
        spelling=spelling, assert_formats=case.get("formats_asserted", False)
    )
    try:
        grammar, report = lower_schema(case["schema"], options)
    except UnsupportedFeature as refusal:
        assert refusal.keyword in _REFUSED_KEYWORDS, refusal
        assert f'"{refusal.keyword}"' in json.dumps(case["schema"])
        pytest.skip(f"refused: {refusal}")
    assert report.exact
    for text in case["valid"]:
        assert ir_reference.accepts(grammar, text), f"refuses the valid {text[:200]}"
    for text in case["invalid"]:
        assert not ir_reference.accepts(grammar, text), f"accepts the invalid {text[:200]}"
