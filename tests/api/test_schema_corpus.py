"""The collected JSON Schema cases through `structspec.compile`: right in all texts, or refused.

A valid text may only be missing where the report says that a keyword is narrowed.
"""

import json
from collections import Counter
from pathlib import Path

import structspec

PATH = Path(__file__).parents[1] / "corpus" / "json_schema.jsonl"
CASES = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]


def test_no_case_is_silently_wrong(capsys):
    counts: Counter[str] = Counter()
    notes = []
    for case in CASES:
        try:
            grammar = structspec.compile(
                case["schema"], assert_formats=bool(case.get("formats_asserted"))
            )
        except structspec.UnsupportedFeature as refusal:
            assert case.get("may_refuse_schema"), (case["id"], refusal)
            assert refusal.keyword in json.dumps(case["schema"]), (case["id"], refusal)
            counts["refused"] += 1
            continue
        accepted = [text for text in case["invalid"] if grammar.accepts(text)]
        missing = [text for text in case["valid"] if not grammar.accepts(text)]
        assert not accepted, (case["id"], accepted)
        if missing:
            narrowed = {entry.keyword for entry in grammar.report.with_status("narrowed")}
            assert "format" in narrowed, (case["id"], missing)
            notes.append(f"{case['id']}: {missing}")
        counts["narrowed" if missing else "right"] += 1
    with capsys.disabled():
        print(f"\njson_schema.jsonl: {dict(counts)} wrong 0; left out as narrowed: {notes}")
    assert sum(counts.values()) == len(CASES) == 128
    assert counts["right"] >= 125 and counts["narrowed"] <= 1
