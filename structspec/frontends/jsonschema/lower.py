"""From normal forms to the grammar IR.

`Lowering` owns the rules of one grammar. Every goal that contains arrays or objects becomes a rule,
named once per distinct normal form, so equal subschemas share a rule and recursion needs no care.
Rules are produced from a queue: nesting depth costs neither recursion nor nodes.

Blanks: an opening bracket is followed by a gap, every key and value by one, so no two gaps ever
meet. In the flexible policy what differs from the conventional layout is a `Variant`.

Cost: linear in the size of the normal forms.
"""

from __future__ import annotations

from collections.abc import Iterable

from structspec import ir
from structspec.errors import BudgetExceeded, UnsupportedFeature
from structspec.frontends.jsonschema.algebra import NOTHING, Form
from structspec.frontends.jsonschema.budget import spend
from structspec.frontends.jsonschema.digits import Digits
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal
from structspec.frontends.jsonschema.items import Items
from structspec.frontends.jsonschema.members import MemberLists
from structspec.frontends.jsonschema.normal import Normaliser
from structspec.frontends.jsonschema.numbers import NumberSet
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.places import Atlas
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.frontends.jsonschema.spelling import Spelling
from structspec.frontends.jsonschema.strings import StringShape
from structspec.frontends.jsonschema.text import string_texts
from structspec.frontends.rules.productive import prune

__all__ = ["Lowering"]

# Literal text up to this length is written where it is used; longer text gets a rule.
_INLINE_TEXT = 64

# The keywords that a budget is named for, if a subschema has several.
_COSTLY = (
    "pattern", "format", "enum", "const", "maxLength", "minLength", "multipleOf", "contains",
    "uniqueItems", "patternProperties", "minProperties", "minItems", "prefixItems", "properties",
)  # fmt: skip

_BLANK = ir.Chars(((9, 10), (13, 13), (32, 32)))
_MOST_BLANKS = 32
_GAP = ir.Choice((ir.EPSILON, ir.Variant(ir.Repeat(_BLANK, 1, _MOST_BLANKS))))
_WIDE_GAP = ir.Choice((ir.Bytes(b" "), ir.Variant(ir.Repeat(_BLANK, 0, _MOST_BLANKS))))
_CALL_GAP, _CALL_WIDE_GAP = ir.Rule("gap"), ir.Rule("wide-gap")
_NULL, _TRUE, _FALSE = ir.Bytes(b"null"), ir.Bytes(b"true"), ir.Bytes(b"false")
_BRACKETS = (ir.Bytes(b"["), ir.Bytes(b"]"))
_BRACES = (ir.Bytes(b"{"), ir.Bytes(b"}"))
# What is no literal text.
_NO_LITERALS = frozenset({ir.Repeat, ir.Chars, ir.Automaton})


