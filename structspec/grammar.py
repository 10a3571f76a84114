"""Compiling schemas, types and grammars: `structspec.compile` and the `Grammar` it returns.

>>> import structspec
>>> grammar = structspec.compile({"type": "integer", "minimum": 3})
>>> grammar.accepts("12"), grammar.accepts("2")
(True, False)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from structspec import ir
from structspec.automata.automaton import DEAD, Automaton, byte_costs
from structspec.automata.distinct import Distinct, tells_apart
from structspec.automata.network import build_network
from structspec.automata.tables import Network
from structspec.errors import SchemaError, SerializationError
from structspec.frontends.jsonschema import SchemaOptions, lower_schema
from structspec.frontends.regex import Dialect, lower_pattern
from structspec.frontends.types import TypeSpec, describe
from structspec.ir_codec import decode, encode
from structspec.limits import Limits, Stopwatch
from structspec.locks import lock
from structspec.machine_code import ready
from structspec.masks.constraint import Constraint
from structspec.masks.distinct import DistinctConstraint
from structspec.masks.serial import pack, unpack
from structspec.report import Report
from structspec.vocab import Vocabulary

Syntax = Literal["json_schema", "regex", "lark", "gbnf", "structural_tag"]
_SYNTAXES = ("json_schema", "regex", "lark", "gbnf", "structural_tag")
#: The start rule of grammars that name none.
_STARTS = {"lark": "start", "gbnf": "root"}
_CHOICES = {
    "key_order": ("declared", "any"),
    "whitespace": ("flexible", "compact", "conventional"),
    "spelling": ("any", "canonical"),
    "unknown_formats": ("annotate", "refuse"),
    "on_unsupported": ("refuse", "widen"),
}


@dataclass(frozen=True)
class _Source:
    """What a grammar was compiled from, for messages and for parsing finished values."""

    spec: TypeSpec | None
    syntax: str


class Grammar:
    """A compiled grammar: immutable, shareable between threads, independent of vocabularies."""

    def __init__(
        self,
        network: Network,
        report: Report,
        limits: Limits,
        source: _Source,
        rules: ir.GrammarIR | None = None,
    ) -> None:
        self.network = network
        self._rules = rules
        self.report = report
        self.limits = limits
        self._source = source
        self._lock = lock()
        self._automaton: Automaton | None = None
        self._bound: dict[tuple[str, bool], Constraint] = {}

    @property
    def syntax(self) -> str:
        """The syntax it was written in."""
        return self._source.syntax

    @property
    def spec(self) -> TypeSpec | None:
        """The described type or schema, if it came from one; its `parse` makes values."""
        return self._source.spec

    @property
    def grammar_ir(self) -> ir.GrammarIR:
        """The rules that the network was built from.

        Raises `SerializationError` for a grammar from bytes that were saved without them.
        """
        if self._rules is None:
            raise SerializationError(
                "this grammar was loaded from bytes that do not hold its rules, which writing it "
                "out needs; save it with to_bytes(rules=True), or compile the source again"
            )
        return self._rules

    def to_gbnf(self) -> str:
        """The grammar in the notation of llama.cpp, start rule `root`.

        Raises `Unsatisfiable` for an empty language, `BudgetExceeded` where members in any order
        would take too many rules, and `UnsupportedFeature` for special tokens whose names the
        notation cannot write.
        """
        from structspec.frontends.gbnf import to_gbnf

        return to_gbnf(self.grammar_ir)

    def to_lark(self) -> str:
        """The grammar in the notation of Lark, start rule `start`; errors as for `to_gbnf`."""
        from structspec.frontends.lark import to_lark

        return to_lark(self.grammar_ir)

    @property
    def automaton(self) -> Automaton:
        """The automaton over plain bytes (every byte can be written)."""
        with self._lock:
            if self._automaton is None:
                self._automaton = Automaton(self.network, byte_costs(self.network), self.limits)
            return self._automaton

    @property
    def is_empty(self) -> bool:
        """Whether no text at all belongs to the language."""
        return self.automaton.start == DEAD

    def accepts(self, text: str | bytes) -> bool:
        """Whether the whole text belongs to the language."""
        if not isinstance(text, str | bytes | bytearray | memoryview):
            raise TypeError(f"accepts() takes str or bytes, not {type(text).__name__}")
        return self.accepts_parts((text,))

    def accepts_parts(self, parts: Sequence[str | bytes | ir.Special]) -> bool:
        """Whether the parts one after another belong to the language.

        Text never matches a special token, whatever it looks like; an `ir.Special` matches only
        the special token of that name.
        """
        automaton = self.automaton
        state = automaton.start
        if tells_apart(self.network):
            return self._accepts_apart(parts)
        for part in parts:
            if state == DEAD:
                return False
            if isinstance(part, ir.Special):
                state = automaton.advance_special(state, part.name)
            else:
                text = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
                state = automaton.advance(state, bytes(text))
        return state != DEAD and automaton.accepting(state)

    def _accepts_apart(self, parts: Sequence[str | bytes | ir.Special]) -> bool:
        """The same where the items of some arrays have to differ; no special tokens occur there."""
        automaton = self.automaton
        text = b""
        for part in parts:
            if isinstance(part, ir.Special):
                return False
            text += part.encode("utf-8", "surrogatepass") if isinstance(part, str) else bytes(part)
        with automaton.lock:
            state, _ = Distinct(automaton).run(automaton.start, None, text)
            return state != DEAD and automaton.accepting(state)

    def bind(
        self, vocab: Vocabulary, *, assume_all_bytes: bool = False, saved: bytes | None = None
    ) -> Constraint:
        """The constraint for a vocabulary (kept, so binding the same one again is free).

        assume_all_bytes: judge tokens by whether their *text* can be continued by some bytes,
            instead of whether this vocabulary can write a continuation. For looking at single
            masks of incomplete vocabularies; decoding with it may run into a dead end, and
            distances count bytes.
        saved: what `Constraint.to_bytes` wrote for this grammar and vocabulary; spares the work of
            binding. `SerializationError` if it is damaged or belongs to others.

        Raises `Unsatisfiable` if the language is empty or this vocabulary cannot write it.
        """
        if not isinstance(vocab, Vocabulary):
            raise TypeError(
                f"bind() takes a structspec.Vocabulary, not {type(vocab).__name__}; make one with "
                "Vocabulary.from_tokenizer(tokenizer), or take model.vocab of a loaded model"
            )
        key = (vocab.fingerprint, assume_all_bytes)
        with self._lock:
            constraint = self._bound.get(key)
        if constraint is None:
            kind = DistinctConstraint if tells_apart(self.network) else Constraint
            constraint = kind(
                self.network,
                vocab,
                self.limits,
                assume_all_bytes=assume_all_bytes,
                saved=saved,
            )
            with self._lock:
                constraint = self._bound.setdefault(key, constraint)
        return constraint

    def to_bytes(self, *, rules: bool = False) -> bytes:
        """The compiled grammar for `from_bytes`: arrays and JSON, versioned.

        The schema comes along; a Python type does not, so values are plain JSON after loading.

        rules: keep the rules as well, which `to_gbnf` and `to_lark` need after loading, and nothing
            else does.
        """
        schema = None if self.spec is None else self.spec.schema
        limits = {"states": self.limits.states, "memory": self.limits.memory}
        extra: dict[str, Any] = {"syntax": self.syntax, "schema": schema, "limits": limits}
        if rules:
            extra["rules"] = encode(self.grammar_ir)
        return pack(self.network, self.report, extra)

    @classmethod
    def from_bytes(cls, data: bytes) -> Grammar:
        """The grammar that `to_bytes` wrote; raises `SerializationError` for other bytes."""
        network, report, extra = unpack(data)
        spec = None if extra["schema"] is None else describe(extra["schema"])
        limits = Limits(**extra["limits"])
        rules = None if "rules" not in extra else decode(extra["rules"])
        return cls(network, report, limits, _Source(spec, extra["syntax"]), rules)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without what its automaton has learnt; an output type by its name."""
        rules = None if self._rules is None else encode(self._rules)
        return _unpickled, (self.network, self.report, self.limits, self.spec, self.syntax, rules)

    def __copy__(self) -> Grammar:
        return self  # immutable

    def __deepcopy__(self, memo: object) -> Grammar:
        return self

    def __repr__(self) -> str:
        return (
            f"<Grammar {self.syntax}: {self.network.n_states} states, "
            f"{self.network.n_rules} rules, {self.network.n_classes} byte classes>"
        )


