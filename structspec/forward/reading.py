"""`Reading`: in what pieces a network reads a text, found out by running it.

Owns the knowledge of what a network's cache is good for. transformers' models differ: some go on
from their cache with any number of tokens, some only with one at a time (a recurrence whose kernel
for several tokens starts anew), some keep what they read elsewhere or nowhere. None of them says
so; one that is used in the wrong way returns logits of another text.

Invariants
- each network is compared with its own forward over a whole text once, before its first use: what
  disagrees is not used. Layers of transformers' own that are known to agree are not compared;
- a network whose logits depend on later tokens, or that does not run, is refused with `ModelError`.

Cost: a handful of forwards of at most sixteen tokens, once per network.

Sibling: `target.Target` and `rows.TargetRows` read accordingly.

Example::

    reading_of(model)                 # Reading.PIECES for most
"""

from __future__ import annotations

import enum
import functools
import logging
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from structspec.errors import ModelError, StructspecError
from structspec.forward.lean import is_known, near
from structspec.models import Model

__all__ = ["Reading", "cache_argument", "reading_of", "rope_edge", "slots_agree", "trusted"]

log = logging.getLogger("structspec")

# Tokens of the text that is compared; fewer where the window is smaller.
_SIZE = 16
# Relative differences that are rounding. Half precision routes a token to other experts at times;
# what is wrong is wrong by more than that.
_SLACK = {torch.float64: 1e-4, torch.float32: 2e-4}
_COARSE = 0.1

_readings: weakref.WeakKeyDictionary[Any, Reading] = weakref.WeakKeyDictionary()
_slotted: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


class Reading(enum.Enum):
    """In what pieces a text is read.

    PIECES: any number of tokens behind what is cached. STEPS: one token at a time behind the first
    piece. WHOLE: everything in every forward, since nothing is cached.
    """

    PIECES = "pieces"
    STEPS = "steps"
    WHOLE = "whole"


def cache_argument(parameters: Collection[str]) -> str | None:
    """The name under which a forward of these parameters takes a cache; None: it takes none."""
    # transformers renamed the argument; both spellings live in the supported range
    for name in ("cache", "past_key_values"):
        if name in parameters:
            return name
    return "past_key_values" if "kwargs" in parameters else None


def rope_edge(config: Any) -> int | None:
    """The length beyond which a text is read with other rotary frequencies; None: there is none.

    Such a network ("longrope") turns all keys of a longer text by other angles, so keys on one side
    of the edge are worth nothing on the other. Frequencies that change with every further token
    ("dynamic") change only behind `max_position_embeddings`, which no text passes.
    """
    known = getattr(config, "rope_parameters", None) or {}
    if not isinstance(known, Mapping):
        return None
    several = [known, *(part for part in known.values() if isinstance(part, Mapping))]
    edges = [
        part.get("original_max_position_embeddings")
        or getattr(config, "original_max_position_embeddings", None)
        for part in several
        if part.get("rope_type", part.get("type")) == "longrope"
    ]
    return min((edge for edge in edges if edge), default=None)


def trusted(network: Any) -> bool:
    """Whether all layers are of classes whose caching was verified: nothing is compared."""
    layers = getattr(getattr(network, "base_model", network), "layers", None)
    return isinstance(layers, torch.nn.ModuleList) and all(
        is_known(layer) and type(layer).__module__.startswith("transformers.models.")
        for layer in layers
    )


def reading_of(model: Model) -> Reading:
    """How one sequence is read.

    Raises `ModelError` if the network is not causal or does not run.
    """
    network = model.model
    known = _readings.get(network)
    if known is not None:
        return known
    if trusted(network) or network.training:  # dropout would make every comparison fail
        return Reading.PIECES
    found = _found(model)
    if found is Reading.STEPS:
        log.info(
            "%s goes on from its cache with one token at a time, so a draft costs a forward for "
            "each of its tokens; draft=None saves those that are refused",
            model.name,
        )
    elif found is Reading.WHOLE:
        log.warning(
            "%s cannot go on from a cache that transformers' DynamicCache describes, so every "
            "forward reads the whole text",
            model.name,
        )
    _readings[network] = found
    return found


