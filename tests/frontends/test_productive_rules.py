"""Rules that some text completes, against a naive fixed point."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import ir
from structspec.frontends.rules.productive import productive_rules, prune

_NAMES = ("a", "b", "c", "d")
_LEAVES = st.one_of(
    st.sampled_from([ir.EPSILON, ir.NOTHING, ir.Bytes(b"x"), ir.Chars(())]),
    st.sampled_from(_NAMES).map(ir.Rule),
)


def _larger(inner: st.SearchStrategy[ir.Node]) -> st.SearchStrategy[ir.Node]:
    members = st.lists(st.builds(ir.Member, inner, inner, st.booleans()), max_size=3).map(tuple)
    lists = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        lists.map(ir.Sequence),
        lists.map(ir.Choice),
        st.builds(ir.Repeat, inner, st.integers(0, 2), st.sampled_from([None, 0, 1, 2])),
        inner.map(ir.Variant),
        st.builds(
            ir.Members,
            members,
            inner,
            st.sampled_from(["declared", "any"]),
            st.integers(0, 2),
            st.sampled_from([None, 0, 1, 2]),
        ),
        st.builds(
            lambda first, second: ir.Automaton((((first, 1),), ((second, 2),), ()), frozenset({2})),
            inner,
            inner,
        ),
    )


_NODES = st.recursive(_LEAVES, _larger, max_leaves=8)


def _completes(node: ir.Node, known: set[str]) -> bool:
    """One round of the definition, without memory."""
    match node:
        case ir.Chars(ranges):
            return bool(ranges)
        case ir.Sequence(items):
            return all(_completes(item, known) for item in items)
        case ir.Choice(items):
            return any(_completes(item, known) for item in items)
        case ir.Rule(name):
            return name in known
        case ir.Variant(item):
            return _completes(item, known)
        case ir.Repeat(item, minimum, maximum):
            if maximum is not None and maximum < minimum:
                return False
            return minimum == 0 or _completes(item, known)
        case ir.Automaton(((((first, _),)), ((second, _),), ()), _):
            return _completes(first, known) and _completes(second, known)
        case ir.Members(members, separator, _, minimum, maximum):
            fit = [m for m in members if _completes(m.key, known) and _completes(m.value, known)]
            required = [m for m in members if m.required]
            least = max(minimum, len(required))
            if any(m not in fit for m in required) or (maximum is not None and maximum < least):
                return False
            return least <= len(fit) and (least <= 1 or _completes(separator, known))
    return True


@settings(max_examples=300, deadline=None)
@given(st.lists(_NODES, min_size=4, max_size=4))
def test_productive_rules_are_the_least_fixed_point(nodes: list[ir.Node]) -> None:
    rules = dict(zip(_NAMES, nodes, strict=True))
    known: set[str] = set()
    for _ in rules:
        known = {name for name, node in rules.items() if _completes(node, known)}
    assert productive_rules(rules) == known


def test_pruning_leaves_nothing_where_an_unproductive_rule_is_used() -> None:
    endless = ir.Sequence((ir.Bytes(b"x"), ir.Rule("a")))
    rules = {"root": ir.Choice((ir.Rule("a"), ir.Bytes(b"y"))), "a": endless, "b": endless}
    pruned = prune(rules, "root")
    assert dict(pruned.rules) == {"root": rules["root"], "a": ir.NOTHING}
    assert dict(prune(rules, "a").rules) == {"a": ir.NOTHING}


def test_ticks_may_stop_the_search() -> None:
    # Each rule needs the one made before it, so that passes from the back settle one at a time.
    rules: dict[str, ir.Node] = {"r0": ir.EPSILON}
    for index in range(1, 50):
        rules[f"r{index}"] = ir.Sequence((ir.Bytes(b"x"), ir.Rule(f"r{index - 1}")))
    ticks = []
    assert productive_rules(rules, lambda: ticks.append(1)) == set(rules)
    assert len(ticks) >= 40

    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        productive_rules(rules, stop)