class Lowering:
    """Lowers the goals of one compile."""

    def __init__(self, atlas: Atlas, normaliser: Normaliser, options: SchemaOptions) -> None:
        self.atlas = atlas
        self.normaliser = normaliser
        self.options = options
        self.rules: dict[str, ir.Node] = {}
        # A document with much text shares the escapes of each character through rules.
        self.spelling = Spelling(options.spelling, self.rules, share=atlas.wordy)
        self._canonical = Spelling("canonical", self.rules)
        self.digits = Digits(self.rules, options.spelling)
        self._values: dict[Goal, ir.Node] = {FALSE: ir.NOTHING}
        self._names: dict[Form, str] = {}
        self._leaf_nodes: dict[Form, ir.Node] = {NOTHING: ir.NOTHING}
        self._leaves: dict[NumberSet | tuple[StringShape, ...], ir.Node] = {}
        self._keys: dict[NumberSet | tuple[StringShape, ...], ir.Node] = {}
        self._plain_keys: dict[NumberSet | tuple[StringShape, ...], ir.Node] = {}
        self._queue: list[tuple[str, Goal, Form]] = []
        #: The gap behind brackets, keys and values; the gap behind commas and colons.
        self.gap, self.wide = self._gaps()
        self.tells_apart = options.tell_apart and (
            options.tell_apart == "always"
            or bool(options.resources)
            or atlas.mentions("uniqueItems")
        )
        self.items = Items(self)
        self.members = MemberLists(self, options.key_order)

    def grammar(self) -> ir.GrammarIR:
        """The grammar of the whole document."""
        root = self.value(self.atlas.root_goal())
        self.rules["root"] = ir.sequence((self.gap, root, self.gap))
        for name, goal, form in self._queue:
            spend(2)
            self.rules[name] = self._leaf(goal, form)
        if self.spelling.shortened:
            self.atlas.narrow_strings("some strings are written without needless escapes")
        return prune(self.rules, "root", spend)

    def _gaps(self) -> tuple[ir.Node, ir.Node]:
        if self.options.whitespace == "compact":
            return ir.EPSILON, ir.EPSILON
        if self.options.whitespace == "conventional":
            return ir.EPSILON, ir.Bytes(b" ")
        self.rules["gap"], self.rules["wide-gap"] = _GAP, _WIDE_GAP
        return _CALL_GAP, _CALL_WIDE_GAP

    def refuse(self, refusals: Iterable[Refusal]) -> None:
        """Refuse what cannot be exact, or report it as widened if the caller asked for that."""
        for refusal in sorted(refusals, key=lambda r: (r.place, r.keyword, r.reason)):
            if self.options.on_unsupported == "refuse":
                place = self.atlas.place(refusal.place)
                if refusal.budget is not None:
                    raise BudgetExceeded(
                        *refusal.budget, keyword=refusal.keyword, pointer=place.pointer
                    )
                raise UnsupportedFeature(refusal.keyword, place.pointer, refusal.reason)
            self.atlas.widen(refusal.place, refusal.keyword, refusal.reason)

    # Values --------------------------------------------------------------------------------

    def spelled(self, plain: bool = False) -> Spelling:
        """How strings are spelled; `plain`: without needless escapes."""
        if not plain:
            return self.spelling
        self.spelling.shortened = self.spelling.shortened or self.spelling.any
        return self._canonical

    def value(self, goal: Goal) -> ir.Node:
        """A node for the values that satisfy `goal`; `ir.NOTHING` if there are none."""
        node = self._values.get(goal)
        if node is None:
            form = self.normaliser.form(goal)
            leaf = self._leaf_nodes.get(form) if form.leaf else None
            if leaf is not None:
                node = leaf
            elif form.leaf:
                node = self._leaf_nodes[form] = self._leaf(goal, form)
            else:
                name = self._names.get(form)
                if name is None:
                    name = self._names[form] = self._name(goal)
                    self._queue.append((name, goal, form))
                node = ir.Rule(name)
            self._values[goal] = node
        return node

    def _leaf(self, goal: Goal, form: Form) -> ir.Node:
        try:
            return self._form(form)
        except BudgetExceeded as error:
            raise self._placed(error, goal) from error

    def _placed(self, error: BudgetExceeded, goal: Goal) -> BudgetExceeded:
        """The error with the place of the first subschema of a goal."""
        if goal in (TRUE, FALSE):
            return error.at(None, "")
        place = self.atlas.place(min(abs(part) for alternative in goal for part in alternative))
        keyword = next((name for name in _COSTLY if name in place.schema), None)
        return error.at(keyword, place.pointer)

    def _name(self, goal: Goal) -> str:
        if goal == TRUE:
            return "value"
        number = min(abs(part) for alternative in goal for part in alternative)
        return f"value-{len(self._names)}:{number}"

    def _form(self, form: Form) -> ir.Node:
        if form.refusals:
            self.refuse(form.refusals)
        options: list[ir.Node] = [_NULL] if form.null else []
        if form.booleans:
            options += (_TRUE if flag else _FALSE for flag in sorted(form.booleans)[::-1])
        for numbers in form.numbers:
            options.append(self._numbers(numbers))
        if form.strings:
            options.append(self.strings(form.strings))
        for array in form.arrays:
            if array.refusals:
                self.refuse(array.refusals)
            options.append(self._bracketed(_BRACKETS, self.items.node(array)))
        for shape in form.objects:
            if shape.refusals:
                self.refuse(shape.refusals)
            options.append(self._bracketed(_BRACES, self.members.node(shape)))
        return _either(options)

    def _bracketed(self, pair: tuple[ir.Node, ir.Node], content: ir.Node) -> ir.Node:
        if type(content) is ir.Choice and not content.items:
            return ir.NOTHING
        parts = (pair[0], self.gap, content, pair[1])
        if type(content) is ir.Members and type(self.gap) is ir.Rule:
            return ir.Sequence(parts)
        return ir.sequence(parts)

    def _numbers(self, numbers: NumberSet) -> ir.Node:
        node = self._leaves.get(numbers)
        if node is None:
            if numbers.refusals:
                self.refuse(numbers.refusals)
            found = self.digits.number_texts(numbers)
            if found is None:
                self.refuse(refusal for _, refusal in numbers.multiples | numbers.others)
                found = self.digits.number_texts(NumberSet(numbers.ints, numbers.fracs))
                assert found is not None, "intervals without multiples cost few states"
            node = self._leaves[numbers] = self._shared("number", found)
        return node

    def strings(
        self, shapes: tuple[StringShape, ...], *, keys: bool = False, plain: bool = False
    ) -> ir.Node:
        """The spelled strings of a union of shapes, quotes included; `keys`: of a members list.

        plain: without needless escapes.
        """
        leaves = self._plain_keys if plain else self._keys if keys else self._leaves
        node = leaves.get(shapes)
        if node is None:
            for shape in shapes:
                if shape.refusals:
                    self.refuse(shape.refusals)
            spelling = self.spelled(plain)
            texts = (
                string_texts(shape, spelling, self.rules, registers=not keys) for shape in shapes
            )
            # As rules before they are compared: an automaton may be large.
            shared = [self._shared("string", text) for text in texts]
            node = shared[0] if len(shared) == 1 else self._shared("string", ir.choice(shared))
            leaves[shapes] = node
        return node

    def _shared(self, kind: str, node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Rule) or _short(node):
            return node
        name = f"{kind}-{len(self.rules)}"
        self.rules[name] = node
        return ir.Rule(name)


def _either(options: list[ir.Node]) -> ir.Node:
    """A choice, as `ir.choice` makes it, that does not compare large nodes with each other."""
    if len(options) == 1 and type(options[0]) is not ir.Choice:
        return options[0]
    flat: dict[int, ir.Node] = {}
    for option in options:
        for part in option.items if type(option) is ir.Choice else (option,):
            flat.setdefault(id(part), part)
    return next(iter(flat.values())) if len(flat) == 1 else ir.Choice(tuple(flat.values()))


def _short(node: ir.Node) -> bool:
    """Whether a node is literal text that is cheaper written out than called."""
    size = 0
    stack = [node]
    while stack:
        top = stack.pop()
        size += 1
        kind = type(top)
        if size > _INLINE_TEXT or kind in _NO_LITERALS:
            return False
        if type(top) is ir.Bytes:
            size += len(top.value)
        elif type(top) is ir.Sequence or type(top) is ir.Choice:
            stack.extend(top.items)
        # Other spellings do not count: they hang on literal text that has been counted.
    return True
