"""Writing calls as a family writes them, for the history of families without a template for it.

Markers are written as text; a tokenizer turns them into its special tokens where it has them.

Example::

    >>> from structspec.tools.formats import FORMATS
    >>> render_calls(FORMATS["pythonic"], [("f", {"x": None}, "")])
    '[f(x=None)]'
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from structspec.tools.layout import (
    Arguments,
    CallFormat,
    CallObject,
    EndMark,
    Gap,
    Mark,
    Name,
    Piece,
)
from structspec.tools.pythonic import python_text

__all__ = ["instructions", "render_calls"]

_Call = tuple[str, Mapping[str, Any], str]


def render_calls(form: CallFormat, calls: Sequence[_Call]) -> str:
    """The text of some calls: (name, arguments, id) each."""
    if not calls:
        return ""
    items = [_pieces(form.call, call, i) for i, call in enumerate(calls)]
    array = form.array
    if array is None:
        body = _pieces(form.between).join(items)
    else:
        body = array.opening + array.between.join(items) + array.closing
    return _pieces(form.before) + body + _pieces(form.after)


def instructions(form: CallFormat, tools: Sequence[Mapping[str, Any]]) -> str:
    """A system message that offers tools, for models whose template has no place for them.

    Worded like the prompts that small open models were tuned on: they then call more aptly.
    """
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    example = render_calls(form, [("function_name", {"argument": "value"}, "")])
    return (
        "You are an expert in composing functions. You are given a question and a set of possible "
        "functions. Based on the question, make one or more function calls to achieve the "
        "purpose. If none of the functions can be used, say so.\n"
        f"You have access to the following functions:\n<tools>\n{listed}\n</tools>\n"
        "The output must strictly adhere to the following format, and no other text must be "
        f"included:\n{example}"
    )


def _pieces(pieces: Sequence[Piece], call: _Call | None = None, index: int = 0) -> str:
    return "".join(_piece(piece, call, index) for piece in pieces)


def _piece(piece: Piece, call: _Call | None, index: int) -> str:
    match piece:
        case str(text) | Mark(text) | EndMark(text) | Gap(text):
            return text
    assert call is not None, "only calls hold names and arguments"
    name, arguments, identity = call
    match piece:
        case Name():
            return name
        case Arguments():
            return _json(arguments)
        case CallObject():
            members = {piece.name_key: name, piece.arguments_key: arguments}
            if piece.id_key is not None and (identity or piece.id_required):
                # families number their calls where nobody gave an id
                members[piece.id_key] = identity or str(index)
            ordered = {key: members[key] for key in piece.in_order() if key in members}
            return _json(ordered)
    keywords = ", ".join(f"{key}={python_text(value)}" for key, value in arguments.items())
    return f"{name}({keywords})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
