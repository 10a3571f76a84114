"""Whether calls are what a tool-calling task accepts.

The tasks list, for every expected call, the accepted values of each argument; the value "" marks an
argument that may be left out. The rule is that of their source (Berkeley Function Calling
Leaderboard): calls in any order, one for one; texts compared without case, blanks and the signs
`,./-_*^`; numbers by value; records member by member.

Example::

    >>> from structspec.tools import ToolCall
    >>> accepted = [{"add": {"a": [1], "b": [2, ""]}}]
    >>> matches([ToolCall("add", {"a": 1})], accepted)
    True
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from structspec.tools.call import ToolCall

__all__ = ["matches"]

_IGNORED = re.compile(r"[ ,./\-_*^]")


def matches(calls: Sequence[ToolCall], accepted: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the calls and the accepted ones can be paired, one for one."""
    if len(calls) != len(accepted):
        return False
    if not calls:
        return True
    first, rest = calls[0], calls[1:]
    return any(
        _call_matches(first, expected) and matches(rest, [*accepted[:i], *accepted[i + 1 :]])
        for i, expected in enumerate(accepted)
    )


def _call_matches(call: ToolCall, expected: Mapping[str, Any]) -> bool:
    arguments = expected.get(call.name)
    return arguments is not None and _members_match(call.arguments, arguments)


def _members_match(found: Mapping[str, Any], accepted: Mapping[str, Sequence[Any]]) -> bool:
    if any(name not in accepted for name in found):
        return False
    for name, values in accepted.items():
        if name not in found:
            if "" not in values:
                return False
        elif not any(_value_matches(found[name], value) for value in values):
            return False
    return True


def _value_matches(found: Any, accepted: Any) -> bool:
    if isinstance(found, str) and isinstance(accepted, str):
        return _plain(found) == _plain(accepted)
    if isinstance(found, list) and isinstance(accepted, list):
        pairs = zip(found, accepted, strict=False)
        return len(found) == len(accepted) and all(_value_matches(f, a) for f, a in pairs)
    if isinstance(found, Mapping) and isinstance(accepted, Mapping):
        if all(isinstance(value, list) for value in accepted.values()):
            return _members_match(found, accepted)
        return found.keys() == accepted.keys() and all(
            _value_matches(found[name], accepted[name]) for name in accepted
        )
    if isinstance(found, bool) or isinstance(accepted, bool):
        return found is accepted
    return bool(found == accepted)


def _plain(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')
