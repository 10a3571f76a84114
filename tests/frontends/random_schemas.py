"""Random schemas of every draft with random texts, biased towards what is nearly valid.

Everything depends on one `random.Random`. `Writer` writes schemas that together use every asserting
keyword of a draft, nested in every combinator; `values_for` follows a schema to find values that it
probably allows, changes them a little, and adds some that have nothing to do with it.
"""

from __future__ import annotations

import copy
import json
import random
from decimal import Decimal
from typing import Any

DRAFTS = (4, 6, 7, 2019, 2020)
URIS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
NAMES = ("a", "b", "c", "aa", "é")
STRINGS = ("", "a", "b", "ab", "aab", "é😀x", "x1", "2020-02-29", "2021-02-29", "1.2.3.4", "::1")
NUMBERS = (0, 1, 2, 3, 5, -1, -3, 10, 0.5, 1.5, -2.5, 4.25, 0.01, 0.07, 2.0, 1e15)
PATTERNS = ("a", "^a", "b$", "^(a|b)*$", "^[a-c]{1,2}$", "x|é", "^$", "^.{2}", "[^a]", "^a+b?$")
FORMATS = ("date", "ipv4", "ipv6")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


class Writer:
    """Writes the schemas of one draft."""

    def __init__(self, rng: random.Random, draft: int) -> None:
        self.rng = rng
        self.draft = draft

    def schema(self) -> dict[str, Any]:
        """A whole document with definitions that its references may name."""
        root = self.sub(4)
        while not isinstance(root, dict):
            root = self.sub(4)
        definitions = "$defs" if self.draft >= 2019 else "definitions"
        x, y = self.sub(2), self.sub(2)
        if self.draft >= 2019 and isinstance(x, dict):
            x = {"$anchor": "here", **x}
        if self.draft == 2020 and isinstance(y, dict):
            y = {"$dynamicAnchor": "there", **y}
        return {"$schema": URIS[self.draft], **root, definitions: {"x": x, "y": y}}

    def sub(self, depth: int) -> Any:
        rng = self.rng
        if rng.random() < 0.08:
            flag = rng.random() < 0.7
            return flag if self.draft > 4 else ({} if flag else {"not": {}})
        if depth <= 0:
            return self.leaf()
        made: dict[str, Any] = {}
        kinds = [self.leaf, lambda: self.array(depth - 1), lambda: self.object(depth - 1)]
        for _ in range(rng.choice((0, 1, 1, 1, 2))):
            made.update(rng.choice(kinds)())
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            made.update(self.combinator(depth - 1))
        if rng.random() < 0.3:
            made["type"] = self.types()
        if rng.random() < 0.06:
            made.update(self.reference())
        return made

    def types(self) -> Any:
        rng = self.rng
        if rng.random() < 0.7:
            return rng.choice(TYPES)
        return rng.sample(TYPES, rng.randint(1, 4))

    def reference(self) -> dict[str, Any]:
        options = [{"$ref": f"#/{'$defs' if self.draft >= 2019 else 'definitions'}/{name}"}
                   for name in "xy"]  # fmt: skip
        if self.draft == 2019:
            options.append({"$recursiveRef": "#"})
        if self.draft == 2020:
            options.append({"$dynamicRef": "#/$defs/x"})
        return self.rng.choice(options)

    def leaf(self) -> dict[str, Any]:
        return self.rng.choice((self.numeric, self.string, self.listed))()

    def numeric(self) -> dict[str, Any]:
        rng, made = self.rng, {}
        if rng.random() < 0.5:
            made["type"] = rng.choice(("integer", "number"))
        if rng.random() < 0.5:
            made["minimum"] = rng.choice((-3, 0, 1, 0.5, 2))
        if rng.random() < 0.5:
            made["maximum"] = rng.choice((0, 1, 4, 4.25, 10))
        for word, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if rng.random() < 0.3:
                if self.draft > 4:
                    made[word] = rng.choice((-3, 0, 1.5, 5))
                elif bound in made:
                    made[word] = rng.random() < 0.7
        if rng.random() < 0.3:
            made["multipleOf"] = rng.choice((1, 2, 3, 0.5, 1.5, 2.5, 0.01))
        return made

    def string(self) -> dict[str, Any]:
        rng, made = self.rng, {}
        if rng.random() < 0.5:
            made["type"] = "string"
        if rng.random() < 0.4:
            made["minLength"] = rng.randint(0, 3)
        if rng.random() < 0.4:
            made["maxLength"] = rng.randint(0, 3)
        if rng.random() < 0.4:
            made["pattern"] = rng.choice(PATTERNS)
        if rng.random() < 0.2:
            made["format"] = rng.choice(FORMATS)
        return made

    def listed(self) -> dict[str, Any]:
        rng = self.rng
        if self.draft > 4 and rng.random() < 0.4:
            return {"const": value_of(rng, 2)}
        return {"enum": [value_of(rng, 2) for _ in range(rng.randint(1, 4))]}

    def array(self, depth: int) -> dict[str, Any]:
        rng, made = self.rng, {}
        if rng.random() < 0.5:
            made["type"] = "array"
        first = "prefixItems" if self.draft == 2020 else "items"
        if rng.random() < 0.4:
            made[first] = [self.sub(depth) for _ in range(rng.randint(1, 3))]
            if rng.random() < 0.5:
                made["items" if self.draft == 2020 else "additionalItems"] = self.sub(depth)
        elif rng.random() < 0.6:
            made["items"] = self.sub(depth)
        if rng.random() < 0.35:
            made["minItems"] = rng.randint(0, 3)
        if rng.random() < 0.35:
            made["maxItems"] = rng.randint(0, 3)
        if self.draft >= 6 and rng.random() < 0.3:
            made["contains"] = self.sub(depth)
            if self.draft >= 2019:
                if rng.random() < 0.4:
                    made["minContains"] = rng.randint(0, 2)
                if rng.random() < 0.4:
                    made["maxContains"] = rng.randint(0, 2)
        if rng.random() < 0.2:
            made["uniqueItems"] = rng.random() < 0.8
            if isinstance(made.get("items", True), bool | dict) and rng.random() < 0.8:
                made["items"] = {"enum": [value_of(rng, 1) for _ in range(rng.randint(1, 4))]}
                made.pop("prefixItems", None)
        if self.draft >= 2019 and rng.random() < 0.2:
            made["unevaluatedItems"] = self.sub(depth)
        return made

    def object(self, depth: int) -> dict[str, Any]:
        rng, made = self.rng, {}
        if rng.random() < 0.5:
            made["type"] = "object"
        if rng.random() < 0.7:
            names = rng.sample(NAMES, rng.randint(0, 3))
            made["properties"] = {name: self.sub(depth) for name in names}
        if rng.random() < 0.35:
            made["required"] = rng.sample(NAMES, rng.randint(self.draft == 4, 2))
        if rng.random() < 0.3:
            made["additionalProperties"] = self.sub(depth)
        if rng.random() < 0.25:
            chosen = rng.sample(PATTERNS, rng.randint(1, 2))
            made["patternProperties"] = {pattern: self.sub(depth) for pattern in chosen}
        if self.draft >= 6 and rng.random() < 0.2:
            made["propertyNames"] = rng.choice(
                (
                    {"maxLength": rng.randint(0, 2)},
                    {"pattern": rng.choice(PATTERNS)},
                    {"enum": rng.sample(NAMES, 2)},
                    self.sub(0),
                )
            )
        if rng.random() < 0.2:
            made["minProperties"] = rng.randint(0, 3)
        if rng.random() < 0.2:
            made["maxProperties"] = rng.randint(0, 3)
        if self.draft >= 2019 and rng.random() < 0.15:
            made["dependentRequired"] = {rng.choice(NAMES): rng.sample(NAMES, rng.randint(0, 2))}
        if self.draft >= 2019 and rng.random() < 0.15:
            made["dependentSchemas"] = {rng.choice(NAMES): self.sub(depth)}
        if self.draft <= 7 and rng.random() < 0.2:
            companions = rng.sample(NAMES, rng.randint(1, 2))
            made["dependencies"] = {rng.choice(NAMES): rng.choice((companions, self.sub(depth)))}
        if self.draft >= 2019 and rng.random() < 0.2:
            made["unevaluatedProperties"] = self.sub(depth)
        return made

    def combinator(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        word = rng.choice(("allOf", "anyOf", "oneOf", "oneOf", "not", "if"))
        if word == "not":
            return {"not": self.sub(depth)}
        if word == "if" and self.draft >= 7:
            made = {"if": self.sub(depth)}
            if rng.random() < 0.8:
                made["then"] = self.sub(depth)
            if rng.random() < 0.6:
                made["else"] = self.sub(depth)
            return made
        word = "anyOf" if word == "if" else word
        return {word: [self.sub(depth) for _ in range(rng.randint(1, 3))]}


def value_of(rng: random.Random, depth: int) -> Any:
    """Any value."""
    kind = rng.randrange(8 if depth > 0 else 5)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind == 2:
        return rng.choice(NUMBERS)
    if kind in (3, 4):
        return rng.choice(STRINGS)
    if kind == 5:
        return [value_of(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return {name: value_of(rng, depth - 1) for name in rng.sample(NAMES, rng.randint(0, 3))}


class Guess:
    """Values that a schema may well allow."""

    def __init__(self, rng: random.Random, root: Any) -> None:
        self.rng = rng
        self.root = root

    def value(self, schema: Any, depth: int) -> Any:
        rng = self.rng
        if not isinstance(schema, dict) or depth <= 0 or rng.random() < 0.04:
            return value_of(rng, 1)
        if "const" in schema:
            return copy.deepcopy(schema["const"])
        if "enum" in schema:
            return copy.deepcopy(rng.choice(schema["enum"]))
        reference = schema.get("$ref", schema.get("$dynamicRef", schema.get("$recursiveRef")))
        if reference is not None and rng.random() < 0.7:
            return self.value(self._target(reference), depth - 1)
        for word in ("allOf", "anyOf", "oneOf"):
            if word in schema and rng.random() < 0.5:
                merged = {k: v for k, v in schema.items() if k != word}
                branch = rng.choice(schema[word])
                if isinstance(branch, dict):
                    return self.value({**merged, **branch}, depth - 1)
        if rng.random() < 0.4 and isinstance(schema.get("then"), dict):
            return self.value({**schema, **schema["then"], "then": True}, depth - 1)
        return self._typed(schema, depth)

    def _target(self, reference: str) -> Any:
        here = self.root
        for segment in reference.lstrip("#").strip("/").split("/"):
            here = here.get(segment, True) if segment and isinstance(here, dict) else here
        return here

    def _typed(self, schema: dict[str, Any], depth: int) -> Any:
        rng = self.rng
        types = schema.get("type")
        if types is None:
            hints = {
                "object": ("properties", "required", "patternProperties", "minProperties"),
                "array": ("items", "prefixItems", "contains", "minItems"),
                "string": ("pattern", "minLength", "maxLength", "format"),
                "number": ("minimum", "maximum", "multipleOf"),
            }
            types = [kind for kind, words in hints.items() if any(w in schema for w in words)]
        kind = rng.choice(types) if isinstance(types, list) and types else types
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "string":
            texts = [t for t in STRINGS if schema.get("minLength", 0) <= len(t)]
            return rng.choice(texts or STRINGS)
        if kind in ("number", "integer"):
            near = [schema.get(w, 0) for w in ("minimum", "maximum", "multipleOf")]
            near += [schema.get("exclusiveMinimum", 0), schema.get("exclusiveMaximum", 0)]
            step = rng.choice((0, 0, 1, -1, 0.5, 0.01))
            base = rng.choice([n for n in near if not isinstance(n, bool)] or [0])
            number = Decimal(repr(base)) + Decimal(repr(step))
            return rng.choice(NUMBERS) if rng.random() < 0.3 else number
        if kind == "boolean":
            return rng.random() < 0.5
        return None if kind == "null" else value_of(rng, 2)

    def _object(self, schema: dict[str, Any], depth: int) -> Any:
        rng, made = self.rng, {}
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            made[name] = self.value(properties.get(name, True), depth - 1)
        for name, sub in properties.items():
            if rng.random() < 0.6:
                made[name] = self.value(sub, depth - 1)
        for sub in schema.get("patternProperties", {}).values():
            if rng.random() < 0.5:
                made[rng.choice(NAMES)] = self.value(sub, depth - 1)
        while len(made) < schema.get("minProperties", 0) and rng.random() < 0.8:
            extra = schema.get("additionalProperties", True)
            made[rng.choice((*NAMES, "x1", "zz"))] = self.value(extra, depth - 1)
        items = list(made.items())
        rng.shuffle(items)
        return dict(items)

    def _array(self, schema: dict[str, Any], depth: int) -> Any:
        rng = self.rng
        items = schema.get("items", True)
        first = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        low = schema.get("minItems", 0)
        size = rng.randint(low, max(low, min(schema.get("maxItems", low + 2), low + 2)))
        made = [self.value(first[i] if i < len(first) else rest, depth - 1) for i in range(size)]
        if "contains" in schema and rng.random() < 0.7:
            made.insert(rng.randint(0, len(made)), self.value(schema["contains"], depth - 1))
        return made


def changed(rng: random.Random, value: Any) -> Any:
    """The value with one place changed a little."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        made = dict(value)
        name = rng.choice(list(made))
        action = rng.randrange(5)
        if action == 0:
            del made[name]
        elif action == 1:
            made[rng.choice((*NAMES, "zz"))] = value_of(rng, 1)
        elif action == 2:
            made = {("b" if key == name else key): item for key, item in made.items()}
        else:
            made[name] = changed(rng, made[name])
        return made
    if isinstance(value, list) and value and rng.random() < 0.85:
        items = list(value)
        place = rng.randrange(len(items))
        action = rng.randrange(5)
        if action == 0:
            del items[place]
        elif action == 1:
            items.insert(place, copy.deepcopy(items[place]))
        elif action == 2:
            items.append(value_of(rng, 1))
        else:
            items[place] = changed(rng, items[place])
        return items
    if isinstance(value, str) and rng.random() < 0.7:
        return rng.choice((value + "a", value[1:], value + "b", "a" + value, value.upper()))
    number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if number and rng.random() < 0.8:
        return Decimal(str(value)) + Decimal(rng.choice(("1", "-1", "0.5", "0.01", "-0.005")))
    return value_of(rng, 2)


def text_of(value: Any, rng: random.Random, colon: str, comma: str, canonical: bool) -> str:
    """The JSON text of a value, numbers without exponents; `canonical`: in one way only."""
    if isinstance(value, dict):
        parts = (
            f"{text_of(name, rng, colon, comma, canonical)}{colon}"
            f"{text_of(item, rng, colon, comma, canonical)}"
            for name, item in value.items()
        )
        return "{" + comma.join(parts) + "}"
    if isinstance(value, list):
        return "[" + comma.join(text_of(v, rng, colon, comma, canonical) for v in value) + "]"
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float | Decimal):
        text = format(Decimal(str(value)), "f")
        if "." in text and (canonical or rng.random() < 0.7):
            text = text.rstrip("0").rstrip(".")
        return "0" if text == "-0" else text
    return json.dumps(value, ensure_ascii=not canonical and rng.random() < 0.3)


def values_for(rng: random.Random, schema: Any, number: int) -> list[Any]:
    """So many values: guesses, guesses with changes, and some at random."""
    guess = Guess(rng, schema)
    found: list[Any] = []
    while len(found) < number:
        value = guess.value(schema, 5)
        found.append(value)
        for _ in range(rng.randint(1, 3)):
            value = changed(rng, value)
            found.append(value)
        if rng.random() < 0.2:
            found.append(value_of(rng, 2))
    return found[:number]
