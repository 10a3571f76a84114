"""Engines as the mask benchmark drives them: compile a schema, then fill a row and take a token.

Each driver is a thin layer over the engine's cheapest public calls, over one vocabulary given as
bytes per id, with one thread and no cache between schemas. This module and `masks_worker` import
nothing but numpy and the engine, so that peers can run in an environment of their own.

Settings: every engine may write any JSON whitespace where it has the choice (outlines-core: one
optional blank), keys in declared order. `xgrammar-strict` is xgrammar's default, which forbids
undeclared members; `xgrammar` follows the standard.

Sibling: `structspec.suites.peers`, which judges texts instead of timing masks.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np

__all__ = ["DRIVERS", "Driver", "Refused", "TokenList", "Walk"]


class Refused(Exception):
    """The engine says that it cannot do this schema (or, at run time, this text)."""


@dataclass(frozen=True)
class TokenList:
    """A vocabulary without its tokenizer: bytes per id (None: writes nothing) and end tokens."""

    tokens: list[bytes | None]
    eos_ids: list[int]

    @property
    def words(self) -> int:
        """Words of 32 bits in a row."""
        return -(-len(self.tokens) // 32)

    def named(self) -> list[bytes]:
        """Every id with some text: those that write nothing get a name of their own."""
        return [t or f"<|unused-{i}|>".encode() for i, t in enumerate(self.tokens)]

    def silent(self) -> list[int]:
        """The ids that write nothing."""
        return [i for i, token in enumerate(self.tokens) if not token]


@dataclass(frozen=True)
class Walk:
    """One text in the making: `fill()` writes the row, `take(token)` says whether it fits."""

    fill: Callable[[], object]
    take: Callable[[int], bool]
    complete: Callable[[], bool]


class Driver:
    """What each engine implements."""

    package = ""
    #: Whether the row holds just the tokens that the engine takes.
    exact_rows = True

    def __init__(self, vocabulary: TokenList) -> None:
        self.vocabulary = vocabulary
        self.row = np.zeros((1, vocabulary.words), np.int32)

    @property
    def version(self) -> str:
        """The version of the engine's package."""
        return metadata.version(self.package)

    def compile(self, schema: str) -> Callable[[], Walk]:
        """What starts a walk of the schema's language; raises `Refused`."""
        raise NotImplementedError

    def compile_grammar(self, forms: Mapping[str, str]) -> Callable[[], Walk]:
        """The same for a grammar, given in every notation that an engine may want."""
        raise Refused(f"{self.package} is not driven with grammars here")


class StructspecDriver(Driver):
    """This package."""

    package = "structspec"

    def __init__(self, vocabulary: TokenList) -> None:
        super().__init__(vocabulary)
        structspec = importlib.import_module("structspec")
        self._compile = structspec.compile
        self._error = structspec.StructspecError
        self._rejected = structspec.TokenRejected
        self._vocabulary = structspec.Vocabulary(vocabulary.tokens, vocabulary.eos_ids)
        self._rows = self.row.view(np.uint32)

    @property
    def version(self) -> str:
        """The version, which a run from a source tree has too."""
        return str(importlib.import_module("structspec").__version__)

    def compile(self, schema: str) -> Callable[[], Walk]:
        """Compile and bind."""
        return self._starting(schema)

    def compile_grammar(self, forms: Mapping[str, str]) -> Callable[[], Walk]:
        """Compile the Lark text as it is written, and bind."""
        return self._starting(forms["lark"], syntax="lark")

    def _starting(self, source: str, **options: Any) -> Callable[[], Walk]:
        try:
            constraint = self._compile(source, **options).bind(self._vocabulary)
        except self._error as error:
            raise Refused(str(error)) from error
        fill, advance, rows, rejected = constraint.fill, constraint.advance, self._rows, None
        rejected = self._rejected

        def start() -> Walk:
            states = [constraint.start]

            def take(token: int) -> bool:
                try:
                    states[0] = advance(states[0], token)
                except rejected:
                    return False
                return True

            return Walk(
                lambda: fill(states, rows), take, lambda: bool(constraint.accepting(states[0]))
            )

        return start