def _unpickled(
    network: Network,
    report: Report,
    limits: Limits,
    spec: TypeSpec | None,
    syntax: str,
    rules: Any,
) -> Grammar:
    decoded = None if rules is None else decode(rules)
    return Grammar(network, report, limits, _Source(spec, syntax), decoded)


def compile(  # the surface's name: structspec.compile
    source: Any,
    *,
    syntax: Syntax = "json_schema",
    key_order: Literal["declared", "any"] = "declared",
    whitespace: Literal["flexible", "compact", "conventional"] = "flexible",
    spelling: Literal["any", "canonical"] = "any",
    unknown_formats: Literal["annotate", "refuse"] = "annotate",
    limits: Limits | None = None,
    start: str | None = None,
    dialect: Literal["ecma", "python"] | None = None,
    on_unsupported: Literal["refuse", "widen"] = "refuse",
    assert_formats: bool = True,
    default_dialect: str | None = None,
    resources: Mapping[str, Any] | None = None,
) -> Grammar:
    """Compile a JSON Schema, a Python type, a regular expression or a grammar to a `Grammar`.

    source: for `syntax="json_schema"` a schema (dict, bool or JSON text) or a type (pydantic
        model, dataclass, TypedDict, Enum, Literal, union, list, …); for `"regex"` the pattern,
        which must match the whole text; for `"lark"` and `"gbnf"` the text of the grammar;
        for `"structural_tag"` the classes of `structspec.frontends.tags` or one of the two JSON
        forms (dict or text).
    key_order: object members in declared order, extra ones last; or in any order.
    whitespace: "flexible" (up to 32 blanks in each gap), "conventional" (one space after `,`
        and `:`), "compact" (none).
    spelling: every legal JSON spelling of a value, or the canonical one only.
    unknown_formats, assert_formats: what `format` means; see the docs.
    limits: budgets; default `Limits()`.
    start: the start rule of a grammar, default "start" (Lark) or "root" (GBNF); must be None for
        schemas and regular expressions.
    dialect: of regular expressions, default "ecma".
    on_unsupported: "widen" drops what cannot be compiled exactly; the report says where.
    default_dialect: URI of the draft for schemas without `$schema`; default 2020-12.
    resources: {uri: schema} for remote references, {path: text} for Lark grammars to import from
        ("words.lark" for `%import .words.X`); nothing is ever fetched.

    The options for JSON apply to schemas inside Lark grammars (`%json`) too.

    Raises `SchemaError`, `UnsupportedFeature`, `BudgetExceeded`.
    """
    for name, value in (
        ("key_order", key_order),
        ("whitespace", whitespace),
        ("spelling", spelling),
        ("unknown_formats", unknown_formats),
        ("on_unsupported", on_unsupported),
    ):
        if value not in _CHOICES[name]:
            raise SchemaError(f"{name}={value!r} is not one of {', '.join(_CHOICES[name])}")
    if syntax not in _SYNTAXES:
        raise SchemaError(f"syntax={syntax!r} is not one of {', '.join(_SYNTAXES)}")
    if start is not None and not isinstance(start, str):
        raise SchemaError(f"start={start!r} is not the name of a rule (a str)")
    if not isinstance(assert_formats, bool):
        raise SchemaError(f"assert_formats={assert_formats!r} is not True or False")
    if start is not None and syntax not in _STARTS:
        raise SchemaError(f"start={start!r}: only grammars have a start rule, not {syntax}")
    if dialect is not None and syntax != "regex":
        raise SchemaError("dialect is for regular expressions; see default_dialect for schemas")
    if limits is not None and not isinstance(limits, Limits):
        raise SchemaError(f"limits must be structspec.Limits(...), not {type(limits).__name__}")
    limits = limits or Limits()
    options = SchemaOptions(
        key_order=key_order,
        whitespace=whitespace,
        spelling=spelling,
        unknown_formats=unknown_formats,
        on_unsupported=on_unsupported,
        assert_formats=assert_formats,
        default_dialect=default_dialect,
        resources=resources,
    )
    spec: TypeSpec | None = None
    ready.ensure()
    watch = Stopwatch(limits)  # one for front end and automaton
    if syntax == "json_schema":
        spec = describe(source)
        options = replace(options, tell_apart=True)
        grammar_ir, report = lower_schema(
            spec.schema, options, limits, watch, exact=isinstance(source, str)
        )
    elif syntax == "structural_tag":
        from structspec.frontends.tags import lower_tags

        grammar_ir, report = lower_tags(source, options)
    else:
        if not isinstance(source, str):
            raise SchemaError(
                f"a source of syntax {syntax!r} is a str, not {type(source).__name__}"
            )
        grammar_ir, report = _lower_text(source, syntax, start, dialect, options)
    network = build_network(grammar_ir, limits, watch)
    return Grammar(network, report, limits, _Source(spec, syntax), grammar_ir)


def _lower_text(
    source: str, syntax: str, start: str | None, dialect: Dialect | None, options: SchemaOptions
) -> tuple[ir.GrammarIR, Report]:
    if syntax == "regex":
        return lower_pattern(source, dialect or "ecma"), Report(())
    if syntax == "gbnf":
        from structspec.frontends.gbnf import lower_gbnf

        return lower_gbnf(source, start or _STARTS[syntax])
    from structspec.frontends.lark import lower_lark

    return lower_lark(source, start or _STARTS[syntax], options)
