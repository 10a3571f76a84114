"""Left recursion rewritten away: the network takes the result, and the language stays."""

from __future__ import annotations

import itertools

import pytest

from structspec import Grammar, ir
from structspec.automata.network import build_network
from structspec.errors import UnsupportedFeature
from structspec.frontends.rules.left_recursion import nullable_rules, rewrite_left_recursion
from structspec.limits import Limits
from structspec.report import Report

R = ir.Rule


def b(text: str) -> ir.Bytes:
    return ir.Bytes(text.encode())


def alternatives(*items: ir.Node | tuple[ir.Node, ...]) -> ir.Node:
    return ir.choice(ir.sequence(i) if isinstance(i, tuple) else i for i in items)


def compiled(rules: dict[str, ir.Node], start: str = "s") -> Grammar:
    network = build_network(rewrite_left_recursion(ir.GrammarIR(rules, start)))
    return Grammar(network, Report(()), Limits(), None)  # type: ignore[arg-type]


CASES: dict[str, dict[str, ir.Node]] = {
    "direct": {"s": alternatives((R("s"), b("a")), b("b"))},
    "indirect": {
        "s": alternatives((R("t"), b("a")), b("b")), "t": alternatives((R("s"), b("b")))
    },
    "hidden": {
        "s": alternatives((R("e"), R("s"), b("a")), b("b")), "e": ir.Repeat(b("a"), 0, 1)
    },
    "itself": {"s": alternatives(R("s"), (R("s"), R("s")), b("a"))},
    "nullable": {"s": alternatives((R("s"), b("a")), ir.EPSILON)},
    "in a repeat": {
        "s": ir.sequence([ir.Repeat(R("t"), 1, 2), b("a")]), "t": alternatives(b("b"), R("s"))
    },
    "in an automaton": {
        "s": ir.Automaton(
            (((R("s"), 1), (b("b"), 2)), ((b("a"), 2),), ()), frozenset((2,))
        )
    },
}  # fmt: skip


def derives(rules: dict[str, ir.Node], text: str) -> bool:
    """A fixed point over spans, straight from the definition."""
    size = len(text)
    known: dict[str, set[tuple[int, int]]] = {name: set() for name in rules}

    def ends(node: ir.Node, starts: set[int]) -> set[int]:
        match node:
            case ir.Bytes(value):
                return {i + len(value) for i in starts if text.encode().startswith(value, i)}
            case ir.Rule(name):
                return {j for i, j in known[name] if i in starts}
            case ir.Sequence(items):
                for item in items:
                    starts = ends(item, starts)
                return starts
            case ir.Choice(items):
                return {j for item in items for j in ends(item, starts)}
            case ir.Repeat(item, low, high):
                found, here = (set(starts) if low == 0 else set()), starts
                for count in range(1, size + 2 if high is None else high + 1):
                    here = ends(item, here)
                    if count >= low:
                        found |= here
                return found
            case ir.Automaton(edges, accepting):
                at = {0: set(starts)}
                for _ in range((size + 1) * (len(edges) + 1)):
                    for source, row in enumerate(edges):
                        for label, target in row:
                            at.setdefault(target, set()).update(ends(label, at.get(source, set())))
                return {j for state in accepting for j in at.get(state, set())}
        raise AssertionError(node)

    changed = True
    while changed:
        changed = False
        for name, node in rules.items():
            for i in range(size + 1):
                for j in ends(node, {i}):
                    if (i, j) not in known[name]:
                        known[name].add((i, j))
                        changed = True
    return (0, size) in known["s"]


@pytest.mark.parametrize("name", CASES)
def test_the_language_stays_and_the_network_takes_it(name: str) -> None:
    rules = CASES[name]
    with pytest.raises(UnsupportedFeature, match="left recursion"):
        build_network(ir.GrammarIR(rules, "s"))
    grammar = compiled(rules)
    for size in range(6):
        for signs in itertools.product("ab", repeat=size):
            text = "".join(signs)
            assert grammar.accepts(text) == derives(rules, text), text


def test_a_grammar_without_left_recursion_is_left_alone() -> None:
    grammar = ir.GrammarIR({"s": alternatives((b("a"), R("s")), b("b"))}, "s")
    assert rewrite_left_recursion(grammar) is grammar


def test_twenty_levels_of_operators_grow_by_a_constant_factor() -> None:
    levels = 20
    rules: dict[str, ir.Node] = {
        f"e{i}": alternatives((R(f"e{i}"), b(chr(65 + i)), R(f"e{i + 1}")), R(f"e{i + 1}"))
        for i in range(levels)
    }
    rules[f"e{levels}"] = alternatives((b("("), R("e0"), b(")")), b("n"))
    grammar = compiled(rules, "e0")
    assert grammar.network.n_states < 20 * levels
    assert grammar.accepts("nA(nBnTn)Cn") and not grammar.accepts("nAAn")


def test_nullable_rules_are_found_through_cycles() -> None:
    rules = {"a": alternatives(R("b"), b("x")), "b": ir.sequence([R("c"), R("c")]),
             "c": alternatives(R("a"), ir.EPSILON), "d": ir.sequence([R("a"), b("x")])}  # fmt: skip
    assert nullable_rules(rules) == {"a": True, "b": True, "c": True, "d": False}