def slots_agree(model: Model) -> bool:
    """Whether rows of unequal lengths and trees in slots give the logits of a whole text."""
    network = model.model
    if trusted(network) or network.training:
        return True
    if network not in _slotted:
        _slotted[network] = True  # the comparison asks for it too
        _slotted[network] = _agrees(model, _in_slots)
    return _slotted[network]


def _ids(model: Model) -> list[int]:
    size = min(_SIZE, model.window or _SIZE)
    return [(7 * i + 3) % model.logit_width for i in range(size)]


def _found(model: Model) -> Reading:
    if len(_ids(model)) < _SIZE:
        return Reading.WHOLE  # such short texts cost nothing
    for reading in (Reading.PIECES, Reading.STEPS):
        if _agrees(model, functools.partial(_in_pieces, reading=reading)):
            return reading
    ids = _ids(model)
    try:
        whole, beginning = _whole(model, ids), _whole(model, ids[:6])
    except Exception as error:  # anything that a network may raise
        raise ModelError(
            f"{model.name} ({type(model.model).__name__}) does not run: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not _near(beginning, whole[:6], model.dtype):
        raise ModelError(
            f"the logits of {model.name} ({type(model.model).__name__}) depend on later tokens, so "
            "it is no causal language model; load one that is (of some architectures, with "
            "is_decoder=True in its configuration)"
        )
    return Reading.WHOLE


def _in_pieces(model: Model, ids: list[int], reading: Reading) -> dict[int, Tensor]:
    """Logits behind some places, read in pieces of which some were taken back."""
    from structspec.forward.target import Target

    target = Target(model, reading)
    found = {8: target.forward(ids[:9])[0]}
    _whole(model, ids[::-1])  # another text: some networks keep a state of their own
    found.update(enumerate(target.forward([*ids[9:12], ids[2]], keep=4)[:3], 9))
    target.crop(2)
    found.update(enumerate(target.forward(ids[11:], keep=5), 11))
    return found


def _in_slots(model: Model, ids: list[int]) -> dict[int, Tensor]:
    """Logits behind some places, read in two rows of unequal lengths and in a tree."""
    from structspec.forward.rows import Call, TargetRows

    rows = TargetRows(model)
    long, short = rows.open(), rows.open()
    first = [rows.forward([Call(long, ids[:6])])[0], rows.forward([Call(short, ids[:3])])[0]]
    tree = Call(long, [ids[6], ids[1], ids[7], ids[8]], 4, [-1, 0, 0, 2])
    then = rows.forward([tree, Call(short, ids[3:5], 2)])
    found = {5: first[0][0], 2: first[1][0], 6: then[0][0], 7: then[0][2], 8: then[0][3]}
    found.update(enumerate(then[1], 3))
    return found


def _agrees(model: Model, read: Callable[[Model, list[int]], dict[int, Tensor]]) -> bool:
    ids = _ids(model)
    try:
        whole = _whole(model, ids)
        if not bool(whole.isfinite().all()):
            return True  # NaN is for whoever samples to report
        found = read(model, ids)
    except StructspecError:
        return False
    except Exception as error:  # a cache of another kind: anything from TypeError to KeyError
        log.debug("%s cannot be read so: %s", model.name, error)
        return False
    rows, places = torch.stack(list(found.values())), list(found)
    return _near(rows, whole[places], model.dtype)


@torch.inference_mode()
def _whole(model: Model, ids: list[int]) -> Tensor:
    """Logits [n, V] of a text that is read in one forward, without a cache."""
    logits: Tensor = model.model(
        input_ids=torch.tensor([ids], device=model.device), use_cache=False
    ).logits[0]
    return logits


def _near(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> bool:
    if found.shape != wanted.shape:
        return False
    found, wanted = found.double(), wanted.double()
    if dtype in _SLACK:
        return near(found, wanted, _SLACK[dtype])
    return bool((found - wanted).norm() <= _COARSE * wanted.norm())
