"""`EarlyExit`: the target's own first layers as its draft.

Owns the shortened model: the first layers, then the target's final norm and output matrix. It
shares the target's weights, and its key/value cache too: what the short model reads is written
where the target will write the same numbers again, so nothing is read twice that the target has
already read.

Invariants
- the target's cache row is as before once a draft is made: the loop sees no difference;
- layers are counted from the bottom; 1 to one less than the target has.

Cost: layers / all layers of a forward, per free token; no memory, no second prompt.

Sibling: `model.ModelDraft`, whose settings it takes and whose drafter it uses.

Paper: Zhang et al., "Draft & Verify", 2023 (arXiv 2309.08168).

Example::

    structspec.generate(model, prompt, Person, draft=EarlyExit(24))      # or "early-exit:24"
"""

from __future__ import annotations

import contextlib
import copy
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from structspec.drafting.alignment import Alignment
from structspec.drafting.draft import Request
from structspec.drafting.model import DraftSettings, ModelDraft, ModelDrafter
from structspec.drafting.reads import shared_rows
from structspec.errors import DraftError
from structspec.integers import is_int
from structspec.models import Model

__all__ = ["EarlyExit", "shortened"]

_short: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class EarlyExit(DraftSettings):
    """Drafts with the target's first `layers` layers."""

    layers: int

    def begin(self, request: Request) -> ModelDrafter:
        """A drafter for one request, on the target's own cache row where it can be shared."""
        target = request.model
        if target is None:
            raise DraftError("early exit drafts with the target's layers; decode with a Model")
        network = shortened(target.model, self.layers)
        vocab = request.constraint.vocab
        name = f"{target.name} up to layer {self.layers}"
        short = Model(network, target.tokenizer, name=name, vocab=vocab)
        settings = ModelDraft(short, **self.settings())
        alignment = Alignment.of(vocab, vocab)
        if request.rows is not None and request.rows.shares_cache:
            return ModelDrafter(
                request, settings, alignment, request.rows, request.row, network, shared=True
            )
        rows = shared_rows(request, short)
        return ModelDrafter(request, settings, alignment, rows, rows.open())


def shortened(network: Any, layers: int) -> Any:
    """A transformers model of the first `layers` layers, on the same weights.

    Raises `DraftError` if there are not more layers than that, or they are not found, or do not run
    without the others.
    """
    body = network.base_model
    stack = getattr(body, "layers", None)
    if body is network or not isinstance(stack, torch.nn.ModuleList):
        raise DraftError(
            f"the layers of {type(network).__name__} are not where early exit looks for them "
            "(base_model.layers); use another draft"
        )
    if not is_int(layers, 1) or layers >= len(stack):
        raise DraftError(
            f"early exit after {layers!r} layers: the target has {len(stack)}, so 1 to "
            f"{len(stack) - 1} are possible"
        )
    known = _short.setdefault(network, {})
    if layers not in known:
        short = _shorten(network, layers)
        _check_runs(network, short, layers)
        known[layers] = short
    return known[layers]


def _shorten(network: Any, layers: int) -> Any:
    body = network.base_model
    config = copy.deepcopy(body.config)
    changed: dict[str, Any] = {"num_hidden_layers": layers}
    if types := getattr(config, "layer_types", None):
        changed["layer_types"] = list(types)[:layers]
    for name, value in changed.items():
        with contextlib.suppress(AttributeError):  # some compute one from the other
            setattr(config, name, value)
    inner = _twin(body, config)
    inner.layers = torch.nn.ModuleList(list(body.layers)[:layers])
    outer = _twin(network, config)
    setattr(outer, network.base_model_prefix, inner)
    return outer


def _check_runs(network: Any, short: Any, layers: int) -> None:
    """A forward of a few tokens: what ties layers to their number shows."""
    reason = ""
    try:
        if len(DynamicCache(config=short.config).layers) != layers:
            reason = "its configuration describes other layers"
        with torch.inference_mode():
            ids = torch.arange(3, device=network.get_input_embeddings().weight.device)[None]
            short(input_ids=ids, use_cache=False)
    except Exception as error:  # anything that a network may raise
        reason = f"{type(error).__name__}: {error}"
    if reason:
        raise DraftError(
            f"{type(network).__name__} does not run with its first {layers} layers alone "
            f"({reason}); use another draft"
        )


def _twin(module: Any, config: Any) -> Any:
    """A copy that shares all weights and may be given other parts."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    twin.config = config
    return twin
