"""Reading the two JSON forms of structural tags.

The older one lists `structures`; the newer one has one `format` of nested objects, each with a
`type`. Both are described in the documentation of XGrammar (`docs/tutorials/structural_tag`),
which also names the types. Two facts about its engine are kept: with `at_least_one` the first tag
comes before any free text, and free text in a tag ends at the tag's end.

Parts that cannot be kept exactly are refused by name: tokens by number (a grammar knows no
vocabulary), sets of excluded tokens, token budgets, and styles other than JSON.

Example::

    >>> tag = read_structural_tag({"type": "structural_tag", "triggers": ["<f="], "structures":
    ...     [{"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}]})
    >>> tag.format.triggers
    ('<f=',)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

from structspec.errors import SchemaError, UnsupportedFeature
from structspec.frontends.tags import spec
from structspec.integers import is_int

__all__ = ["read_structural_tag"]


def read_structural_tag(source: Any) -> spec.StructuralTag:
    """The structural tag that `source` is: a dataclass, a JSON object, or its text.

    Raises SchemaError with the pointer if it is none, UnsupportedFeature for a part that is
    legal there and cannot be exact here.
    """
    if isinstance(source, spec.StructuralTag):
        return source
    if isinstance(source, get_args(spec.Content)):
        return spec.StructuralTag(source)
    if isinstance(source, str):
        try:
            source = json.loads(source)
        except ValueError as error:
            line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
            raise SchemaError(
                f"the structural tag is not JSON: {getattr(error, 'msg', error)}",
                line=line,
                column=column,
            ) from None
    if not isinstance(source, Mapping):
        raise SchemaError(
            f"a structural tag is an object or one of structspec.frontends.tags, not "
            f"{type(source).__name__}"
        )
    if source.get("type") != "structural_tag":
        raise SchemaError('a structural tag has "type": "structural_tag"', pointer="/type")
    if "format" in source:
        _only(source, ("type", "format"), "")
        return spec.StructuralTag(_format(source["format"], "/format"))
    if "structures" in source:
        return spec.StructuralTag(_structures(source))
    raise SchemaError('a structural tag has "format", or "structures" and "triggers"', pointer="")


def _structures(source: Mapping[str, Any]) -> spec.TriggeredTags:
    _only(source, ("type", "structures", "triggers"), "")
    tags = []
    for index, entry in enumerate(_list(source, "structures", "")):
        place = f"/structures/{index}"
        item = _object(entry, place)
        _only(item, ("begin", "schema", "end"), place)
        schema = item.get("schema", True)
        tags.append(
            spec.Tag(_str(item, "begin", place), spec.JSONSchema(schema), _str(item, "end", place))
        )
    return spec.TriggeredTags(tuple(tags), _strings(source, "triggers", ""))


def _format(value: Any, place: str) -> spec.Content:
    item = _object(value, place)
    kind = item.get("type")
    if not isinstance(kind, str):
        raise SchemaError('a format has a "type"', pointer=place)
    if kind in _REFUSED:
        raise UnsupportedFeature(kind, place, _REFUSED[kind])
    reader = _READERS.get(kind)
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise SchemaError(f"the type {kind!r} is unknown; known: {known}", pointer=f"{place}/type")
    return reader(item, place)


def _const(item: Mapping[str, Any], place: str) -> spec.Content:
    _only(item, ("type", "value"), place)
    return spec.ConstString(_str(item, "value", place))


def _json_schema(item: Mapping[str, Any], place: str) -> spec.Content:
    _only(item, ("type", "json_schema", "style", "any_order", "excludes"), place)
    if item.get("style", "json") != "json":
        raise UnsupportedFeature("style", place, f"only JSON is written, not {item['style']}")
    for key, reason in (
        (
            "any_order",
            "it weakens or cuts the schema; the compile option key_order='any' keeps the schema "
            "whole",
        ),
        ("excludes", "it has no exact meaning beside the schema's own strings"),
    ):
        if item.get(key):
            raise UnsupportedFeature(key, place, reason)
    schema = item.get("json_schema")
    if not isinstance(schema, Mapping | bool):
        raise SchemaError("json_schema is an object or a boolean", pointer=f"{place}/json_schema")
    return spec.JSONSchema(schema)


def _any_text(item: Mapping[str, Any], place: str) -> spec.Content:
    _only(item, ("type", "excludes", "max_chars", "max_tokens"), place)
    if item.get("max_tokens") is not None:
        raise UnsupportedFeature(
            "max_tokens", place, "a grammar counts characters, not tokens; use max_chars"
        )
    most = item.get("max_chars")
    if most is not None and not is_int(most, 0):
        raise SchemaError("max_chars is a number from 0 on", pointer=f"{place}/max_chars")
    return spec.AnyText(_strings(item, "excludes", place, ()), most)


def _token(item: Mapping[str, Any], place: str) -> spec.Token:
    _only(item, ("type", "token"), place)
    name = item.get("token")
    if isinstance(name, int):
        raise UnsupportedFeature("token", place, "a grammar knows tokens by name, not by number")
    return spec.Token(_str(item, "token", place))


def _grammar(item: Mapping[str, Any], place: str) -> spec.Content:
    _only(item, ("type", "grammar", "syntax"), place)
    syntaxes = {"ebnf": "gbnf", "lark": "lark"}
    syntax = item.get("syntax", "ebnf")
    if syntax not in syntaxes:
        raise SchemaError("syntax is ebnf or lark", pointer=f"{place}/syntax")
    return spec.Embedded(_str(item, "grammar", place), syntaxes[syntax])  # type: ignore[arg-type]


def _regex(item: Mapping[str, Any], place: str) -> spec.Content:
    _only(item, ("type", "pattern"), place)
    return spec.Regex(_str(item, "pattern", place))


def _elements(item: Mapping[str, Any], place: str) -> tuple[spec.Content, ...]:
    _only(item, ("type", "elements"), place)
    listed = _list(item, "elements", place)
    return tuple(_format(e, f"{place}/elements/{i}") for i, e in enumerate(listed))


def _copies(minimum: int, maximum: int | None) -> Callable[[Mapping[str, Any], str], spec.Content]:
    def read(item: Mapping[str, Any], place: str) -> spec.Content:
        _only(item, ("type", "content"), place)
        return spec.Repeat(_format(item.get("content"), f"{place}/content"), minimum, maximum)

    return read


def _repeat(item: Mapping[str, Any], place: str) -> spec.Content:
    _only(item, ("type", "content", "min", "max"), place)
    bounds = []
    for key in ("min", "max"):
        bound = item.get(key)
        if not is_int(bound, -1):
            raise SchemaError(f"{key} is a number", pointer=f"{place}/{key}")
        bounds.append(bound)
    content = _format(item.get("content"), f"{place}/content")
    return spec.Repeat(content, bounds[0], None if bounds[1] == -1 else bounds[1])


def _tag(item: Mapping[str, Any], place: str) -> spec.Tag:
    _only(item, ("type", "begin", "content", "end"), place)
    content = _format(item.get("content"), f"{place}/content")
    end = item.get("end")
    ends: str | spec.Token | tuple[str | spec.Token, ...]
    if isinstance(end, list):
        ends = tuple(_mark(e, f"{place}/end/{i}") for i, e in enumerate(end))
    else:
        ends = _mark(end, f"{place}/end")
    return spec.Tag(_mark(item.get("begin"), f"{place}/begin"), content, ends)


def _mark(value: Any, place: str) -> str | spec.Token:
    if isinstance(value, str):
        return value
    item = _object(value, place)
    if item.get("type") != "token":
        raise SchemaError("a begin or an end is a text or a token", pointer=place)
    return _token(item, place)


def _tags(item: Mapping[str, Any], place: str) -> tuple[spec.Tag, ...]:
    found = []
    for index, entry in enumerate(_list(item, "tags", place)):
        where = f"{place}/tags/{index}"
        value = _object(entry, where)
        if value.get("type", "tag") != "tag":
            raise SchemaError('a tag has "type": "tag"', pointer=f"{where}/type")
        found.append(_tag(value, where))
    return tuple(found)


def _triggered(item: Mapping[str, Any], place: str) -> spec.Content:
    keys = ("type", "triggers", "tags", "at_least_one", "stop_after_first", "excludes")
    _only(item, keys, place)
    one = _flag(item, "at_least_one", place)
    return spec.TriggeredTags(
        _tags(item, place),
        _strings(item, "triggers", place),
        at_least_one=one,
        stop_after_first=_flag(item, "stop_after_first", place),
        text_first=not one,
        excludes=_strings(item, "excludes", place, ()),
    )


def _token_triggered(item: Mapping[str, Any], place: str) -> spec.Content:
    keys = ("type", "trigger_tokens", "tags", "at_least_one", "stop_after_first", "exclude_tokens")
    _only(item, keys, place)
    if item.get("exclude_tokens"):
        raise UnsupportedFeature(
            "exclude_tokens", place, "free text holds no special tokens; others are only text"
        )
    triggers = []
    for index, name in enumerate(_list(item, "trigger_tokens", place)):
        where = f"{place}/trigger_tokens/{index}"
        triggers.append(_token({"type": "token", "token": name}, where))
    one = _flag(item, "at_least_one", place)
    return spec.TriggeredTags(
        _tags(item, place),
        tuple(triggers),
        at_least_one=one,
        stop_after_first=_flag(item, "stop_after_first", place),
        text_first=not one,
    )


def _separated(item: Mapping[str, Any], place: str) -> spec.Content:
    _only(item, ("type", "tags", "separator", "at_least_one", "stop_after_first"), place)
    return spec.TagsWithSeparator(
        _tags(item, place),
        _str(item, "separator", place),
        _flag(item, "at_least_one", place),
        _flag(item, "stop_after_first", place),
    )


def _dispatch(item: Mapping[str, Any], place: str) -> spec.Content:
    _only(item, ("type", "rules", "loop", "excludes"), place)
    tags = []
    for index, rule in enumerate(_list(item, "rules", place)):
        where = f"{place}/rules/{index}"
        if not (isinstance(rule, list | tuple) and len(rule) == 2 and isinstance(rule[0], str)):
            raise SchemaError("a rule is a pattern and a format", pointer=where)
        tags.append(spec.Tag(rule[0], _format(rule[1], f"{where}/1"), ""))
    return spec.TriggeredTags(
        tuple(tags),
        stop_after_first=not _flag(item, "loop", place, True),
        excludes=_strings(item, "excludes", place, ()),
    )


_READERS: dict[str, Callable[[Mapping[str, Any], str], spec.Content]] = {
    "const_string": _const,
    "json_schema": _json_schema,
    "any_text": _any_text,
    "token": _token,
    "grammar": _grammar,
    "regex": _regex,
    "sequence": lambda item, place: spec.Sequence(_elements(item, place)),
    "or": lambda item, place: spec.Or(_elements(item, place)),
    "optional": _copies(0, 1),
    "plus": _copies(1, None),
    "star": _copies(0, None),
    "repeat": _repeat,
    "tag": _tag,
    "triggered_tags": _triggered,
    "token_triggered_tags": _token_triggered,
    "tags_with_separator": _separated,
    "dispatch": _dispatch,
}
_TOKEN_SETS = "a grammar knows special tokens by name; sets of other tokens are not text"
_REFUSED = {
    "exclude_token": _TOKEN_SETS,
    "any_tokens": _TOKEN_SETS,
    "token_dispatch": _TOKEN_SETS,
    "qwen_xml_parameter": "only JSON is written, not this spelling of arguments",
}


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SchemaError(f"an object is expected, not {type(value).__name__}", pointer=place)
    return value


def _only(item: Mapping[str, Any], keys: tuple[str, ...], place: str) -> None:
    for key in item:
        if key not in keys:
            raise UnsupportedFeature(str(key), place, f"known here: {', '.join(keys)}")


def _str(item: Mapping[str, Any], key: str, place: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise SchemaError(f"{key} is a text", pointer=f"{place}/{key}")
    return value


def _list(item: Mapping[str, Any], key: str, place: str) -> list[Any]:
    value = item.get(key)
    if not isinstance(value, list | tuple):
        raise SchemaError(f"{key} is a list", pointer=f"{place}/{key}")
    return list(value)


def _strings(
    item: Mapping[str, Any], key: str, place: str, default: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    if default is not None and key not in item:
        return default
    values = _list(item, key, place)
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise SchemaError("a text is expected", pointer=f"{place}/{key}/{index}")
    return tuple(values)


def _flag(item: Mapping[str, Any], key: str, place: str, default: bool = False) -> bool:
    value = item.get(key, default)
    if not isinstance(value, bool):
        raise SchemaError(f"{key} is true or false", pointer=f"{place}/{key}")
    return value
