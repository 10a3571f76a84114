"""The call formats of model families, one small module of data each.

`FORMATS` has them by name; `find_format` looks one up. A module holds what the family writes, the
source of that knowledge and its limits; grammar and parser follow from the data.

Example::

    >>> sorted(FORMATS)[:3]
    ['command_r', 'command_r_plus', 'deepseek']
"""

from __future__ import annotations

from structspec.errors import ToolError
from structspec.tools.formats import (
    command_r,
    deepseek,
    granite,
    harmony,
    hermes,
    llama3,
    mistral,
    phi4,
    pythonic,
)
from structspec.tools.layout import CallFormat

__all__ = ["DEFAULT", "FORMATS", "find_format"]

#: By name. The order is that of recognition by chat template: special markers first.
FORMATS: dict[str, CallFormat] = {
    found.name: found
    for found in (
        harmony.HARMONY,
        deepseek.DEEPSEEK,
        command_r.COMMAND_R,
        command_r.COMMAND_R_PLUS,
        mistral.MISTRAL_ARGS,
        mistral.MISTRAL,
        granite.GRANITE,
        phi4.PHI4,
        phi4.PHI4_FUNCTOOLS,
        hermes.HERMES,
        llama3.LLAMA3,
        pythonic.PYTHONIC,
    )
}

#: The format of models whose chat template names none.
DEFAULT = hermes.HERMES


def find_format(name: str | CallFormat) -> CallFormat:
    """A format by name, or as it is. Raises ToolError that lists the names."""
    if isinstance(name, CallFormat):
        return name
    if name not in FORMATS:
        raise ToolError(f"there is no call format '{name}'; there are: {', '.join(FORMATS)}")
    return FORMATS[name]
