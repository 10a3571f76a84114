"""Random schemas of every draft, compiled as a caller would, against exact decimals.

Each pair is a schema and a text. The text is a value written out, or was sampled byte by byte from
the compiled automaton itself. Refusals are counted; a difference of verdicts fails with the pair.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import structspec
from structspec.errors import BudgetExceeded, Unsatisfiable, UnsupportedFeature
from structspec.frontends.jsonschema.keywords import keyword_of
from structspec.suites.reference import read, reference

_path = Path(__file__).parent / "random_schemas.py"
_spec = importlib.util.spec_from_file_location("random_schemas", _path)
assert _spec is not None and _spec.loader is not None
random_schemas = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(random_schemas)

_BYTES = structspec.Vocabulary([*(bytes([b]) for b in range(256)), None], eos_ids=[256])
_LAYOUTS = {
    "compact": (":", ","),
    "conventional": (": ", ", "),
    "flexible": (" :\t", "\n,  "),
}
# ECMAScript's `.` leaves out more ends of lines than Python's, and its `$` none at all.
_ENDS_LINES = re.compile(r"[\n\r\u2028\u2029]")
_LONG_EXPONENT = re.compile(r"[0-9][eE][-+]?0*[0-9]{3}")


def sampled(grammar: structspec.Grammar, rng: random.Random, number: int) -> list[str]:
    """Texts of the grammar, byte by byte; those that no parser can read back are left out."""
    try:
        constraint = grammar.bind(_BYTES)
    except Unsatisfiable:
        return []
    found = []
    for _ in range(number):
        state, text = constraint.start, bytearray()
        left = constraint.distance(state) + rng.randint(0, 40)
        while True:
            row = constraint.mask(state, left)
            allowed = [t for t in range(257) if row[t // 32] >> (t % 32) & 1]
            # Few letters are allowed where structure decides; elsewhere take plain ones mostly.
            plain = [t for t in allowed if 32 < t < 127]
            token = rng.choice(plain if plain and rng.random() < 0.8 else allowed)
            if token == 256:
                break
            text.append(token)
            state = constraint.advance(state, token)
            left -= 1
        written = text.decode()
        if not _LONG_EXPONENT.search(written):
            found.append(written)
    return found


def differences(seed: int, schemas: int, texts: int, samples: int) -> Counter[str]:
    """Judge the pairs of one seed; returns what was counted. Raises AssertionError."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    for _ in range(schemas):
        draft = rng.choice(random_schemas.DRAFTS)
        schema = random_schemas.Writer(rng, draft).schema()
        policy: Any = rng.choice(("compact", "conventional", "flexible", "flexible"))
        spelling: Any = rng.choice(("any", "any", "canonical"))
        asserted = rng.random() < 0.7
        pairs = random_schemas.values_for(rng, schema, texts)
        own = random.Random(rng.random())
        try:
            grammar = structspec.compile(
                schema,
                key_order="any",
                whitespace=policy,
                spelling=spelling,
                assert_formats=asserted,
                limits=structspec.Limits(time=30),
            )
        except UnsupportedFeature as refusal:
            counts[f"refused {refusal.keyword}"] += 1
            continue
        except BudgetExceeded as refusal:
            counts[f"budget {refusal.what}"] += 1
            continue
        counts["schemas"] += 1
        _count_keywords(schema, draft, counts)
        judge = reference(schema, draft, random_schemas.FORMATS if asserted else ())
        layout = _LAYOUTS[policy]
        written = [
            random_schemas.text_of(value, own, *layout, spelling == "canonical") for value in pairs
        ]
        for text in written:
            try:
                right = judge(read(text))
            except RecursionError:
                # A reference that leads back to itself at the same value, in a branch that decides
                # nothing here.
                counts["endless reference"] += 1
                continue
            counts[f"valid {right}"] += 1
            assert grammar.accepts(text) == right, (seed, draft, policy, spelling, schema, text)
        for text in sampled(grammar, own, samples):
            assert grammar.accepts(text), (seed, draft, policy, spelling, schema, text)
            if _ENDS_LINES.search(" ".join(_strings(text))):
                counts["ends of lines"] += 1
                continue
            if _repeats(text):
                counts["repeats a key"] += 1
                continue
            try:
                right = judge(read(text))
            except RecursionError:
                counts["endless reference"] += 1
                continue
            counts["sampled"] += 1
            assert right, (seed, draft, policy, spelling, schema, text)
    counts["pairs"] = counts["valid True"] + counts["valid False"] + counts["sampled"]
    return counts


def _repeats(text: str) -> bool:
    """Whether an object of the text holds a key twice: such texts have no one value."""
    repeated = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal repeated
        repeated = repeated or len({name for name, _ in pairs}) < len(pairs)

    json.loads(text, object_pairs_hook=look)
    return repeated


def _strings(text: str) -> list[str]:
    """All strings of a text, keys included."""
    found: list[str] = []
    stack = [read(text)]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            found.append(top)
        elif isinstance(top, list):
            stack.extend(top)
        elif isinstance(top, dict):
            stack.extend([*top, *top.values()])
    return found


def _count_keywords(schema: Any, draft: int, counts: Counter[str]) -> None:
    stack = [schema]
    while stack:
        top = stack.pop()
        if isinstance(top, dict):
            for name, value in top.items():
                known = keyword_of(name, draft)
                if known is not None and known.role == "assertion":
                    counts[f"{draft} {name}"] += 1
                stack.append(value)
        elif isinstance(top, list):
            stack.extend(top)


def test_1_500_random_pairs_agree_with_exact_decimals() -> None:
    counts = differences(seed=1, schemas=90, texts=20, samples=2)
    print({key: n for key, n in sorted(counts.items()) if not key[0].isdigit()})
    assert counts["pairs"] >= 1_300
    assert counts["valid True"] > 250 and counts["valid False"] > 250


@pytest.mark.full
def test_100_000_random_pairs_agree_with_exact_decimals() -> None:
    total: Counter[str] = Counter()
    seed = 1_000
    while total["pairs"] < 100_000:
        total += differences(seed, schemas=200, texts=40, samples=5)
        seed += 1
    print({key: n for key, n in sorted(total.items()) if not key[0].isdigit()})
    for draft in random_schemas.DRAFTS:
        met = {key.split(" ", 1)[1] for key in total if key.startswith(f"{draft} ")}
        print(draft, len(met), sorted(met))
        assert met >= _expected(draft)


def _expected(draft: int) -> set[str]:
    """Every asserting keyword of a draft."""
    from structspec.frontends.jsonschema import keywords

    return {row.name for row in keywords._TABLE
            if row.since <= draft <= row.until and row.role == "assertion"}  # fmt: skip


@pytest.mark.parametrize(("draft", "evaluates"), [(2019, False), (2020, True)])
def test_contains_evaluates_items_from_2020_on(draft: int, evaluates: bool) -> None:
    """Section 9.3.1.3 of 2019-09 names items and additionalItems; 2020-12 adds contains."""
    uri = {2019: "2019-09", 2020: "2020-12"}[draft]
    schema = {
        "$schema": f"https://json-schema.org/draft/{uri}/schema",
        "contains": {"const": 1},
        "unevaluatedItems": False,
    }
    assert structspec.compile(schema).accepts("[1]") == evaluates
    assert reference(schema, draft)([1]) == evaluates
