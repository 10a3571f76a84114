"""Mistral: `[TOOL_CALLS]` and a JSON array; from tokenizer version 11 on name, `[ARGS]`, object.

Source: `mistral_common` 1.13 (tokens/tokenizers/instruct.py: versions 3 to 7, 11 and 13) and the
chat template of Mistral-Nemo-Instruct-2407. The markers are special tokens. In the array form a
call may carry an id of nine letters or digits; in the later form an id may stand before `[ARGS]`
in version 11 and never in 13, so none is written.

Examples of replies::

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "a1B2c3D4e"}]
    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}
"""

from __future__ import annotations

from structspec.tools.layout import Arguments, ArrayLayout, CallFormat, CallObject, Mark, Name

__all__ = ["MISTRAL", "MISTRAL_ARGS"]

MISTRAL = CallFormat(
    name="mistral",
    title="Mistral (tokenizer versions 3 to 7)",
    source="mistral_common 1.13; chat template of Mistral-Nemo-Instruct-2407",
    before=(Mark("[TOOL_CALLS]"),),
    call=(CallObject(id_key="id", id_pattern="^[a-zA-Z0-9]{9}$"),),
    array=ArrayLayout(),
    known_by=("[TOOL_CALLS]",),
)

MISTRAL_ARGS = CallFormat(
    name="mistral_args",
    title="Mistral (tokenizer version 11 and later)",
    source="mistral_common 1.13",
    call=(Mark("[TOOL_CALLS]"), Name(), Mark("[ARGS]"), Arguments()),
    known_by=("[ARGS]",),
)
