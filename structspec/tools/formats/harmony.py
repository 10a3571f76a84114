"""gpt-oss (harmony): messages in channels; a call goes to a recipient in the commentary channel.

Source: the OpenAI cookbook's article on the harmony response format. The prompt ends in
`<|start|>assistant`. The markers are special tokens; `<|call|>` and `<|return|>` are end tokens of
the models, and where the vocabulary says so they are left to the end of decoding.

Limits. The recipient is written in the channel section (the article's example), not in the role
section; preambles in the commentary channel and the built-in tools are not written; a reply holds
one call.

Example of a reply::

    <|channel|>analysis<|message|>Need the weather.<|end|><|start|>assistant<|channel|>commentary
    to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>

(one line; a blank stands before `to`).
"""

from __future__ import annotations

from structspec.tools.layout import Arguments, CallFormat, EndMark, Mark, Name, Reasoning

__all__ = ["HARMONY"]

_CHANNEL = Mark("<|channel|>")
_MESSAGE = Mark("<|message|>")

HARMONY = CallFormat(
    name="harmony",
    title="gpt-oss (harmony)",
    source="OpenAI cookbook, articles/openai-harmony",
    call=(
        _CHANNEL,
        "commentary to=functions.",
        Name(),
        " ",
        Mark("<|constrain|>"),
        "json",
        _MESSAGE,
        Arguments(),
        EndMark("<|call|>"),
    ),
    parallel=False,
    answer=((_CHANNEL, "final", _MESSAGE), (EndMark("<|return|>"),)),
    reasoning=Reasoning(
        (_CHANNEL, "analysis", _MESSAGE),
        (Mark("<|end|>"), Mark("<|start|>"), "assistant"),
        repeated=True,
    ),
    known_by=("<|channel|>", "to=functions."),
)
