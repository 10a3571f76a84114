"""Arguments that `generate`, `stream` and `call_tools` share: what they mean, what is refused.

Invariants: a name gives the same loaded model again; equal arguments with a seed give equal seeds.

Siblings: `api` and `tools.calling`, which read theirs with it; `prompt` makes ids of conversations.

Importing this module imports no torch.

    >>> from structspec.arguments import one_each
    >>> one_each("seed", (1, 2), 2)
    [1, 2]
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from structspec.errors import PromptError
from structspec.integers import is_int

if TYPE_CHECKING:
    from structspec.forward.sampling import Sampling
    from structspec.models import Model

__all__ = ["check_seed", "conversation", "model_of", "one_each", "sampling_of", "seeds_of"]


@functools.lru_cache(maxsize=4)
def _loaded(name: str) -> Model:
    from structspec.models import load

    return load(name)


def model_of(model: Any) -> Model:
    """The model of a call: a `Model`, a name for `structspec.load`, (model, tokenizer) or a model.

    Raises the errors of `load` and `Model.wrap`.
    """
    from structspec.models import Model

    if isinstance(model, str):
        return _loaded(model)
    if isinstance(model, tuple) and len(model) == 2:
        return Model.wrap(*model)
    if isinstance(model, Model):
        return model
    return Model.wrap(model, getattr(model, "tokenizer", None))


def conversation(model: Model, prompt: Any, chat: bool | None, continuing: bool = False) -> Any:
    """A prompt as the model is to get it: messages and ids as they are, a text as one message.

    chat: whether a text is a message of a user; None: if the model has a chat template.
    continuing: whether the last message is to be continued.

    Raises `PromptError` for a text that is empty or no text, and for what does not go together.
    """
    if not isinstance(prompt, str):
        if chat is not None:
            raise PromptError("chat= says how to read a text prompt; this prompt is not a text")
        return prompt
    if not prompt.strip():
        raise PromptError("the prompt is empty; say what to write")
    if continuing:
        raise PromptError(
            "continue_final_message needs chat messages; with chat=False a text is always continued"
        )
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"the prompt holds half of a surrogate pair at position {error.start}"
        ) from error
    if chat is None:
        chat = bool(getattr(model.tokenizer, "chat_template", None))
    return [{"role": "user", "content": prompt}] if chat else prompt


def sampling_of(
    sampling: Sampling | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
) -> Sampling:
    """The settings of a call: those of `sampling`, and single ones in their place.

    Raises TypeError or ValueError for what is no setting.
    """
    from structspec.forward.sampling import Sampling

    if sampling is not None and not isinstance(sampling, Sampling):
        raise TypeError(
            f"sampling is a {type(sampling).__name__}; pass structspec.Sampling(...), or single "
            "settings such as temperature="
        )
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    return replace(sampling or Sampling(), **changes)


def check_seed(seed: Any) -> None:
    """Raise ValueError for what is neither a seed nor None."""
    if seed is not None and not is_int(seed, 0):
        raise ValueError(f"seed must be an int from 0 on, or None for a fresh one, not {seed!r}")


def seeds_of(
    seed: int | Sequence[int] | None, sampling: Sampling | None, prompts: int, n: int
) -> list[int]:
    """A seed for each of n values of each prompt: a function of the given one and the place.

    seed: one for all, or one for each prompt; None: a fresh one, or that of `sampling`.

    Raises ValueError for what is no seed, or another number of seeds than prompts.
    """
    from structspec.decoding.progress import row_seed

    for one in seed if isinstance(seed, Sequence) else [seed]:
        check_seed(one)
    if isinstance(seed, Sequence):
        firsts = one_each("seed", seed, prompts)
        return [row_seed(first, 0, j) for first in firsts for j in range(n)]
    if seed is None:
        seed = secrets.randbits(63) if sampling is None else sampling.seed
    return [row_seed(seed, i, j) for i in range(prompts) for j in range(n)]


def one_each(name: str, values: Sequence[Any], count: int) -> list[Any]:
    """The values, of which there must be one for each of `count` prompts: ValueError if not."""
    if len(values) != count:
        raise ValueError(f"{name} holds {len(values)} for {count} prompts; give one for each")
    return list(values)
