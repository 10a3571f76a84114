"""Tokenizers of the `tokenizers` library: a tokenizer.json, an object, or transformers' wrapper.

Owns the reading of token bytes out of the tokenizer's own *decoder*: its steps are applied to one
token at a time. That is exact iff the decoded text of any ids is the concatenation, so steps that
look at neighbours are refused by name (WordPiece, CTC, word-end suffixes, patterns).

    ByteLevel                 the GPT-2 alphabet: one sign per byte
    Metaspace, Replace        blank sign to blank
    ByteFallback              <0x0A> to its byte
    Fuse, and Strip after it  the text as a whole: only the blank at its start

Without a decoder the pre-tokenizer and the normalizer say how the text was respelled.

Invariants
- special added tokens and the unknown token have no bytes;
- other added tokens are what the decoder makes of them; where a byte-level decoder would turn
  their text into other bytes than they match (their signs are in the alphabet, but not ASCII),
  the token has two meanings and is left out: it never matches;
- the encoding runs a copy of the tokenizer without dummy prefix and with special tokens read as
  ordinary text.

Cost: one pass over the vocabulary; the copy is made at the first `encode`.
Sibling: `source_gguf`, `source_sentencepiece`.

Example::

    >>> spec = {"model": {"type": "BPE", "vocab": {"a": 0, "\\u0120a": 1}, "merges": []},
    ...         "added_tokens": [], "decoder": {"type": "ByteLevel"}}
    >>> read_spec(spec).tokens
    [b'a', b' a']
"""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from structspec.errors import VocabularyError
from structspec.vocab.source import Source
from structspec.vocab.source_sentencepiece import BLANK, byte_piece

__all__ = ["byte_level", "read_spec", "read_transformers", "sibling_eos_ids"]

Spec = Mapping[str, Any]
Step = Callable[[str | bytes], str | bytes]


def _alphabet() -> dict[str, int]:
    """The GPT-2 alphabet: printable Latin-1 signs for themselves, U+0100... for the others."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (b for b in range(256) if b not in printable)
    return {chr(b): b for b in printable} | {chr(0x100 + n): b for n, b in enumerate(others)}


_ALPHABET: Final = _alphabet()


def byte_level(token: str) -> bytes | None:
    """The bytes of a token spelled in the byte-level alphabet; None if it is not."""
    try:
        return bytes([_ALPHABET[sign] for sign in token])
    except KeyError:
        return None


class EncodeSpec:
    """A tokenizer.json as an `Encode`, built at the first call; pickles as its JSON."""

    def __init__(self, spec: Spec) -> None:
        self._spec: Spec | None = spec
        self._tokenizer: Any = None

    def __call__(self, data: bytes) -> Sequence[int]:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return ()
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            assert self._spec is not None
            tokenizer = Tokenizer.from_str(json.dumps(_continuing(self._spec)))
            tokenizer.encode_special_tokens = True
            self._tokenizer, self._spec = tokenizer, None
        ids: Sequence[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def __getstate__(self) -> dict[str, Any]:
        spec = self._spec or json.loads(self._tokenizer.to_str())
        return {"_spec": spec, "_tokenizer": None}


def read_transformers(tokenizer: Any) -> Source:
    """A fast tokenizer of transformers; its special tokens are added to those of the JSON."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not hasattr(backend, "to_str"):
        raise VocabularyError(
            f"{type(tokenizer).__name__} has no tokenizers backend; load it with use_fast=True or "
            "pass the path of its model file"
        )
    source = read_spec(json.loads(backend.to_str()))
    end = tokenizer.eos_token_id
    ends = tuple(end) if isinstance(end, list | tuple) else (() if end is None else (int(end),))
    pairs = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
    special = dict(source.special)
    for name, index in pairs:
        if index is not None:
            special.setdefault(str(name), int(index))
    entries = dict(enumerate(source.tokens))
    return Source.from_ids(
        entries,
        eos_ids=ends,
        special=special,
        encode=source.encode,
        dummy_prefix=source.dummy_prefix,
    )


