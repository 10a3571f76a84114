"""Other engines as logits processors of transformers' `generate`, where they are installed.

Owns one adapter per engine, each given the same spelling as `structspec.generate` uses: keys in
order, one space behind commas and colons, nothing else. xgrammar brings its own processor; the
others get one that follows their documented loop: consume the last token, fill the mask, apply it.

Cost: that of the engines; what each compiles ahead is counted apart, as `compile_seconds`.

Sibling: `suites.peers` judges texts with the same engines.

Example::

    peer = PEERS["llguidance"](model)
    model.model.generate(ids, logits_processor=[peer.processor(schema)])
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import LogitsProcessor

from structspec.errors import MissingExtra
from structspec.models import Model

__all__ = ["PEERS", "Peer"]


class Peer:
    """An engine bound to a model's tokenizer. `compile_seconds` sums what `processor` took."""

    name = ""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.compile_seconds = 0.0

    def processor(self, schema: dict[str, Any]) -> Any:
        """A fresh processor for one call of `generate`."""
        started = time.perf_counter()
        made = self._make(json.dumps(schema))
        self.compile_seconds += time.perf_counter() - started
        return made

    def _make(self, schema: str) -> Any:
        raise NotImplementedError


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(package, "peers") from error


class XGrammar(Peer):
    """xgrammar's own `contrib.hf.LogitsProcessor`."""

    name = "xgrammar"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._xgrammar = _module("xgrammar", "xgrammar")
        self._processor = _module("xgrammar.contrib.hf", "xgrammar").LogitsProcessor
        info = self._xgrammar.TokenizerInfo.from_huggingface(
            model.tokenizer, vocab_size=model.logit_width, stop_token_ids=list(model.eos_ids)
        )
        self._compiler = self._xgrammar.GrammarCompiler(info, max_threads=1)

    def _make(self, schema: str) -> Any:
        compiled = self._compiler.compile_json_schema(
            schema, any_whitespace=False, separators=(", ", ": "), strict_mode=False
        )
        return self._processor(compiled)


class LLGuidance(Peer):
    """llguidance's `LLMatcher` and its mask kernels for torch."""

    name = "llguidance"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._llguidance = _module("llguidance", "llguidance")
        self._torch = _module("llguidance.torch", "llguidance")
        self._tokenizer = _module("llguidance.hf", "llguidance").from_tokenizer(
            model.tokenizer, n_vocab=model.logit_width
        )

    def _make(self, schema: str) -> Any:
        matcher = self._llguidance.LLMatcher(
            self._tokenizer,
            self._llguidance.LLMatcher.grammar_from_json_schema(
                schema,
                defaults={
                    "whitespace_flexible": False,
                    "item_separator": ", ",
                    "key_separator": ": ",
                },
            ),
        )
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        mask = self._torch.allocate_token_bitmask(1, self.model.logit_width)

        def step(token: int | None, scores: torch.Tensor) -> torch.Tensor:
            if token is not None and not matcher.is_stopped():
                matcher.consume_token(token)
            if matcher.is_stopped():
                return scores
            self._torch.fill_next_token_bitmask(matcher, mask, 0)
            self._torch.apply_token_bitmask_inplace(scores, mask)
            return scores

        return _Stepper(step)


class Outlines(Peer):
    """outlines-core: an index of the whole vocabulary, compiled ahead."""

    name = "outlines"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._core = _module("outlines_core", "outlines-core")
        ids: dict[bytes, list[int]] = {}
        for token, data in enumerate(model.vocab.tokens):
            if data:
                ids.setdefault(data, []).append(token)
        self._vocabulary = self._core.Vocabulary(model.eos_ids[0], ids)

    def _make(self, schema: str) -> Any:
        regex = self._core.json_schema.build_regex_from_schema(schema)
        guide = self._core.Guide(self._core.Index(regex, self._vocabulary))

        def step(token: int | None, scores: torch.Tensor) -> torch.Tensor:
            if token is not None and not guide.is_finished():
                guide.advance(token, return_tokens=False)
            allowed = torch.tensor(guide.get_tokens())
            masked = torch.full_like(scores, -torch.inf)
            masked[:, allowed] = scores[:, allowed]
            return masked

        return _Stepper(step)


class _Stepper(LogitsProcessor):
    """A processor of one sequence that only goes forward."""

    def __init__(self, step: Callable[[int | None, torch.Tensor], torch.Tensor]) -> None:
        self._step = step
        self._begun = False

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        token = int(input_ids[0, -1]) if self._begun else None
        self._begun = True
        return self._step(token, scores)


PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (XGrammar, LLGuidance, Outlines)}
