"""Saved grammars and constraints come back the same, or are refused with a typed error."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest

import structspec
from structspec.errors import SerializationError
from structspec.masks.serial import FORMAT, MAGIC
from structspec.vocab import Vocabulary

VOCAB = Vocabulary([*(bytes((b,)) for b in range(256)), b'{"', b'": ', None], [258])
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 2}, "b": {"$ref": "#"}},
    "additionalProperties": {"type": "string", "maxLength": 4},
    "required": ["a"],
}
TEXTS = ['{"a": 2}', '{"a": 1}', '{"a": 3, "b": {"a": 12}, "x": "abcd"}', '{"a": 3, "x": "abcde"}']


def test_a_grammar_comes_back_with_its_language_report_and_limits() -> None:
    grammar = structspec.compile(SCHEMA, limits=structspec.Limits(memory=1 << 26))
    loaded = structspec.Grammar.from_bytes(grammar.to_bytes())
    assert [loaded.accepts(t) for t in TEXTS] == [True, False, True, False]
    assert loaded.report == grammar.report
    assert loaded.limits.memory == 1 << 26
    assert loaded.spec is not None and loaded.spec.schema == SCHEMA
    assert loaded.to_bytes() == grammar.to_bytes()


def test_any_order_and_regular_expressions_come_back() -> None:
    grammar = structspec.compile(SCHEMA, key_order="any")
    loaded = structspec.Grammar.from_bytes(grammar.to_bytes())
    assert loaded.accepts('{"x": "a", "a": 5}')
    pattern = structspec.Grammar.from_bytes(
        structspec.compile("a{2,90}", syntax="regex").to_bytes()
    )
    assert pattern.accepts("a" * 90) and not pattern.accepts("a") and pattern.syntax == "regex"


def test_a_constraint_comes_back_with_its_masks_and_distances() -> None:
    first = structspec.compile(SCHEMA).bind(VOCAB)
    grammar = structspec.Grammar.from_bytes(structspec.compile(SCHEMA).to_bytes())
    second = grammar.bind(VOCAB, saved=first.to_bytes())
    one, two = first.start, second.start
    for byte in TEXTS[2].encode():
        assert np.array_equal(first.mask(one), second.mask(two))
        assert first.distance(one) == second.distance(two)
        one, two = first.advance(one, byte), second.advance(two, byte)
    assert second.accepting(two)


def test_a_constraint_of_another_vocabulary_or_grammar_is_refused() -> None:
    saved = structspec.compile(SCHEMA).bind(VOCAB).to_bytes()
    other = Vocabulary([bytes((b,)) for b in range(256)], [])
    with pytest.raises(SerializationError, match="vocabulary"):
        structspec.compile(SCHEMA).bind(other, saved=saved)
    with pytest.raises(SerializationError, match="grammar"):
        structspec.compile({"type": "null"}).bind(VOCAB, saved=saved)
    with pytest.raises(SerializationError, match="not 'grammar'"):
        structspec.Grammar.from_bytes(saved)


def test_damaged_and_foreign_bytes_are_refused() -> None:
    data = structspec.compile(SCHEMA).to_bytes()
    for wrong in (b"", b"\x80\x04pickle", data[:40], data[:-1], data + b"x"):
        with pytest.raises(SerializationError):
            structspec.Grammar.from_bytes(wrong)
    for place in range(len(MAGIC), len(data), 997):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(SerializationError, match="checksum"):
            structspec.Grammar.from_bytes(bytes(changed))


def forge(
    change: dict[str, Any] | None = None, arrays: dict[int, tuple[int, int]] | None = None
) -> bytes:
    """A saved grammar with another header, or other numbers in its arrays, and a fresh checksum."""
    data = structspec.compile(SCHEMA).to_bytes()
    start = len(MAGIC) + 4
    end = start + int.from_bytes(data[len(MAGIC) : start], "little")
    header = json.loads(data[start:end])
    body = bytearray(data[end:-32])
    at = 0
    for number, (dtype, length) in enumerate(header["arrays"]):
        size = np.dtype(dtype).itemsize * length
        if arrays and number in arrays:
            index, value = arrays[number]
            part = np.frombuffer(bytes(body[at : at + size]), dtype).copy()
            part[index] = value
            body[at : at + size] = part.tobytes()
        at += size
    header |= change or {}
    text = json.dumps(header).encode()
    whole = MAGIC + len(text).to_bytes(4, "little") + text + bytes(body)
    return whole + hashlib.sha256(whole).digest()


def test_other_formats_and_tables_are_refused_by_name() -> None:
    assert structspec.Grammar.from_bytes(forge()).accepts(TEXTS[0])
    with pytest.raises(SerializationError, match=f"format {FORMAT + 1}"):
        structspec.Grammar.from_bytes(forge({"format": FORMAT + 1}))
    with pytest.raises(SerializationError, match="another release"):
        structspec.Grammar.from_bytes(forge({"fields": [["Network", "n_states"]]}))
    with pytest.raises(SerializationError):
        structspec.Grammar.from_bytes(forge({"arrays": [["|O", 3]]}))


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((0, 65), 250, r"class_of points outside"),
        ((1, 1), 99_999, r"edge_start does not divide"),
        ((3, 0), 1 << 30, r"edge_target points outside"),
        ((3, 0), -1, r"edge_target points outside"),
    ],
)
def test_numbers_that_lead_out_of_the_arrays_are_refused(
    place: tuple[int, int], value: int, message: str
) -> None:
    array, index = place
    with pytest.raises(SerializationError, match=message):
        structspec.Grammar.from_bytes(forge(arrays={array: (index, value)}))
