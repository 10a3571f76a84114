"""Prompts: text, chat messages or ids → the ids that the model reads.

Owns the chat template call and the checks around it. A prompt is *open* if the answer continues
its text directly (raw text, or `continue_final_message`); only open prompts are healed.

Invariants
- the ids are inside the model's embedding and there is at least one;
- a template's own reasons for refusing messages reach the user as `PromptError`.

Cost: one tokenisation.

Sibling: `decoding.healing` repairs the seam of open prompts.

Example::

    prompt = encode_prompt(model, [{"role": "user", "content": "Name a city."}])
    prompt.ids, prompt.open
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from structspec.errors import PromptError
from structspec.integers import is_int
from structspec.models import Model

__all__ = ["Messages", "Prompt", "encode_prompt"]

Messages: TypeAlias = Sequence[Mapping[str, Any]]
"""Chat messages, each with "role" and "content" (or "tool_calls")."""


@dataclass(frozen=True)
class Prompt:
    """Token ids, and whether the answer continues the last one's text."""

    ids: tuple[int, ...]
    open: bool


def encode_prompt(
    model: Model,
    prompt: str | Messages | Sequence[int],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    continue_final_message: bool = False,
    **template: Any,
) -> Prompt:
    """Encode a prompt for `model`.

    A `str` is raw text, a list of mappings a chat (rendered with the model's chat template, ready
    for the assistant's turn), a list of integers is taken as it is. With `continue_final_message`
    the answer continues the last message instead of opening a new turn. `tools` and `template`
    are passed to the chat template.

    Raises `PromptError` for anything that cannot be encoded, naming what is wrong.
    """
    if isinstance(prompt, str):
        if continue_final_message:
            raise PromptError(
                "continue_final_message needs chat messages; a raw text is always continued"
            )
        ids, is_open = _encode_text(model, prompt), True
    elif hasattr(prompt, "tolist") or _is_ids(prompt):
        ids, is_open = _given_ids(prompt), False
    else:
        ids = _encode_chat(model, prompt, tools, continue_final_message, template)
        is_open = continue_final_message
    if not ids:
        raise PromptError("the prompt is empty; a model needs at least one token to continue")
    width = model.logit_width
    for index, token in enumerate(ids):
        if not 0 <= token < width:
            raise PromptError(
                f"prompt token {token} at position {index} is out of range: {model.name} has ids "
                f"0 to {width - 1}; is it the right tokenizer?"
            )
    return Prompt(tuple(ids), is_open)


def _encode_text(model: Model, text: str) -> list[int]:
    ids = list(model.tokenizer.encode(text))
    # Some tokenizers close every text with an end token, after which nothing continues.
    while ids and ids[-1] in model.eos_ids and not _ends_with_token(model, text, ids[-1]):
        ids.pop()
    return ids


def _ends_with_token(model: Model, text: str, token: int) -> bool:
    return text.endswith(model.tokenizer.convert_ids_to_tokens(token))


def _encode_chat(
    model: Model,
    messages: Any,
    tools: Sequence[Mapping[str, Any]] | None,
    continue_final_message: bool,
    template: dict[str, Any],
) -> list[int]:
    _check_messages(messages)
    if not getattr(model.tokenizer, "chat_template", None) and "chat_template" not in template:
        raise PromptError(
            f"{model.name} has no chat template, so it cannot take messages; pass the prompt as "
            "text, or chat_template=..."
        )
    try:
        ids = model.tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=None if tools is None else list(tools),
            add_generation_prompt=not continue_final_message,
            continue_final_message=continue_final_message,
            tokenize=True,
            return_dict=False,
            **template,
        )
    except Exception as error:  # templates are programs: jinja's errors, TypeError, ValueError
        raise PromptError(f"the chat template of {model.name} refused: {error}") from error
    return [int(i) for i in ids]


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, bytes | bytearray):
        raise PromptError(
            f"a prompt is a text, a list of messages or a list of token ids, not "
            f"{type(messages).__name__}"
        )
    if not messages:
        raise PromptError("the list of messages is empty")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise PromptError(
                f"message {index} is a {type(message).__name__}; "
                'it must be a mapping with "role" and "content"'
            )
        if not isinstance(message.get("role"), str):
            raise PromptError(f'message {index} has no "role" (such as "user")')
        if "content" not in message and "tool_calls" not in message:
            raise PromptError(f'message {index} has neither "content" nor "tool_calls"')


def _is_ids(prompt: Any) -> bool:
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, bytes | bytearray)
        and bool(prompt)
        and all(is_int(i) for i in prompt)
    )


def _given_ids(prompt: Any) -> list[int]:
    """Ids from a sequence, an array or a tensor; one row of a batch counts as its row."""
    if hasattr(prompt, "tolist"):
        shape = tuple(prompt.shape)
        if len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
            raise PromptError(f"ids of shape {shape} are not one prompt; pass [length]")
        prompt = prompt.reshape(-1).tolist()
    return [int(i) for i in prompt]