def read_spec(spec: Spec) -> Source:
    """The content of a tokenizer.json."""
    model = spec["model"]
    base = list(_base_vocabulary(model))
    steps, byte_alphabet, dummy_prefix = _decoder_steps(spec)
    special = _unknown_token(model, base)
    added: dict[int, str] = {}
    for entry in spec.get("added_tokens") or ():
        if entry["special"]:
            special[entry["content"]] = int(entry["id"])
        else:
            added[int(entry["id"])] = entry["content"]
    entries: dict[int, bytes | None] = {}
    control = set(special.values())
    for token, index in base:
        if index in entries:
            raise VocabularyError(f"id {index} belongs to {token!r} and to another token")
        if index in added or index in control:
            entries[index] = None
        else:
            entries[index] = _apply(steps, token)
    for index, content in added.items():
        data = _apply(steps, content)
        ambiguous = byte_alphabet and data != content.encode("utf-8")
        entries[index] = None if ambiguous else data
    encode = EncodeSpec(spec) if importlib.util.find_spec("tokenizers") is not None else None
    return Source.from_ids(entries, special=special, encode=encode, dummy_prefix=dummy_prefix)


def sibling_eos_ids(path: Path, source: Source) -> tuple[int, ...]:
    """End tokens from the files that stand beside a tokenizer.json, if there are any."""
    generation = _read_json(path.with_name("generation_config.json"))
    found = generation.get("eos_token_id")
    if isinstance(found, int):
        return (found,)
    if isinstance(found, list) and found:
        return tuple(int(i) for i in found)
    name = _read_json(path.with_name("tokenizer_config.json")).get("eos_token")
    if isinstance(name, dict):
        name = name.get("content")
    index = source.special.get(name) if isinstance(name, str) else None
    return () if index is None else (index,)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise VocabularyError(f"'{path}' is not valid JSON: {error}") from None
    return document if isinstance(document, dict) else {}


def _base_vocabulary(model: Spec) -> Iterator[tuple[str, int]]:
    vocab = model.get("vocab")
    kind = model.get("type")
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise VocabularyError(
                f"the {kind} model marks word boundaries by {key}={model[key]!r}, so a token's "
                "text depends on its neighbours"
            )
    if isinstance(vocab, Mapping):
        yield from vocab.items()
    elif isinstance(vocab, list):  # Unigram: [[piece, score], ...]; pieces may occur twice
        for index, (piece, _) in enumerate(vocab):
            yield piece, index
    else:
        raise VocabularyError(f"the model of type {kind!r} has no vocabulary of a known form")


def _unknown_token(model: Spec, base: list[tuple[str, int]]) -> dict[str, int]:
    name, unknown = model.get("unk_token"), model.get("unk_id")
    return {token: index for token, index in base if token == name or index == unknown}


def _flat(spec: Spec | None, key: str) -> list[Spec]:
    """The steps of a decoder, normalizer or pre-tokenizer with its sequences opened."""
    if not spec:
        return []
    if spec["type"] == "Sequence":
        return [step for inner in spec[key] for step in _flat(inner, key)]
    return [spec]


def _decoder_steps(spec: Spec) -> tuple[list[Step], bool, bool]:
    """The decoder as functions on one token; whether byte-level; whether a blank is prefixed."""
    decoder = _flat(spec.get("decoder"), "decoders")
    normalizer = _flat(spec.get("normalizer"), "normalizers")
    pre = _flat(spec.get("pre_tokenizer"), "pretokenizers")
    if not decoder:
        decoder = _inverse(spec, normalizer, pre)
    steps: list[Step] = []
    whole = ""  # the step after which the text is one piece
    bytewise = False
    for step in decoder:
        kind = step["type"]
        if kind == "Fuse":
            whole = whole or kind
        elif kind == "Strip" and whole:
            if step["content"] != " " or step["stop"] or step["start"] > 1:
                raise _refuse(step, "it cuts more than one blank off the whole text")
        elif whole:
            raise _refuse(step, f"after {whole} it works on the whole text, not on tokens")
        elif kind == "ByteLevel":
            bytewise = True
            whole = kind
            steps.append(_byte_level_or_text)
        elif kind == "ByteFallback":
            steps.append(_byte_fallback)
        elif kind == "Metaspace":
            steps.append(_replace(step["replacement"], " "))
        elif kind == "Replace":
            pattern = step["pattern"].get("String")
            if not pattern:
                raise _refuse(step, f"its pattern {step['pattern']!r} is not a plain text")
            steps.append(_replace(pattern, step["content"]))
        elif kind == "Strip":
            steps.append(_strip(step["content"], step["start"], step["stop"]))
        else:
            raise _refuse(step, "what it writes for a token depends on the neighbours")
    prefix = any(
        (step["type"] == "Prepend")
        or (step["type"] == "Metaspace" and _prepends(step))
        or (step["type"] == "ByteLevel" and step.get("add_prefix_space"))
        for step in normalizer + pre
    )
    return steps, bytewise, prefix


