"""What becomes of each keyword of a schema object: the entries of the report.

`Fates` reads one schema object at a time and knows nothing of the rest of the document: under the
policies of a compile, a keyword's fate depends on its own value and on its siblings. What a compile
had to drop on request (`widened`) is entered by the caller.

Cost: one `Entry` per keyword, written when the report is first read.

Example::

    >>> from structspec.frontends.jsonschema.options import SchemaOptions
    >>> fates = Fates(SchemaOptions())
    >>> [entry.status for entry in fates.of("", {"title": "t", "minimum": 3}, 2020)]
    ['annotation', 'narrowed']
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from structspec.frontends.jsonschema.dialects import Inert
from structspec.frontends.jsonschema.drafts import Draft
from structspec.frontends.jsonschema.formats import Format, format_of
from structspec.frontends.jsonschema.keywords import hint, keyword_of, overridden
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.report import Entry, Status

__all__ = ["Fates", "asserted_format"]

_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_STRING_KEYWORDS = frozenset({"pattern", "format", "minLength", "maxLength", "patternProperties"})

_EXACT: tuple[Status, str] = ("exact", "")
_NO_EXPONENTS: tuple[Status, str] = ("narrowed", "numbers are written without exponents")
_IN_ORDER: tuple[Status, str] = (
    "narrowed",
    'written in this order, all other members behind them; key_order="any" allows any order',
)
_REPEATED: tuple[Status, str] = (
    "exact",
    "counts what is written: a text that repeats an undeclared key counts it each time",
)


class Fates:
    """The fates of keywords under the policies of one compile."""

    def __init__(self, options: SchemaOptions, string_note: str = "") -> None:
        self.options = options
        #: What is left out of strings everywhere ("" for nothing).
        self.string_note = string_note

    def of(self, pointer: str, schema: dict[str, Any], draft: Draft) -> Iterator[Entry]:
        """The entries of the schema object at `pointer`, in its own order."""
        hidden = overridden(schema, draft)
        for name in schema:
            keyword = keyword_of(name, draft)
            if hidden and name != "$ref":
                note = f"ignored beside $ref, as draft {draft} demands"
                yield Entry(pointer, name, "annotation", note)
            elif isinstance(name, Inert):
                note = "no effect: the metaschema leaves its vocabulary out"
                yield Entry(pointer, str(name), "annotation", note)
            elif keyword is None:
                yield Entry(pointer, name, "annotation", hint(name, draft))
            elif keyword.role == "assertion":
                status, note = self._assertion(schema, name, draft)
                if self.string_note and status == "exact" and name in _STRING_KEYWORDS:
                    status, note = "narrowed", self.string_note
                yield Entry(pointer, name, status, note)
            else:
                status = "exact" if keyword.role == "core" else "annotation"
                yield Entry(pointer, name, status, "")

    def _assertion(self, schema: dict[str, Any], name: str, draft: Draft) -> tuple[Status, str]:
        value = schema[name]
        if name == "format":
            return self._format(schema, value, draft)
        if name == "minProperties" and value > 0 and _open_keys(schema):
            return _REPEATED
        if self.options.key_order == "declared" and name in ("properties", "required"):
            return _IN_ORDER if self._ordered(schema, name) else _EXACT
        if self.options.spelling == "any":
            if name in _BOUNDS and value != 0:
                return _NO_EXPONENTS
            types = value if isinstance(value, list) else [value]
            if name == "type" and "integer" in types and "number" not in types:
                return "narrowed", "integers are written without exponents"
            if name in ("const", "enum") and _holds_number(value):
                return _NO_EXPONENTS
        return _EXACT

    def _ordered(self, schema: dict[str, Any], name: str) -> bool:
        """Whether a list of names decides about the order of what is written."""
        declared = [key for key, sub in schema.get("properties", {}).items() if sub is not False]
        if name == "required":
            return any(key not in declared for key in schema["required"])
        return len(declared) > 1 or (len(declared) == 1 and _open_keys(schema))

    def _format(self, schema: dict[str, Any], value: Any, draft: Draft) -> tuple[Status, str]:
        known = asserted_format(value, draft)
        if not self.options.assert_formats:
            return "annotation", "formats are not asserted"
        if known is None:
            return "annotation", f"the format {value!r} is not known"
        if "type" in schema and "string" not in schema["type"]:
            return "exact", "no effect: it concerns strings only"
        return ("narrowed", known.note) if known.note else _EXACT


def asserted_format(name: str, draft: Draft) -> Format | None:
    """What a format means in a draft; if it is younger, what the next draft says that knows it."""
    for known in (4, 6, 7, 2019, 2020):
        kind = format_of(name, known) if known >= draft else None
        if kind is not None:
            return kind
    return None


def _open_keys(schema: dict[str, Any]) -> bool:
    """Whether members may have names that are not declared."""
    if "object" not in schema.get("type", "object"):
        return False
    if any(sub is not False for sub in schema.get("patternProperties", {}).values()):
        return True
    return schema.get("additionalProperties", True) is not False


def _holds_number(value: Any) -> bool:
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, dict):
            stack.extend(top.values())
        elif isinstance(top, list):
            stack.extend(top)
        elif isinstance(top, int | Decimal) and not isinstance(top, bool):
            return True
    return False