class LLGuidanceDriver(Driver):
    """llguidance: `LLMatcher`, writing through a pointer.

    Where the text is forced, its row holds only the token that its tokenizer would choose. That
    tokenizer is longest match here, so a row may lack the token of the text, which it takes.
    """

    package = "llguidance"
    exact_rows = False

    def __init__(self, vocabulary: TokenList) -> None:
        super().__init__(vocabulary)
        llguidance = importlib.import_module("llguidance")
        self._matcher = llguidance.LLMatcher

        class _Tokens:
            eos_token_id = vocabulary.eos_ids[0]
            bos_token_id = None
            tokens = vocabulary.named()
            special_token_ids = vocabulary.silent()

            def __call__(self, text: bytes) -> list[int]:
                # It tokenizes forced text to look for a single token.
                return list(greedy.greedy_tokenize(text.decode("utf-8"))) if greedy else []

        def tokenizer() -> Any:
            return llguidance.LLTokenizer(
                llguidance.TokenizerWrapper(_Tokens()),
                len(vocabulary.tokens),
                vocabulary.eos_ids[0],
                slices=llguidance.LLTokenizer.json_slices(),
            )

        self._general: Any = None
        greedy: Any = None
        greedy, self._tokenizer = tokenizer(), tokenizer()

    def compile(self, schema: str) -> Callable[[], Walk]:
        """Compile; error strings and ValueError are refusals."""
        matcher = self._matcher
        return self._starting(
            lambda: matcher.grammar_from_json_schema(
                schema, defaults={"whitespace_flexible": True}
            ),
            self._tokenizer,
        )

    def compile_grammar(self, forms: Mapping[str, str]) -> Callable[[], Walk]:
        """Compile the spelled-out Lark text, with its slices for grammars."""
        if self._general is None:
            self._general = self._tokenizer.with_slices(self._tokenizer.general_slices())
        return self._starting(
            lambda: self._matcher.grammar_from_lark(forms["terminals"]), self._general
        )

    def _starting(self, grammar: Callable[[], str], tokenizer: Any) -> Callable[[], Walk]:
        try:
            first = self._matcher(tokenizer, grammar())
        except ValueError as error:
            raise Refused(str(error)) from error
        if first.is_error():
            raise Refused(first.get_error())
        address, size = self.row.ctypes.data, self.row.nbytes

        def start() -> Walk:
            one = first.deep_copy()
            write, consume = one.unsafe_compute_mask_ptr, one.consume_token

            def complete() -> bool:
                if one.is_error():
                    raise Refused(one.get_error())
                return bool(one.is_accepting())

            return Walk(lambda: write(address, size), consume, complete)

        return start


class XGrammarDriver(Driver):
    """xgrammar: `GrammarCompiler` without its cache, `GrammarMatcher`."""

    package = "xgrammar"
    strict = False

    def __init__(self, vocabulary: TokenList) -> None:
        super().__init__(vocabulary)
        self._xgrammar = importlib.import_module("xgrammar")
        info = self._xgrammar.TokenizerInfo(
            [token or b"" for token in vocabulary.tokens],
            vocab_size=len(vocabulary.tokens),
            stop_token_ids=vocabulary.eos_ids,
        )
        self._end = vocabulary.eos_ids[0]
        self._compiler = self._xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, schema: str) -> Callable[[], Walk]:
        """Compile; RuntimeError and ValueError are refusals."""
        return self._starting(
            lambda: self._compiler.compile_json_schema(
                schema, any_whitespace=True, strict_mode=self.strict
            )
        )

    def compile_grammar(self, forms: Mapping[str, str]) -> Callable[[], Walk]:
        """Compile the GBNF text."""
        return self._starting(lambda: self._compiler.compile_grammar(forms["gbnf"]))

    def _starting(self, make: Callable[[], Any]) -> Callable[[], Walk]:
        try:
            compiled = make()
        except (RuntimeError, ValueError) as error:
            raise Refused(str(error)) from error
        row = self.row

        def start() -> Walk:
            matcher = self._xgrammar.GrammarMatcher(compiled)
            fill, take = matcher.fill_next_token_bitmask, matcher.accept_token
            return Walk(lambda: fill(row), take, lambda: bool(take(self._end)))

        return start


