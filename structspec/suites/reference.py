"""A validator of values with exact decimals: what a text has to be judged as.

The `jsonschema` package with its loose ends tied: numbers are ints and `Decimal`s, so nothing is
rounded; `multipleOf` divides fractions; an integral decimal is an integer (except in draft 4);
equality is JSON's (1 is 1.0, true is not 1, keys in any order). It owns no opinion about JSON text:
`read` is the plain parser.

Cost: whatever `jsonschema` takes; meant for tests, not for serving.

Example::

    >>> from structspec.suites.reference import read, reference
    >>> judge = reference({"multipleOf": 0.01}, 2020)
    >>> judge(read("0.07")), judge(read("0.075"))
    (True, False)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
from jsonschema.validators import extend

from structspec.frontends.jsonschema.keywords import keyword_of, subschemas

__all__ = ["read", "reference"]

_BYTE = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]?[0-9])"
_DOTTED_QUAD = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}")

_CLASSES: dict[int, Any] = {
    4: jsonschema.Draft4Validator,
    6: jsonschema.Draft6Validator,
    7: jsonschema.Draft7Validator,
    2019: jsonschema.Draft201909Validator,
    2020: jsonschema.Draft202012Validator,
}


def read(text: str) -> Any:
    """Parse JSON; numbers with a point or an exponent become `Decimal`."""
    return json.loads(text, parse_float=Decimal)


def reference(
    schema: Any, draft: int = 2020, formats: tuple[str, ...] = ()
) -> Callable[[Any], bool]:
    """The verdict on values; `formats` are asserted as `jsonschema` checks them.

    The schema may hold floats; they mean the decimals that they print as.
    """
    schema = read(json.dumps(schema))
    kind = _CLASSES[draft]
    keywords = {"multipleOf": _multiple, "enum": _enum, "const": _const, "uniqueItems": _unique}
    if draft == 2019:
        schema = _mended(schema, "$recursiveAnchor" not in json.dumps(schema, default=str))
        # The one of 2019 overlooks what `additionalProperties` has evaluated.
        younger = jsonschema.Draft202012Validator.VALIDATORS
        keywords["unevaluatedProperties"] = younger["unevaluatedProperties"]
    strict = extend(
        kind,
        keywords,
        type_checker=kind.TYPE_CHECKER.redefine("integer", _draft4 if draft == 4 else _integer),
    )
    checker = jsonschema.FormatChecker(formats) if formats else None
    if checker is not None and "ipv4" in formats:
        checker.checks("ipv4")(_dotted_quad)
    validator = strict(schema, format_checker=checker)

    def judge(value: Any) -> bool:
        try:
            return bool(validator.is_valid(value))
        except BaseException as error:
            # The sets of `rpds` answer a RecursionError inside a comparison with a panic.
            if type(error).__name__ != "PanicException" or "RecursionError" not in str(error):
                raise
            raise RecursionError("a reference leads back to itself without end") from error

    return judge


def _mended(schema: Any, plain: bool) -> Any:
    """The same schema of 2019-09 without what `jsonschema` fails on beside ``unevaluated…``.

    That is true and false in ``items``, ``contains`` (which evaluates no items before 2020-12) and,
    if the references are `plain` because there are no recursive anchors, ``$recursiveRef``.
    """
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for name, value in schema.items():
        keyword = keyword_of(name, 2019)
        if keyword is None:
            continue
        for path, sub in subschemas(keyword, value):
            fixed = _mended(sub, plain)
            if not path:
                made[name] = ({} if fixed else {"not": {}}) if isinstance(fixed, bool) else fixed
            elif isinstance(value, dict):
                made[name] = {**made[name], path[0]: fixed}
            else:
                made[name] = [*made[name][: int(path[0])], fixed, *made[name][int(path[0]) + 1 :]]
    if "contains" in made:  # where nobody looks for evaluated items
        words = ("contains", "minContains", "maxContains")
        counted = {word: made.pop(word) for word in words if word in made}
        made["allOf"] = [*made.get("allOf", ()), {"not": {"not": counted}}]
    if plain and "$recursiveRef" in made:
        made["allOf"] = [*made.get("allOf", ()), {"$ref": made.pop("$recursiveRef")}]
    return made


def _dotted_quad(value: Any) -> bool:
    """RFC 2673, section 3.2: leading zeros are allowed, which Python's `ipaddress` refuses."""
    return not isinstance(value, str) or bool(_DOTTED_QUAD.fullmatch(value))


def _integer(checker: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return _draft4(checker, value)


def _draft4(checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _multiple(validator: Any, step: Any, value: Any, schema: Any) -> Iterator[Any]:
    if _number(value) and (Fraction(value) / Fraction(step)).denominator != 1:
        yield jsonschema.ValidationError(f"{value} is not a multiple of {step}")


def _enum(validator: Any, listed: Any, value: Any, schema: Any) -> Iterator[Any]:
    if _identity(value) not in {_identity(each) for each in listed}:
        yield jsonschema.ValidationError(f"{value!r} is not one of {listed!r}")


def _const(validator: Any, only: Any, value: Any, schema: Any) -> Iterator[Any]:
    if _identity(value) != _identity(only):
        yield jsonschema.ValidationError(f"{value!r} is not {only!r}")


def _unique(validator: Any, asked: Any, value: Any, schema: Any) -> Iterator[Any]:
    if asked and isinstance(value, list) and len({_identity(v) for v in value}) < len(value):
        yield jsonschema.ValidationError(f"{value!r} repeats an item")


def _identity(value: Any) -> Hashable:
    """A key that two values share if and only if they are equal in JSON."""
    if isinstance(value, dict):
        return "object", frozenset((name, _identity(item)) for name, item in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_identity, value))
    return ("boolean", value) if isinstance(value, bool) else value