def _inverse(spec: Spec, normalizer: list[Spec], pre: list[Spec]) -> list[Spec]:
    """Decoder steps that undo the respelling of a tokenizer that has no decoder."""
    if any(step["type"] == "ByteLevel" for step in normalizer + pre):
        return [{"type": "ByteLevel"}]
    for step in normalizer + pre:
        blank = step["type"] == "Metaspace" or (
            step["type"] == "Replace"
            and step["pattern"].get("String") == " "
            and step["content"] == BLANK
        )
        if blank:
            sign = step.get("replacement", BLANK)
            steps: list[Spec] = [{"type": "Replace", "pattern": {"String": sign}, "content": " "}]
            return steps + [{"type": "ByteFallback"}] * bool(spec["model"].get("byte_fallback"))
    kinds = [step["type"] for step in normalizer + pre]
    raise VocabularyError(
        f"this tokenizer (model {spec['model'].get('type')!r}, steps {kinds}) has no decoder and "
        "nothing that says how blanks are spelled, so the bytes of its tokens are unknown"
    )


def _prepends(step: Spec) -> bool:
    if "prepend_scheme" in step:
        return bool(step["prepend_scheme"] != "never")
    return bool(step.get("add_prefix_space", True))


def _refuse(step: Spec, reason: str) -> VocabularyError:
    return VocabularyError(
        f"the tokenizer's decoder has the step {step['type']}: {reason}; the bytes of single "
        "tokens cannot be determined"
    )


def _apply(steps: list[Step], token: str) -> bytes:
    value: str | bytes = token
    for step in steps:
        value = step(value)
    return value.encode("utf-8") if isinstance(value, str) else value


def _byte_level_or_text(value: str | bytes) -> str | bytes:
    # The library's decoder keeps the text of tokens that are not spelled in the alphabet.
    if isinstance(value, bytes):
        return value
    data = byte_level(value)
    return value if data is None else data


def _byte_fallback(value: str | bytes) -> str | bytes:
    data = byte_piece(value) if isinstance(value, str) else None
    return value if data is None else data


def _replace(old: str, new: str) -> Step:
    return lambda value: value.replace(old, new) if isinstance(value, str) else value


def _strip(content: str, start: int, stop: int) -> Step:
    def strip(value: str | bytes) -> str | bytes:
        if isinstance(value, bytes):
            return value
        first, last = 0, len(value)
        while first < min(start, last) and value[first] == content:
            first += 1
        end = last
        while end > max(first, last - stop) and value[end - 1] == content:
            end -= 1
        return value[first:end]

    return strip


def _continuing(spec: Spec) -> dict[str, Any]:
    """A copy that encodes text as the continuation of another: no prefix, nothing added."""
    changed = {key: value for key, value in spec.items() if key != "model"}
    changed = copy.deepcopy(changed)
    changed.update(model=spec["model"], truncation=None, padding=None, post_processor=None)
    changed["normalizer"] = _drop_prepend(changed.get("normalizer"))
    for step in _flat(changed.get("pre_tokenizer"), "pretokenizers"):
        assert isinstance(step, dict)
        if "prepend_scheme" in step:
            step["prepend_scheme"] = "never"
        if "add_prefix_space" in step:
            step["add_prefix_space"] = False
    return changed


def _drop_prepend(spec: dict[str, Any] | None) -> dict[str, Any] | None:
    if spec is None or spec["type"] == "Prepend":
        return None
    if spec["type"] != "Sequence":
        return spec
    inner = [kept for step in spec["normalizers"] if (kept := _drop_prepend(step)) is not None]
    return {"type": "Sequence", "normalizers": inner}
