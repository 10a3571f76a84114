r"""From a Lark grammar to the grammar IR, without a lexer.

Owns `lower_lark`. A text belongs to the grammar if *some* way of cutting it into terminals fits the
rules, which is what lark's Earley parser with `lexer="dynamic_complete"` looks for. So priorities,
`?`, `!`, `_` and aliases, which choose among trees or shape them, change nothing here; priorities
are noted in the report. Ignored terminals may stand before the first terminal and behind every one
(special tokens and `%json` values count as terminals); a terminal may be empty.

Left recursion is rewritten; templates become one rule per set of arguments.

Cost: linear in the grammar and its template instances; see `terminals` for those.
Source of the notation: lark's documentation. Sibling: `export`, the way back.

Example::

    >>> grammar, report = lower_lark('start: "a"~2..3 | start ","\n')
    >>> [(entry.keyword, entry.note) for entry in report]
    [('start', 'left recursion rewritten')]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from structspec import ir
from structspec.errors import BudgetExceeded, SchemaError, UnsupportedFeature
from structspec.frontends.jsonschema import SchemaOptions, lower_schema
from structspec.frontends.lark.extensions import JSON, SPECIAL
from structspec.frontends.lark.load import Loaded, load
from structspec.frontends.lark.terminals import Terminals
from structspec.frontends.rules.finish import finish
from structspec.frontends.rules.names import no_rule
from structspec.frontends.rules.simplify import repeat
from structspec.report import Entry, Report

__all__ = ["lower_lark"]

# Templates that use themselves with ever larger arguments have no end.
_MOST_INSTANCES = 5_000
_IGNORED = "%ignore"

#: What a template parameter stands for: a node, or the name of another template.
_Scope: TypeAlias = Mapping[str, ir.Node | str]


def lower_lark(
    text: str,
    start: str = "start",
    options: SchemaOptions | None = None,
) -> tuple[ir.GrammarIR, Report]:
    """Lower a grammar; the report has one entry per rule and terminal of the file.

    options: for `%json`; `resources` also holds grammars to import from, by path;
        `on_unsupported="widen"` also judges terminals whose assertions look past their ends by
        their own text.

    Raises `SchemaError` for mistakes and `UnsupportedFeature` for what cannot be exact, both with
    line, column and a caret; `BudgetExceeded`; `MissingExtra` without lark.
    """
    options = options or SchemaOptions()
    return _Lowering(load(text, options.resources), options).grammar(start)


class _Lowering:
    def __init__(self, loaded: Loaded, options: SchemaOptions) -> None:
        self.loaded = loaded
        self.options = options
        schemas = {
            name: document
            for name, document in (options.resources or {}).items()
            if not name.endswith(".lark")
        }
        self._schema_options = replace(options, resources=schemas)
        self.terminals = Terminals(loaded, widen=options.on_unsupported == "widen")
        self.rules: dict[str, ir.Node] = {}
        self.entries: list[Entry] = []
        self._place = 0
        self._gap: ir.Node = ir.EPSILON
        self._instances: dict[tuple[str, tuple[ir.Node | str, ...]], str] = {}
        self._pending: list[tuple[str, str, _Scope]] = []  # rule to make, its source, its scope

    def grammar(self, start: str) -> tuple[ir.GrammarIR, Report]:
        loaded = self.loaded
        if start not in loaded.rules or loaded.rules[start][0]:
            plain = [name for name, (parameters, _, _) in loaded.rules.items() if not parameters]
            raise loaded.source.error(0, no_rule(start, plain))
        if loaded.ignore:
            ignored = [self._terminal(name, gap=False) for name in loaded.ignore]
            self.rules[_IGNORED] = repeat(ir.choice(ignored), 0, None)
            self._gap = ir.Rule(_IGNORED, called=True)
        self._ask(start, {})
        while self._pending:
            name, origin, scope = self._pending.pop()
            _, tree, _ = loaded.rules[origin]
            place = loaded.definition(origin)
            self._place = self._place if place is None else place
            if tree is None:
                raise loaded.source.refusal(
                    f"%declare {origin}", self._place, "a declared rule has no texts; define it"
                )
            self.rules[name] = self._node(tree, scope)
        top = start
        if loaded.ignore:
            top = "%start"
            self.rules[top] = ir.sequence((self._gap, ir.Rule(start)))
        places, notes = self._places()
        grammar, entries = finish(self.rules, top, loaded.source, places, notes, start)
        return grammar, Report((*entries, *self.terminals.entries, *self.entries))

    def _places(self) -> tuple[dict[str, int], dict[str, str]]:
        """Where the rules and terminals of the file stand, and what to say about them."""
        places: dict[str, int] = {}
        notes: dict[str, str] = {}
        for name, (_, _, options) in self.loaded.rules.items():
            self._find(name, getattr(options, "priority", None), places, notes)
        for name, (_, priority) in self.loaded.terminals.items():
            self._find(name, priority, places, notes)
        return dict(sorted(places.items(), key=lambda item: item[1])), notes

    def _find(
        self, name: str, priority: int | None, places: dict[str, int], notes: dict[str, str]
    ) -> None:
        place = self.loaded.definition(name)
        if place is None:
            return
        instances = [made for (origin, _), made in self._instances.items() if origin == name]
        if priority:
            notes[name] = "its priority chooses among parses, not among texts"
        if name in self.rules:
            places[name] = place
        elif instances:
            line, _ = self.loaded.source.position(place)
            said = f"{len(instances)} instances of this template"
            self.entries.append(Entry(f"line {line}", name, "exact", said))
        else:
            line, _ = self.loaded.source.position(place)
            self.entries.append(Entry(f"line {line}", name, "exact", "not used as such"))

    # -- rules -------------------------------------------------------------------------------

    def _ask(self, name: str, scope: _Scope, made: str | None = None) -> ir.Rule:
        """A reference to a rule, which will be made if it is not yet."""
        made = made or name
        if made not in self.rules:
            self.rules[made] = ir.NOTHING  # being made
            self._pending.append((made, name, scope))
        return ir.Rule(made)

    def _node(self, tree: Any, scope: _Scope) -> ir.Node:
        match tree.data:
            case "expansions":
                return ir.choice(self._node(child, scope) for child in tree.children)
            case "expansion":
                return ir.sequence(self._node(child, scope) for child in tree.children)
            case "alias":
                return self._node(tree.children[0], scope)
            case "value":
                return self._value(tree.children[0], scope)
            case "maybe":
                return repeat(self._node(tree.children[0], scope), 0, 1)
            case "expr":
                item = self._node(tree.children[0], scope)
                return repeat(item, *self.terminals.bounds(tree))
            case "literal" | "range" | "template_usage":
                return self._value(tree, scope)
        raise self.loaded.source.error(self._place, f"a rule cannot contain this ({tree.data})")

    def _value(self, item: Any, scope: _Scope) -> ir.Node:
        if getattr(item, "data", None) == "template_usage":
            return self._template(item, scope)
        if hasattr(item, "data"):
            return self._literal(item) if item.data in ("literal", "range") else self._node(
                item, scope
            )  # fmt: skip
        name = str(item.name)
        if name in scope:
            bound = scope[name]
            if isinstance(bound, str):
                raise self.loaded.source.error(
                    self._place, f"the template '{bound}' is used without its arguments"
                )
            return bound
        if item.is_term:
            return self._terminal(name)
        if self.loaded.rules[name][0]:
            raise self.loaded.source.error(
                self._place, f"the template '{name}' is used without its arguments"
            )
        return self._ask(name, {})

    def _template(self, tree: Any, scope: _Scope) -> ir.Node:
        name = str(tree.children[0].name)
        bound = scope.get(name, name)
        if not isinstance(bound, str):
            raise self.loaded.source.error(self._place, f"'{name}' is no template here")
        parameters = self.loaded.rules[bound][0]
        arguments = tuple(self._argument(one, scope) for one in tree.children[1:])
        if len(arguments) != len(parameters):
            raise self.loaded.source.error(
                self._place,
                f"the template '{bound}' takes {len(parameters)} arguments, not {len(arguments)}",
            )
        made = self._instances.get((bound, arguments))
        if made is None:
            if len(self._instances) >= _MOST_INSTANCES:
                raise BudgetExceeded("instances of Lark templates", _MOST_INSTANCES)
            made = f"{bound}{{{len(self._instances) + 1}}}"
            self._instances[bound, arguments] = made
        return self._ask(bound, dict(zip(parameters, arguments, strict=True)), made)

    def _argument(self, tree: Any, scope: _Scope) -> ir.Node | str:
        item = tree.children[0] if tree.data == "value" else tree
        name = getattr(item, "name", None)
        if name is not None and not item.is_term:
            if isinstance(scope.get(name), str):
                return scope[name]
            if name not in scope and self.loaded.rules[name][0]:
                return str(name)
        return self._value(item, scope)

    # -- terminals ---------------------------------------------------------------------------

    def _terminal(self, name: str, *, gap: bool = True) -> ir.Node:
        if name not in self.rules:
            self.rules[name] = self.terminals.named(name, self._place)
        return ir.sequence((ir.Rule(name), self._gap)) if gap else ir.Rule(name)

    def _literal(self, tree: Any) -> ir.Node:
        token = tree.children[0]
        text = str(token)
        kind, number = text[1:3], text[3:-1]
        if kind == SPECIAL:
            node: ir.Node = ir.Special(self.loaded.stripped.specials[int(number)])
        elif kind == JSON:
            node = self._schema(int(number))
        else:
            place = self.loaded.place(token)
            node = self.terminals.literal(tree, self._place if place is None else place)
            if token.type == "REGEXP" and not isinstance(node, ir.Bytes | ir.Chars):
                self.rules.setdefault(text, node)
                node = ir.Rule(text)
        return ir.sequence((node, self._gap))

    def _schema(self, number: int) -> ir.Node:
        """The values of an inline schema; its rules get names of their own."""
        stripped = self.loaded.stripped
        prefix = f"%json {number + 1}: "
        place = stripped.schema_places[number]
        start = self._place if place is None else place
        source = self.loaded.source
        line, column = source.position(start)
        try:
            grammar, report = lower_schema(stripped.schemas[number], self._schema_options)
        except SchemaError as error:
            made = source.error(start, f"in this schema: {error}")
            made.pointer = error.pointer
            raise made from error
        except UnsupportedFeature as error:
            raise UnsupportedFeature(
                error.keyword,
                error.pointer,
                f"{error.reason}\n{source.caret(start)}",
                line=line,
                column=column,
            ) from error
        if prefix + grammar.start not in self.rules:
            known: dict[int, ir.Node] = {}
            for name, node in grammar.rules.items():
                self.rules[prefix + name] = _prefixed(node, prefix, known)
            self.entries += [
                Entry(f"line {line} {entry.pointer}", entry.keyword, entry.status, entry.note)
                for entry in report
            ]
        return ir.Rule(prefix + grammar.start)


def _prefixed(node: ir.Node, prefix: str, known: dict[int, ir.Node]) -> ir.Node:
    """The node with a prefix before the names of its rules; shared parts stay shared."""
    found = known.get(id(node))
    if found is None:
        found = known[id(node)] = _prefix(node, prefix, known)
    return found


def _prefix(node: ir.Node, prefix: str, known: dict[int, ir.Node]) -> ir.Node:
    def inner(part: ir.Node) -> ir.Node:
        return _prefixed(part, prefix, known)

    match node:
        case ir.Rule(name, called):
            return ir.Rule(prefix + name, called)
        case ir.Sequence(items):
            return ir.Sequence(tuple(map(inner, items)))
        case ir.Choice(items):
            return ir.Choice(tuple(map(inner, items)))
        case ir.Repeat(item, minimum, maximum):
            return ir.Repeat(inner(item), minimum, maximum)
        case ir.Variant(item):
            return ir.Variant(inner(item))
        case ir.Automaton(edges, accepting, longest):
            rows = tuple(tuple((inner(label), target) for label, target in row) for row in edges)
            return ir.Automaton(rows, accepting, longest)
        case ir.Members(members, separator, order, minimum, maximum):
            return ir.Members(
                tuple(
                    ir.Member(inner(m.key), inner(m.value), m.required, m.repeatable)
                    for m in members
                ),
                inner(separator),
                order,
                minimum,
                maximum,
            )
    return node
