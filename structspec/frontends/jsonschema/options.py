"""The policies under which a schema is compiled.

Example::

    >>> from structspec.frontends.jsonschema import SchemaOptions
    >>> SchemaOptions(spelling="canonical", whitespace="conventional").key_order
    'declared'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

__all__ = ["SchemaOptions"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "key_order": ("declared", "any"),
    "whitespace": ("flexible", "compact", "conventional"),
    "spelling": ("any", "canonical"),
    "unknown_formats": ("annotate", "refuse"),
    "on_unsupported": ("refuse", "widen"),
}


@dataclass(frozen=True)
class SchemaOptions:
    """Policies for whitespace, key order, spelling, formats and references.

    `default_dialect` is the URI of the draft for schemas without ``$schema`` (None: 2020-12).
    `resources` maps URIs to documents that ``$ref`` may name; nothing is ever fetched.
    Raises ValueError for a policy that does not exist.
    """

    key_order: Literal["declared", "any"] = "declared"
    whitespace: Literal["flexible", "compact", "conventional"] = "flexible"
    spelling: Literal["any", "canonical"] = "any"
    unknown_formats: Literal["annotate", "refuse"] = "annotate"
    on_unsupported: Literal["refuse", "widen"] = "refuse"
    assert_formats: bool = True
    default_dialect: str | None = None
    resources: Mapping[str, Any] | None = None
    #: Whether what runs the grammar can tell items apart (see `structspec.automata.distinct`);
    #: "always": other schemas, which may be read at the same time, have such items.
    tell_apart: bool | Literal["always"] = False

    def __post_init__(self) -> None:
        for field in fields(self):
            allowed = _CHOICES.get(field.name)
            value = getattr(self, field.name)
            if allowed is not None and value not in allowed:
                listed = ", ".join(map(repr, allowed))
                raise ValueError(f"{field.name}={value!r} is not a policy; use one of {listed}")
