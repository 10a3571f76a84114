"""Metaschemas of one's own: which vocabularies a schema has, and which keywords that leaves inert.

A schema of the last two drafts may name a metaschema whose ``$vocabulary`` leaves some vocabularies
out; their keywords then assert nothing. `settle` reads such metaschemas from the documents that the
caller supplies and rewrites a document once: ``$schema`` becomes the draft that the metaschema
builds on, and every keyword without a vocabulary becomes `Inert`. Nothing behind it has to know.

Example::

    >>> from structspec.frontends.jsonschema.dialects import Inert
    >>> schema = {Inert("minimum"): 3}
    >>> schema.get("minimum"), [str(name) for name in schema]
    (None, ['minimum'])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from structspec.errors import UnsupportedFeature
from structspec.frontends.jsonschema.budget import spend
from structspec.frontends.jsonschema.drafts import draft_named
from structspec.frontends.jsonschema.keywords import keyword_of, subschemas

__all__ = ["Inert", "settle"]

_VALIDATION = (
    "type enum const multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength "
    "minLength pattern maxItems minItems uniqueItems maxContains minContains maxProperties "
    "minProperties required dependentRequired"
)
_APPLICATORS = (
    "prefixItems items additionalItems contains additionalProperties properties patternProperties "
    "dependentSchemas propertyNames if then else allOf anyOf oneOf not"
)
_UNEVALUATED = "unevaluatedItems unevaluatedProperties"

#: The vocabularies of each draft, by the end of their URI, with their asserting keywords.
_VOCABULARIES: dict[int, dict[str, str]] = {
    2019: {
        "core": "",
        "applicator": f"{_APPLICATORS} {_UNEVALUATED}",
        "validation": _VALIDATION,
        "format": "format",
        "content": "",
        "meta-data": "",
    },
    2020: {
        "core": "",
        "applicator": _APPLICATORS,
        "unevaluated": _UNEVALUATED,
        "validation": _VALIDATION,
        "format-annotation": "format",
        "format-assertion": "format",
        "content": "",
        "meta-data": "",
    },
}
_BASES = {
    2019: "https://json-schema.org/draft/2019-09/vocab/",
    2020: "https://json-schema.org/draft/2020-12/vocab/",
}


class Inert(str):
    """A keyword that its schema's dialect does not have: no look-up by its name finds it."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(("inert", str(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Inert) and str(self) == str(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __str__(self) -> str:
        return str.__str__(self)


@dataclass(frozen=True, slots=True)
class _Dialect:
    """The draft that a metaschema builds on, its URI, and the keywords that it leaves out."""

    draft: int
    uri: str
    inert: frozenset[str]


def settle(
    root: Any,
    containers: list[Any],
    resources: Mapping[str, Any],
    assert_formats: bool,
) -> Any:
    """The document with all dialects of its own resolved; the same object if it has none.

    `containers` are its objects and arrays, `resources` the documents that metaschemas may be found
    in. Raises UnsupportedFeature for vocabularies that are demanded but not known.
    """
    if not isinstance(root, dict):
        return root
    known: dict[str, _Dialect | None] = {}

    def dialect(schema: dict[str, Any], above: _Dialect | None) -> _Dialect | None:
        uri = schema.get("$schema")
        if not isinstance(uri, str):
            return above
        if uri not in known:
            known[uri] = _read(uri, resources, assert_formats)
        return known[uri]

    first = dialect(root, None)
    if first is None and not _mentions_others(containers):
        return root
    box = [root]
    stack: list[tuple[Any, Any, dict[str, Any], _Dialect | None]] = [(box, 0, root, None)]
    while stack:
        holder, key, schema, above = stack.pop()
        spend()
        here = dialect(schema, above)
        made: dict[str, Any] = {}
        holder[key] = made
        for name, value in schema.items():
            if here is not None and name == "$schema":
                value = here.uri
            made[Inert(name) if here is not None and name in here.inert else name] = value
        if here is None and "$schema" in schema and schema is not root:
            continue  # a resource of a draft, which has subschemas in places of its own
        draft = here.draft if here is not None else 2020
        for name, value in made.items():
            keyword = keyword_of(name, draft)
            if keyword is None or not isinstance(value, dict | list):
                continue
            inner: Any = dict(value) if isinstance(value, dict) else list(value)
            whole = False
            for path, sub in subschemas(keyword, value):
                if not isinstance(sub, dict):
                    continue
                if not path:
                    whole = True
                    stack.append((made, name, sub, here))
                else:
                    where = path[0] if isinstance(value, dict) else int(path[0])
                    stack.append((inner, where, sub, here))
            if not whole:
                made[name] = inner
    return box[0]


def _mentions_others(containers: list[Any]) -> bool:
    """Whether some ``$schema`` inside names no draft."""
    for top in containers:
        if type(top) is dict and "$schema" in top:
            uri = top["$schema"]
            if isinstance(uri, str) and draft_named(uri) is None:
                return True
    return False


def _read(
    uri: str,
    resources: Mapping[str, Any],
    assert_formats: bool,
) -> _Dialect | None:
    """The dialect of a URI; None for a draft, and for what no document describes."""
    if draft_named(uri) is not None:
        return None
    bare = uri.removesuffix("#")
    metaschema = resources.get(uri, resources.get(bare, resources.get(bare + "#")))
    if not isinstance(metaschema, dict) or not isinstance(metaschema.get("$schema"), str):
        return None
    draft = draft_named(metaschema["$schema"])
    vocabularies = metaschema.get("$vocabulary")
    if draft not in _VOCABULARIES or not isinstance(vocabularies, dict | None):
        return None
    base, all_of_them = _BASES[draft], _VOCABULARIES[draft]
    inert = frozenset[str]()
    if vocabularies is not None:
        has: set[str] = set()
        for name, required in vocabularies.items():
            short = name.removeprefix(base) if name.startswith(base) else ""
            if short in all_of_them:
                has.update(all_of_them[short].split())
            elif required:
                reason = f"the vocabulary {name!r} is required by {uri!r} and not known"
                raise UnsupportedFeature("$vocabulary", "", reason)
            if short == "format-assertion" and not assert_formats:
                reason = f"{uri!r} asserts formats and assert_formats=False does not"
                raise UnsupportedFeature("$vocabulary", "", reason)
        every = {word for words in all_of_them.values() for word in words.split()}
        inert = frozenset(every - has)
    return _Dialect(draft, metaschema["$schema"], inert)
