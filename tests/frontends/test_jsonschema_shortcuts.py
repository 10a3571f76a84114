"""Short cuts of the front end give the very grammars that the long way gives.

Each short cut is switched off by putting what it stands for in its place; a grammar is compared as
`ir_codec` writes it, rule by rule, together with the units of work that were counted.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from referencing.exceptions import Unresolvable

from structspec import ir
from structspec.errors import StructspecError
from structspec.frontends import jsonschema
from structspec.frontends.jsonschema import SchemaOptions, assertions, lower_schema, normal, text
from structspec.frontends.jsonschema.budget import Work
from structspec.frontends.jsonschema.document import Document, _look_up
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal
from structspec.frontends.jsonschema.intervals import LENGTHS
from structspec.frontends.jsonschema.lower import Lowering
from structspec.frontends.jsonschema.members import MemberLists
from structspec.frontends.jsonschema.normal import Normaliser
from structspec.frontends.jsonschema.occurrences import enter
from structspec.frontends.jsonschema.places import Atlas, Place
from structspec.frontends.jsonschema.pointers import Pointer
from structspec.frontends.jsonschema.spelling import Spelling
from structspec.frontends.jsonschema.strings import StringShape
from structspec.ir_codec import encode
from structspec.limits import Limits

_HERE = Path(__file__).parent
_QUOTE = ir.Bytes(b'"')

_spec = importlib.util.spec_from_file_location("random_schemas", _HERE / "random_schemas.py")
assert _spec is not None and _spec.loader is not None
random_schemas = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(random_schemas)

_OPTIONS = (
    SchemaOptions(tell_apart=True),
    SchemaOptions(key_order="any"),
    SchemaOptions(spelling="canonical", whitespace="compact"),
    SchemaOptions(whitespace="conventional", on_unsupported="widen", tell_apart=True),
)

_WRITTEN: list[Any] = [
    {"type": kind, word: value}
    for kind in ("string", "integer", "number", "array", "object", "boolean", "null")
    for word, value in (
        ("title", "t"), ("enum", [1, "a", None, [], {}, True]), ("const", "a"), ("minimum", 1),
        ("maxLength", 2), ("minItems", 1), ("required", ["a"]), ("$comment", "c"),
    )
] + [
    {"properties": {"a": {"$ref": "#/$defs/x~1y"}, "b": {"$ref": "#/$defs/l/anyOf/1"}},
     "$defs": {"x/y": {"type": "string"}, "l": {"anyOf": [{}, {"minimum": 0.5}]}}},
    {"$id": "http://h/r.json", "properties": {"a": {"$ref": "#/$defs/x"}},
     "$defs": {"x": {"items": {"$ref": "#"}}}},
    {"$id": "http://h/r.json#", "properties": {"a": {"$ref": "#/$defs/x"}},
     "$defs": {"x": {"items": {"$ref": "#/$defs/x"}}}},
    {"$id": "http://h/r.json", "$ref": "#/$defs/x/$defs/y",
     "$defs": {"x": {"$id": "s.json", "$defs": {"y": {"$ref": "#/$defs/z"}, "z": {"type": "null"}}},
               "z": {"type": "boolean"}}},
    {"$ref": "#/$defs/none", "$defs": {}},
    {"$ref": "#/enum/0", "enum": ["a"]},
    {"$ref": "#/enum/0/0", "enum": ["a"]},
    {"$ref": "#/enum/1/0", "enum": ["a", 3]},
    {"$ref": "#/enum/-1", "enum": [{}]},
    {"$ref": "#/$defs/%7Ea%2fb", "$defs": {"~a": {"b": {"type": "null"}}}},
    {"$ref": "#/$defs//0", "$defs": {"": [{"type": "null"}]}},
    {"$ref": "#/"}, {"$ref": "#a", "$defs": {"a": {}}}, {"$ref": ""}, {"$ref": "#/\u200b"},
    {"items": {"$ref": "#"}, "minItems": 1}, {"items": {"$ref": "#"}, "enum": [[], [[]]]},
    {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}, "title": "a"}}, "$ref": "#/$defs/a",
     "properties": {"a": {"$ref": "#/$defs/a", "const": {"$ref": "#/x"}}}},
    {"$ref": "#/$defs/x", "$defs": {"x": [1]}},
    {"properties": {"id": {"type": "string"}, "a": {"$ref": "#/properties/id"}}},
    {"items": {"enum": ["alpha", "alp", "beta", "", "al", "b", "é", "éa", "\ud800", "\x01", '"']}},
    {"enum": [f"{n:03d}" * 3 for n in range(300)]},
    {"enum": ["a" * n for n in range(40)]},
    {"items": {"enum": ["x" * 70 + c for c in "abcdefgh"]}, "const": ["x" * 70 + "a"]},
    {"properties": {f"name{n}": {"title": "w" * 60} for n in range(90)}, "required": ["name3"]},
]  # fmt: skip


class _Never(frozenset[str]):
    """Shares something with every schema."""

    def isdisjoint(self, other: object) -> bool:
        return False


def _form(self: Normaliser, goal: Goal) -> Any:
    known = self._goals.get(goal)
    if known is None:
        known = self._goals[goal] = self._union(goal)
    return known


def _goal(self: Atlas, schema: Any, parent: Place, *path: str) -> Goal:
    if isinstance(schema, bool):
        return TRUE if schema else FALSE
    pointer = Pointer(parent.path, path)
    resolver, draft = enter(schema, parent.resolver, parent.draft, pointer)
    scope = parent.scope
    if resolver is not parent.resolver:
        scope = self._entered(scope, resolver, pointer)
    return self._goal(schema, resolver, draft, pointer, scope)


def _resolved(self: Document, resolver: Any, reference: str) -> Any:
    try:
        found = _look_up(resolver, reference)
    except Unresolvable as error:
        raise LookupError from error
    return found.contents, found.resolver


def _among(values: tuple[str, ...], spelling: Spelling, rules: dict[str, ir.Node]) -> ir.Node:
    """A trie, character by character."""
    trie: dict[str, Any] = {}
    for value in values:
        node = trie
        for character in value:
            node = node.setdefault(character, {})
        node[""] = None
    queue: list[tuple[dict[str, Any], int]] = [(trie, 0)]
    stretches: list[list[tuple[str, int]]] = []
    for branching, _ in queue:
        found: list[tuple[str, int]] = []
        for first, following in branching.items():
            if following is None:
                continue
            stretch = [first]
            while len(following) == 1 and "" not in following:
                (character, following), *_ = following.items()
                stretch.append(character)
            found.append(("".join(stretch), len(queue)))
            queue.append((following, queue[len(stretches)][1] + 1))
        stretches.append(found)
    prefix = f"among-{len(rules)}"
    nodes: list[ir.Node] = [ir.NOTHING] * len(queue)
    for index in range(len(queue) - 1, -1, -1):
        branching, level = queue[index]
        options = [
            _sequence((*spelling.characters(stretch), nodes[target]))
            for stretch, target in stretches[index]
        ]
        if "" in branching:
            options.insert(0, ir.EPSILON)
        nodes[index] = _choice(options)
        if level and level % 8 == 0:
            rules[f"{prefix}.{index}"] = nodes[index]
            nodes[index] = ir.Rule(f"{prefix}.{index}")
    return nodes[0]


def _sequence(items: Any) -> ir.Node:
    flat: list[ir.Node] = []
    for item in items:
        for part in item.items if isinstance(item, ir.Sequence) else (item,):
            if isinstance(part, ir.Choice) and not part.items:
                return ir.NOTHING
            if isinstance(part, ir.Bytes) and flat and isinstance(flat[-1], ir.Bytes):
                flat[-1] = ir.Bytes(flat[-1].value + part.value)
            elif not (isinstance(part, ir.Bytes) and not part.value):
                flat.append(part)
    return flat[0] if len(flat) == 1 else ir.Sequence(tuple(flat))


def _choice(items: Any) -> ir.Node:
    flat: dict[ir.Node, None] = {}
    for item in items:
        for part in item.items if isinstance(item, ir.Choice) else (item,):
            flat.setdefault(part)
    return next(iter(flat)) if len(flat) == 1 else ir.Choice(tuple(flat))


def _names(self: MemberLists, goal: Goal) -> tuple[StringShape, ...]:
    # An equal set of all strings, which no short cut knows.
    return (StringShape(),) if goal == TRUE else _NAMES(self, goal)


_NAMES = MemberLists._names


def _after_key(self: MemberLists, node: ir.Node) -> ir.Node:
    writer = self.writer
    return _sequence((writer.gap, ir.Bytes(b":"), writer.wide, node, writer.gap))


def _bracketed(self: Lowering, pair: tuple[ir.Node, ir.Node], content: ir.Node) -> ir.Node:
    if content == ir.NOTHING:
        return ir.NOTHING
    return _sequence((pair[0], self.gap, content, pair[1]))


def _without_short_cuts(patch: pytest.MonkeyPatch) -> None:
    bare = {kind: (form, _Never()) for kind, (form, _) in assertions._BARE.items()}
    patch.setattr(assertions, "_BARE", bare)
    patch.setattr(assertions, "_between", assertions._between.__wrapped__)
    patch.setattr(normal, "_LOOKING_THROUGH", _Never())
    patch.setattr(Normaliser, "form", _form)
    patch.setattr(Atlas, "goal", _goal)
    loading = "structspec.frontends.jsonschema.load"  # a function has the name in the package
    patch.setattr(sys.modules[loading], "_self_contained", lambda *_: False)
    patch.setattr(Document, "_resolved", _resolved)
    patch.setattr(MemberLists, "_names", _names)
    patch.setattr(MemberLists, "_after_key", _after_key)
    patch.setattr(Lowering, "_bracketed", _bracketed)
    patch.setattr(text, "_among", _among)
    patch.setattr(ir, "sequence", _sequence)
    patch.setattr(ir, "choice", _choice)


def _made(schema: Any, options: SchemaOptions) -> Any:
    """The grammar, the report and the units of work; or what the schema is refused with."""
    limits = Limits(time=60)
    work = Work(limits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonschema, "Work", lambda *_: work)
        try:
            grammar, report = lower_schema(copy.deepcopy(schema), options, limits)
        except StructspecError as error:
            return type(error).__name__, str(error), work.spent
    return encode(grammar), str(report), work.spent


def _compare(schema: Any, options: SchemaOptions) -> None:
    _made(schema, options)  # what is kept for the whole process is made first
    short = _made(schema, options)
    with pytest.MonkeyPatch.context() as patch:
        _without_short_cuts(patch)
        long = _made(schema, options)
    assert short == long, json.dumps(schema)[:2000]


def _corpus() -> Iterator[Any]:
    lines = (_HERE.parent / "corpus" / "json_schema.jsonl").read_text("utf-8").splitlines()
    yield from (json.loads(line)["schema"] for line in lines)


@pytest.mark.parametrize("options", _OPTIONS, ids=range(len(_OPTIONS)))
@pytest.mark.parametrize("draft", sorted(random_schemas.DRAFTS))
def test_random_schemas_have_the_same_grammars(draft: int, options: SchemaOptions) -> None:
    rng = random.Random(draft)
    for _ in range(15):
        _compare(random_schemas.Writer(rng, draft).schema(), options)


@pytest.mark.parametrize("options", _OPTIONS, ids=range(len(_OPTIONS)))
def test_written_schemas_have_the_same_grammars(options: SchemaOptions) -> None:
    for schema in _WRITTEN:
        for draft in (4, 7, 2020):
            _compare({"$schema": random_schemas.URIS[draft], **schema}, options)


@pytest.mark.parametrize("options", _OPTIONS[:2], ids=range(2))
def test_reported_schemas_have_the_same_grammars(options: SchemaOptions) -> None:
    for schema in _corpus():
        _compare(schema, options)


@pytest.mark.parametrize("spelling", ["any", "canonical"])
def test_constant_nodes(spelling: Any) -> None:
    rules: dict[str, ir.Node] = {}
    character = Spelling(spelling, rules).character()
    content = text._free(character, LENGTHS, 0)
    assert text._FREE[spelling == "any"] == _sequence((_QUOTE, content, _QUOTE))


_PARTS = st.recursive(
    st.one_of(
        st.sampled_from([ir.EPSILON, ir.NOTHING, ir.Rule("a"), ir.Chars(((48, 57),))]),
        st.binary(max_size=2).map(ir.Bytes),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple).map(ir.Sequence),
        st.lists(inner, max_size=3).map(tuple).map(ir.Choice),
        inner.map(ir.Variant),
    ),
    max_leaves=6,
)


@given(st.lists(_PARTS, max_size=4))
def test_sequences_and_choices(parts: list[ir.Node]) -> None:
    assert ir.sequence(parts) == _sequence(parts)
    assert ir.choice(iter(parts)) == _choice(parts)


@given(_PARTS, _PARTS)
def test_kept_hashes_follow_equality(left: ir.Node, right: ir.Node) -> None:
    written = pickle.dumps(left)
    again = pickle.loads(written)
    assert hash(left) == hash(left) == hash(again)
    # The hash of a text is another one in the next process.
    assert len(pickle.dumps(copy.copy(left))) == len(written)
    assert again == left
    assert (left == right) <= (hash(left) == hash(right))
