"""Log-probabilities of tokens as clients get them, in chats' form and in completions'.

They are those of the law that was sampled, mask and settings applied: of every token that was
written, calls and stop strings included, and of the likeliest ones beside it.

Invariant: what a stream tells of tokens, joined, is what the whole answer tells.

Example::

    >>> vocab = Vocabulary([b"Hi", b"!", None], eos_ids=[2], special={"<end>": 2})
    >>> told = in_completion([Written(0, b"Hi", -0.5, ((0, -0.5), (2, -1.5)))], Names(vocab), 0)
    >>> told["tokens"], told["top_logprobs"]
    (['Hi'], [{'Hi': -0.5, '<end>': -1.5}])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from structspec.server.engine import Written
from structspec.vocab import Vocabulary

__all__ = ["Names", "characters", "in_chat", "in_completion"]


def characters(data: bytes) -> int:
    """How many characters begin in some bytes of UTF-8."""
    return sum(byte & 0xC0 != 0x80 for byte in data)


class Names:
    """Tokens as text: a special token by its name, a part of a character as "bytes:...".

    The last is how OpenAI shows tokens that are no text of their own.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self._tokens = vocab.tokens
        self._special = {token: name for name, token in vocab.special.items()}

    def data(self, token: int) -> bytes:
        """What a token writes."""
        within = token < len(self._tokens)
        return (self._tokens[token] if within else None) or b""

    def text(self, token: int) -> str:
        """What to show for a token."""
        data = self.data(token)
        if not data:
            return self._special.get(token, "")
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def in_chat(written: Sequence[Written], names: Names) -> dict[str, Any]:
    """The `logprobs` of a chat's choice."""

    def told(token: int, logprob: float | None) -> dict[str, Any]:
        name = {"token": names.text(token), "bytes": list(names.data(token))}
        return {**name, "logprob": logprob}

    content = [
        {
            **told(one.token, one.logprob),
            "top_logprobs": [told(token, logprob) for token, logprob in one.top],
        }
        for one in written
    ]
    return {"content": content, "refusal": None}


def in_completion(written: Sequence[Written], names: Names, begin: int) -> dict[str, Any]:
    """The `logprobs` of a completion's choice.

    begin: characters that were begun before these tokens. The offset of a token is the place of
    the character that it begins with, or goes on with. Tokens that only write again what the prompt
    ends with (see `decoding.healing`) are left out.
    """
    written = [one for one in written if one.data or not names.data(one.token)]
    offsets = []
    for one in written:
        offsets.append(begin - (characters(one.data[:1]) < len(one.data[:1])))
        begin += characters(one.data)
    alternatives = [{names.text(token): logprob for token, logprob in one.top} for one in written]
    return {
        "tokens": [names.text(one.token) for one in written],
        "token_logprobs": [one.logprob for one in written],
        "top_logprobs": alternatives if any(alternatives) else None,
        "text_offset": offsets,
    }