class StrictXGrammarDriver(XGrammarDriver):
    """xgrammar as it is by default: undeclared members are forbidden."""

    strict = True


class OutlinesDriver(Driver):
    """outlines-core: a regular expression, an `Index` of the whole vocabulary, a `Guide`."""

    package = "outlines-core"

    def __init__(self, vocabulary: TokenList) -> None:
        super().__init__(vocabulary)
        self._core = importlib.import_module("outlines_core")
        ids: dict[bytes, list[int]] = {}
        for index, token in enumerate(vocabulary.tokens):
            if token:
                ids.setdefault(token, []).append(index)
        self._tokens = self._core.Vocabulary(vocabulary.eos_ids[0], ids)

    def compile(self, schema: str) -> Callable[[], Walk]:
        """Compile; ValueError is a refusal."""
        core = self._core
        try:
            pattern = core.json_schema.build_regex_from_schema(schema)
            index = core.Index(pattern, self._tokens)
        except ValueError as error:
            raise Refused(str(error)) from error
        address, words = self.row.ctypes.data, self.row.size

        def start() -> Walk:
            guide = core.Guide(index)

            def take(token: int) -> bool:
                try:
                    guide.advance(token, return_tokens=False)
                except ValueError:
                    return False
                return True

            return Walk(
                lambda: guide.write_mask_into(address, words, 4),
                take,
                lambda: bool(guide.is_finished()),
            )

        return start


class LMFormatEnforcerDriver(Driver):
    """lm-format-enforcer: `TokenEnforcer` with its bitmask."""

    package = "lm-format-enforcer"

    def __init__(self, vocabulary: TokenList) -> None:
        super().__init__(vocabulary)
        self._package = importlib.import_module("lmformatenforcer")
        regular = []
        for index, token in enumerate(vocabulary.tokens):
            try:
                text = (token or b"").decode()
            except UnicodeDecodeError:
                continue
            if text:
                regular.append((index, text, True))
        module = importlib.import_module("lmformatenforcer.tokenenforcer")
        self._enforcer = module.TokenEnforcer
        self._data = module.TokenEnforcerTokenizerData(
            regular, lambda ids: "", vocabulary.eos_ids[0], True, len(vocabulary.tokens)
        )

    def compile(self, schema: str) -> Callable[[], Walk]:
        """Compile; bare Exception, ValueError and its own exception are refusals."""
        own = self._package.LMFormatEnforcerException
        value = json.loads(schema)
        if not isinstance(value, dict):
            raise Refused("a schema that is not an object")
        try:
            parser = self._package.JsonSchemaParser(value)
        except Exception as error:
            plain = type(error) is Exception or isinstance(error, ValueError | own)
            if not plain and not isinstance(error, NotImplementedError):
                raise
            raise Refused(str(error)) from error

        def start() -> Walk:
            enforcer = self._enforcer(self._data, parser)
            sequence: list[int] = []
            allowed: list[Any] = [None]

            def fill() -> None:
                allowed[0] = enforcer.get_allowed_tokens(sequence)
                self.row[0] = allowed[0].allowed_tokens.numpy()

            def take(token: int) -> bool:
                fits = bool(allowed[0].is_token_allowed(token))
                sequence.append(token)
                return fits

            def complete() -> bool:
                tokens = enforcer.get_allowed_tokens(sequence)
                return bool(tokens.is_token_allowed(self.vocabulary.eos_ids[0]))

            return Walk(fill, take, complete)

        return start


#: By the names of the benchmark.
DRIVERS: dict[str, type[Driver]] = {
    "structspec": StructspecDriver,
    "llguidance": LLGuidanceDriver,
    "xgrammar-strict": StrictXGrammarDriver,
    "xgrammar": XGrammarDriver,
    "outlines-core": OutlinesDriver,
    "lm-format-enforcer": LMFormatEnforcerDriver,
}
