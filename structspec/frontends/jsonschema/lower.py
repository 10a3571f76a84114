"""From normal forms to the grammar IR.

`Lowering` owns the rules of one grammar. Every goal that contains arrays or objects becomes a rule,
named once per distinct normal form, so equal subschemas share a rule and recursion needs no care.
Rules are produced from a queue: nesting depth costs neither recursion nor nodes.

Blanks: an opening bracket is followed by a gap, every key and value by one, so no two gaps ever
meet. In the flexible policy what differs from the conventional layout is a `Variant`.

Cost: linear in the size of the normal forms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import combinations

from structspec import ir
from structspec.errors import UnsupportedFeature
from structspec.frontends.jsonschema.algebra import NOTHING, Form
from structspec.frontends.jsonschema.arrays import ArrayShape
from structspec.frontends.jsonschema.digits import Digits
from structspec.frontends.jsonschema.goals import FALSE, TRUE, Goal
from structspec.frontends.jsonschema.normal import Normaliser
from structspec.frontends.jsonschema.numbers import NumberSet
from structspec.frontends.jsonschema.objects import ObjectShape
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.places import Atlas
from structspec.frontends.jsonschema.productive import prune
from structspec.frontends.jsonschema.refusal import Refusal
from structspec.frontends.jsonschema.spelling import Spelling
from structspec.frontends.jsonschema.strings import StringShape
from structspec.frontends.jsonschema.text import string_texts

__all__ = ["Lowering"]

# Literal text up to this length is written where it is used; longer text gets a rule.
_INLINE_TEXT = 64
# The most alternatives that a count of optional members may expand to.
_MOST_SELECTIONS = 256
# A document with more text than this shares the escapes of each character through rules.
_SHARE_ABOVE = 4096

_BLANK = ir.Chars(((9, 10), (13, 13), (32, 32)))
_MOST_BLANKS = 32


class Lowering:
    """Lowers the goals of one compile."""

    def __init__(self, atlas: Atlas, normaliser: Normaliser, options: SchemaOptions) -> None:
        self.atlas = atlas
        self.normaliser = normaliser
        self.options = options
        self.rules: dict[str, ir.Node] = {}
        share = _text_size(atlas.document.root) > _SHARE_ABOVE
        self.spelling = Spelling(options.spelling, self.rules, share)
        self.digits = Digits(self.rules, options.spelling, atlas.document.draft != 4)
        self._values: dict[Goal, ir.Node] = {FALSE: ir.NOTHING}
        self._names: dict[Form, str] = {}
        self._leaves: dict[NumberSet | tuple[StringShape, ...], ir.Node] = {}
        self._queue: list[tuple[str, Form]] = []
        #: The gap behind brackets, keys and values; the gap behind commas and colons.
        self.gap, self.wide = self._gaps()

    def grammar(self) -> ir.GrammarIR:
        """The grammar of the whole document."""
        root = self.value(self.atlas.root_goal())
        self.rules["root"] = ir.sequence((self.gap, root, self.gap))
        for name, form in self._queue:
            self.rules[name] = self._form(form)
        return prune(self.rules, "root")

    def _gaps(self) -> tuple[ir.Node, ir.Node]:
        if self.options.whitespace == "compact":
            return ir.EPSILON, ir.EPSILON
        if self.options.whitespace == "conventional":
            return ir.EPSILON, ir.Bytes(b" ")
        blanks = ir.Variant(ir.Repeat(_BLANK, 0, _MOST_BLANKS))
        self.rules["gap"] = ir.Choice((ir.EPSILON, ir.Variant(ir.Repeat(_BLANK, 1, _MOST_BLANKS))))
        self.rules["wide-gap"] = ir.Choice((ir.Bytes(b" "), blanks))
        return ir.Rule("gap"), ir.Rule("wide-gap")

    def refuse(self, refusals: Iterable[Refusal]) -> None:
        """Refuse what cannot be exact, or report it as widened if the caller asked for that."""
        for refusal in sorted(refusals, key=lambda r: (r.place, r.keyword, r.reason)):
            if self.options.on_unsupported == "refuse":
                place = self.atlas.place(refusal.place)
                raise UnsupportedFeature(refusal.keyword, place.pointer, refusal.reason)
            self.atlas.widen(refusal.place, refusal.keyword, refusal.reason)

    # Values --------------------------------------------------------------------------------

    def value(self, goal: Goal) -> ir.Node:
        """A node for the values that satisfy `goal`; `ir.NOTHING` if there are none."""
        node = self._values.get(goal)
        if node is None:
            form = self.normaliser.form(goal)
            if form == NOTHING:
                node = ir.NOTHING
            elif form.leaf:
                node = self._form(form)
            else:
                name = self._names.get(form)
                if name is None:
                    name = self._names[form] = self._name(goal)
                    self._queue.append((name, form))
                node = ir.Rule(name)
            self._values[goal] = node
        return node

    def _name(self, goal: Goal) -> str:
        if goal == TRUE:
            return "value"
        number = min(abs(part) for alternative in goal for part in alternative)
        return f"value-{len(self._names)}:{self.atlas.place(number).pointer}"

    def _form(self, form: Form) -> ir.Node:
        self.refuse(form.refusals)
        options: list[ir.Node] = [ir.Bytes(b"null")] if form.null else []
        options += (ir.Bytes(b"true" if flag else b"false") for flag in sorted(form.booleans)[::-1])
        options += (self._numbers(numbers) for numbers in form.numbers)
        if form.strings:
            options.append(self.strings(form.strings))
        options += (self._array(shape) for shape in form.arrays)
        options += (self._object(shape) for shape in form.objects)
        return ir.choice(options)

    def _numbers(self, numbers: NumberSet) -> ir.Node:
        node = self._leaves.get(numbers)
        if node is None:
            self.refuse(numbers.refusals)
            found = self.digits.number_texts(numbers)
            if found is None:
                self.refuse(refusal for _, refusal in numbers.multiples)
                found = self.digits.number_texts(NumberSet(numbers.ints, numbers.fracs))
                assert found is not None, "intervals without multiples cost few states"
            node = self._leaves[numbers] = self._shared("number", found)
        return node

    def strings(self, shapes: tuple[StringShape, ...]) -> ir.Node:
        """The spelled strings of a union of shapes, quotes included."""
        node = self._leaves.get(shapes)
        if node is None:
            for shape in shapes:
                self.refuse(shape.refusals)
            texts = [string_texts(shape, self.spelling, self.rules) for shape in shapes]
            node = self._leaves[shapes] = self._shared("string", ir.choice(texts))
        return node

    def _shared(self, kind: str, node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Rule) or _short(node):
            return node
        name = f"{kind}-{len(self.rules)}"
        self.rules[name] = node
        return ir.Rule(name)

    # Arrays --------------------------------------------------------------------------------

    def _array(self, shape: ArrayShape) -> ir.Node:
        self.refuse(shape.refusals)
        return ir.sequence((ir.Bytes(b"["), self.gap, self._items(shape), ir.Bytes(b"]")))

    def _items(self, shape: ArrayShape) -> ir.Node:
        comma = ir.sequence((ir.Bytes(b","), self.wide))
        minimum, maximum = shape.minimum, shape.maximum
        prefix: list[ir.Node] = []
        for goal in shape.prefix:
            item = self.value(goal)
            if item == ir.NOTHING:
                maximum = len(prefix)
                break
            prefix.append(ir.sequence((item, self.gap)))
        prefix = prefix[:maximum]
        node: ir.Node = ir.EPSILON
        rest: ir.Node = ir.NOTHING
        if maximum is None or maximum > len(prefix):
            rest = self.value(shape.rest)
        if rest == ir.NOTHING:
            maximum = len(prefix)
        if maximum is not None and minimum > maximum:
            return ir.NOTHING
        if rest != ir.NOTHING:
            item = ir.sequence((rest, self.gap))
            least = max(minimum - len(prefix), 0)
            most = None if maximum is None else maximum - len(prefix)
            if prefix:
                node = ir.Repeat(ir.sequence((comma, item)), least, most)
            else:
                more = ir.Repeat(
                    ir.sequence((comma, item)),
                    max(least - 1, 0),
                    None if most is None else most - 1,
                )
                node = item if most == 1 else ir.sequence((item, more))
                if least == 0:
                    node = ir.choice((ir.EPSILON, node))
        for index in range(len(prefix) - 1, -1, -1):
            separator = comma if index else ir.EPSILON
            node = ir.sequence((separator, prefix[index], node))
            if index >= minimum:
                # The rest of the array is optional from here on; a rule keeps nodes shallow.
                name = f"items-{len(self.rules)}"
                self.rules[name] = ir.choice((ir.EPSILON, node))
                node = ir.Rule(name)
        return node

    # Objects -------------------------------------------------------------------------------

    def _object(self, shape: ObjectShape) -> ir.Node:
        self.refuse(shape.refusals)
        names = None if shape.names == TRUE else self.normaliser.form(shape.names)
        named: list[tuple[str, ir.Node, bool]] = []
        for name, goal, required in shape.members():
            if names is not None and not any(s.admits(name) for s in names.strings):
                node: ir.Node = ir.NOTHING
            else:
                node = self.value(goal)
            if required and node == ir.NOTHING:
                return ir.NOTHING
            named.append((name, node, required))
        if names is not None:
            self.refuse(names.refusals)
            for part in names.strings:
                self.refuse(part.refusals)
        key = self.strings(_EVERY_STRING if names is None else names.strings)
        other = ir.NOTHING if key == ir.NOTHING else self.value(shape.additional)
        rest = (key, other) if other != ir.NOTHING else None
        return ir.choice(
            ir.sequence((ir.Bytes(b"{"), self.gap, members, ir.Bytes(b"}")))
            for members in self._counted(shape, named, rest)
        )

    def _counted(
        self,
        shape: ObjectShape,
        named: list[tuple[str, ir.Node, bool]],
        rest: tuple[ir.Node, ir.Node] | None,
    ) -> Iterator[ir.Node]:
        """The member lists of an object, under its bounds on the number of members."""
        required = sum(needed for _, _, needed in named)
        optional = [name for name, node, needed in named if not needed and node != ir.NOTHING]
        fewest = max(shape.fewest - required, 0)
        most = math.inf if shape.most is None else shape.most - required
        if most < fewest or (rest is None and fewest > len(optional)):
            return
        if most == 0:
            most, rest = math.inf, None
            named = [(n, node if needed else ir.NOTHING, needed) for n, node, needed in named]
            optional = []
        if rest is None and most >= len(optional):
            most = math.inf
        if fewest == 0 and most == math.inf:
            yield self._members(named, rest)
            return
        if rest is not None and not named and fewest <= 1:
            # Only undeclared members: a list without names. A repeated key counts once, so this
            # would be wrong for two or more at least; for an upper bound it only loses spellings.
            member = self._member(*rest)
            separator = ir.sequence((ir.Bytes(b","), self.wide))
            limit = None if most == math.inf else int(most) - 1
            more = ir.Repeat(ir.sequence((separator, member)), 0, limit)
            node = ir.sequence((member, more))
            yield node if fewest else ir.choice((ir.EPSILON, node))
            return
        if rest is None:
            size = len(optional)
            allowed = size if most == math.inf else int(most)
            if math.comb(size, allowed) * math.comb(allowed, fewest) <= _MOST_SELECTIONS:
                for present in combinations(optional, allowed):
                    for demanded in combinations(present, fewest):
                        forced, kept = set(demanded), set(present)
                        yield self._members(
                            [
                                (n, node, needed or n in forced)
                                for n, node, needed in named
                                if needed or n in kept
                            ],
                            None,
                        )
                return
        culprit = "maxProperties" if fewest == 0 else "minProperties"
        named_here = {refusal for refusal in shape.counted if refusal.keyword == culprit}
        self.refuse(named_here or shape.counted)
        yield self._members(named, rest)

    def _members(
        self, named: list[tuple[str, ir.Node, bool]], rest: tuple[ir.Node, ir.Node] | None
    ) -> ir.Node:
        members = []
        for name, node, required in named:
            key = self.spelling.text(name)
            if node != ir.NOTHING:
                members.append(ir.Member(key, self._after_key(node), required))
            elif rest is not None:
                # The key must not count as an undeclared one.
                members.append(ir.Member(key, ir.NOTHING))
        if rest is not None:
            members.append(ir.Member(rest[0], self._after_key(rest[1]), repeatable=True))
        if not members:
            return ir.EPSILON
        separator = ir.sequence((ir.Bytes(b","), self.wide))
        return ir.Members(tuple(members), separator, self.options.key_order)

    def _after_key(self, node: ir.Node) -> ir.Node:
        return ir.sequence((self.gap, ir.Bytes(b":"), self.wide, node, self.gap))

    def _member(self, key: ir.Node, node: ir.Node) -> ir.Node:
        return ir.sequence((key, self._after_key(node)))


_EVERY_STRING = (StringShape(),)


def _short(node: ir.Node) -> bool:
    """Whether a node is literal text that is cheaper written out than called."""
    size = 0
    stack = [node]
    while stack:
        top = stack.pop()
        size += 1
        if size > _INLINE_TEXT or isinstance(top, ir.Repeat | ir.Chars):
            return False
        if isinstance(top, ir.Bytes):
            size += len(top.value)
        elif isinstance(top, ir.Sequence | ir.Choice):
            stack.extend(top.items)
        # Other spellings do not count: they hang on literal text that has been counted.
    return True


def _text_size(document: object) -> int:
    size = 0
    stack = [document]
    while stack:
        top = stack.pop()
        if isinstance(top, dict):
            size += sum(map(len, top))
            stack.extend(top.values())
        elif isinstance(top, list):
            stack.extend(top)
        elif isinstance(top, str):
            size += len(top)
    return size
