"""Adapters for other engines, so that a run can show them side by side.

Each is given its widest settings: flexible whitespace, undeclared properties allowed where the
schema allows them, and any key order where the engine offers it (xgrammar). Without a tokenizer
the vocabulary is one token per byte, which all of them accept; lm-format-enforcer works on
characters and outlines-core on the bytes of its regular expression either way.

Refusals: these engines report unsupported schemas by ordinary exceptions or error strings. Exactly
the types that they document or raise on purpose count as refusals; a panic, a MemoryError, an
IndexError and the like is a crash. Nothing looks at message texts.

A schema without ``$schema`` gets that of the suite's draft, since these engines have no argument
for it. Remote documents cannot be given to them.

Example: ``make_engine("llguidance").compile('{"type": "null"}', {})("null")``.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from structspec.errors import MissingExtra, SchemaError, UnsupportedFeature
from structspec.suites.engines import Judge
from structspec.suites.exact import read, write

__all__ = ["LLGuidanceEngine", "LMFormatEnforcerEngine", "OutlinesEngine", "XGrammarEngine"]

_END = 256  # of the vocabulary of bytes


def _package(module: str, distribution: str) -> tuple[Any, str]:
    """An optional module and its version. Raises MissingExtra."""
    try:
        return importlib.import_module(module), version(distribution)
    except (ImportError, PackageNotFoundError) as error:
        raise MissingExtra(distribution, "peers") from error


def _tokenizer(name: str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtra("transformers", "models") from error
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise SchemaError(f"cannot load the tokenizer {name!r}: {error}") from error


def _ids(tokenizer: Any) -> Callable[[str], list[int]]:
    if tokenizer is None:
        return lambda text: list(text.encode("utf-8"))
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False))


def _dated(schema: str, options: Mapping[str, Any]) -> str:
    dialect = options.get("default_dialect")
    value = read(schema)
    if dialect is None or not isinstance(value, dict) or "$schema" in value:
        return schema
    return write({"$schema": dialect, **value})


def _refusal(error: object) -> UnsupportedFeature:
    return UnsupportedFeature("(not named)", "", " ".join(str(error).split())[:300])


class XGrammarEngine:
    """xgrammar: `GrammarCompiler` and `GrammarMatcher`."""

    name = "xgrammar"

    def __init__(self, tokenizer: str | None = None) -> None:
        xgrammar, self.version = _package("xgrammar", "xgrammar")
        loaded = _tokenizer(tokenizer) if tokenizer else None
        if loaded is None:
            tokens = [bytes([i]) for i in range(256)] + [b"<end>"]
            info = xgrammar.TokenizerInfo(tokens, stop_token_ids=[_END])
        else:
            info = xgrammar.TokenizerInfo.from_huggingface(loaded)
        self._matcher = xgrammar.GrammarMatcher
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._end = info.stop_token_ids[0]
        self._ids = _ids(loaded)
        self.notes = ("formats cannot be switched off", "remote references are not supplied")

    def compile(self, schema: str, options: Mapping[str, Any]) -> Judge:
        """Compile; RuntimeError and ValueError are its refusals."""
        try:
            compiled = self._compiler.compile_json_schema(
                _dated(schema, options),
                any_whitespace=True,
                strict_mode=False,
                any_order=options.get("key_order") == "any",
            )
        except (RuntimeError, ValueError) as error:
            if type(error) not in (RuntimeError, ValueError):  # RecursionError is a RuntimeError
                raise
            raise _refusal(error) from error

        def judge(text: str) -> bool:
            matcher = self._matcher(compiled)
            return all(map(matcher.accept_token, self._ids(text))) and bool(
                matcher.accept_token(self._end)
            )

        return judge


class LLGuidanceEngine:
    """llguidance: `LLMatcher` over a byte or Hugging Face tokenizer."""

    name = "llguidance"

    def __init__(self, tokenizer: str | None = None) -> None:
        llguidance, self.version = _package("llguidance", "llguidance")
        if tokenizer:
            loaded = _tokenizer(tokenizer)
            self._vocabulary = importlib.import_module("llguidance.hf").from_tokenizer(loaded)
            self._ids = _ids(loaded)
        else:
            self._vocabulary = llguidance.LLTokenizer("byte")
            self._ids = _ids(None)
        self._matcher = llguidance.LLMatcher
        self.notes = (
            "keys only in declared order",
            "formats cannot be switched off",
            "remote references are not supplied",
        )

    def compile(self, schema: str, options: Mapping[str, Any]) -> Judge:
        """Compile; its error string and ValueError are its refusals."""
        try:
            grammar = self._matcher.grammar_from_json_schema(
                _dated(schema, options), defaults={"whitespace_flexible": True}
            )
            first = self._matcher(self._vocabulary, grammar)
        except ValueError as error:
            raise _refusal(error) from error
        if first.is_error():
            raise _refusal(first.get_error())

        def judge(text: str) -> bool:
            matcher = first.deep_copy()
            ids = self._ids(text)
            taken = matcher.try_consume_tokens(ids)
            if matcher.is_error():
                raise _refusal(matcher.get_error())  # its own limits, at run time
            return taken == len(ids) and bool(matcher.is_accepting())

        return judge


class OutlinesEngine:
    """outlines-core: a regular expression from the schema, an `Index` over bytes."""

    name = "outlines"

    def __init__(self, tokenizer: str | None = None) -> None:
        core, self.version = _package("outlines_core", "outlines-core")
        self._regex = core.json_schema.build_regex_from_schema
        self._index = core.Index
        self._vocabulary = core.Vocabulary(_END, {bytes([i]): [i] for i in range(256)})
        self.notes = (
            "one optional space in each gap",
            "keys only in declared order",
            "the vocabulary is always one token per byte",
        )

    def compile(self, schema: str, options: Mapping[str, Any]) -> Judge:
        """Compile; ValueError is its refusal."""
        try:
            index = self._index(self._regex(_dated(schema, options)), self._vocabulary)
        except ValueError as error:
            raise _refusal(error) from error

        def judge(text: str) -> bool:
            state = index.get_initial_state()
            for byte in text.encode("utf-8"):
                state = index.get_next_state(state, byte)
                if state is None:
                    return False
            return bool(index.is_final_state(state))

        return judge


class LMFormatEnforcerEngine:
    """lm-format-enforcer: `JsonSchemaParser`, character by character."""

    name = "lmfe"

    def __init__(self, tokenizer: str | None = None) -> None:
        package, self.version = _package("lmformatenforcer", "lm-format-enforcer")
        self._parser = package.JsonSchemaParser
        self._own = package.LMFormatEnforcerException
        self.notes = ("characters instead of tokens",)

    def compile(self, schema: str, options: Mapping[str, Any]) -> Judge:
        """Compile; bare Exception, ValueError and its own exception are its refusals."""
        value = json.loads(_dated(schema, options))
        if not isinstance(value, dict):
            raise _refusal("a schema that is not an object")
        try:
            first = self._parser(value)
        except Exception as error:
            plain = type(error) is Exception or isinstance(error, ValueError | self._own)
            if not plain and not isinstance(error, NotImplementedError):
                raise
            raise _refusal(error) from error

        def judge(text: str) -> bool:
            parser = first
            for character in text:
                if character not in parser.get_allowed_characters():
                    return False
                parser = parser.add_character(character)
            return bool(parser.can_end())

        return judge
