"""The compiled build of networks: growth of its arrays, merged classes, budgets."""

from __future__ import annotations

import dataclasses
import random
import time

import numpy as np
import pytest

from structspec import ir, limits
from structspec.automata.automaton import DEAD, Automaton, byte_costs
from structspec.automata.chardfa import CharDfa
from structspec.automata.network import build_network
from structspec.automata.tables import Network
from structspec.errors import BudgetExceeded
from structspec.frontends.jsonschema.text_automata import pattern_dfa
from structspec.ir_codec import decode, encode
from structspec.limits import Limits


def network_of(node: ir.Node, limits: Limits | None = None, **rules: ir.Node) -> Network:
    return build_network(ir.GrammarIR({"root": node, **rules}, "root"), limits)


def accepts(network: Network, text: bytes) -> bool:
    automaton = Automaton(network, byte_costs(network))
    state = automaton.advance(automaton.start, text)
    return state != DEAD and automaton.accepting(state)


def test_a_large_set_of_literals_outgrows_every_first_array() -> None:
    rng = random.Random(3)
    words = {bytes(rng.choices(range(256), k=rng.randint(1, 30))) for _ in range(4_000)}
    network = network_of(ir.Choice(tuple(map(ir.Bytes, sorted(words)))))
    automaton = Automaton(network, byte_costs(network))
    assert network.n_states > 30_000

    def accepted(text: bytes) -> bool:
        state = automaton.advance(automaton.start, text)
        return state != DEAD and automaton.accepting(state)

    assert all(map(accepted, words))
    assert not any(accepted(word[:-1]) for word in words if word[:-1] not in words)
    assert not any(accepted(word + b"a") for word in words if word + b"a" not in words)


def test_a_list_of_many_members_outgrows_every_first_array() -> None:
    names = [b"member %d" % number for number in range(3_000)]
    members = tuple(ir.Member(ir.Bytes(name), ir.Bytes(b":" + name[-2:] + b"; ")) for name in names)
    network = network_of(ir.Members(members, ir.Bytes(b",")))
    texts = [name + b":" + name[-2:] + b"; " for name in names]
    assert accepts(network, b",".join(texts[::7]))
    assert all(accepts(network, text) for text in texts[::97])
    assert not accepts(network, texts[8] + b"," + texts[3])
    assert not accepts(network, names[40] + b":" + names[41][-2:] + b"; ")


def test_a_long_automaton_that_counts_outgrows_every_first_array() -> None:
    letters = [ir.Chars(((97 + k % 26, 97 + k % 26),)) for k in range(6_000)]
    edges = (*(((letter, k + 1),) for k, letter in enumerate(letters)), ())
    network = network_of(ir.Automaton(edges, frozenset(range(3, 6_001)), longest=5_000))
    text = bytes(97 + k % 26 for k in range(6_000))
    assert accepts(network, text[:3]) and accepts(network, text[:5_000])
    assert not accepts(network, text[:2]) and not accepts(network, text[:5_001])


def test_many_rules_outgrow_every_first_array() -> None:
    rules: dict[str, ir.Node] = {
        f"r{k}": ir.Choice((ir.Bytes(b"x"), ir.Sequence((ir.Bytes(b"("), ir.Rule(f"r{k + 1}")))))
        for k in range(700)
    }
    rules |= {"r700": ir.Sequence((ir.Bytes(b"y"), ir.Repeat(ir.Rule("r0"), 2, 300)))}
    network = network_of(ir.Rule("r0", called=True), **rules)
    assert accepts(network, b"(" * 9 + b"x")
    assert accepts(network, b"(" * 700 + b"y" + b"x" * 300)
    assert not accepts(network, b"(" * 700 + b"y" + b"x" * 301)
    assert not accepts(network, b"(" * 700 + b"yx")


def test_subsets_outgrow_their_hash_table() -> None:
    letter = ir.Chars(((97, 98),))
    node = ir.sequence((ir.Repeat(letter, 0, None), ir.Bytes(b"a"), *(letter,) * 13))
    network = network_of(node)
    assert network.n_states >= 1 << 13
    rng = random.Random(7)
    for _ in range(50):
        text = bytes(rng.choices(b"ab", k=rng.randint(10, 40)))
        assert accepts(network, text) == (len(text) > 13 and text[-14] == 97)


def test_bytes_that_no_state_tells_apart_are_one_class() -> None:
    halves = ir.Choice((ir.Chars(((0x61, 0x6D),)), ir.Chars(((0x6E, 0x7A),))))
    network = network_of(ir.Sequence((halves, ir.Bytes(b"!"))))
    assert network.n_classes == 3
    assert len(set(network.class_of[0x61:0x7B].tolist())) == 1
    spaced = network_of(ir.Choice((ir.Bytes(b"a"), ir.Variant(ir.Bytes(b"b")))))
    assert spaced.class_of[0x61] != spaced.class_of[0x62], "only one of them is a spelling apart"


def test_special_tokens_are_classes_of_their_own() -> None:
    network = network_of(ir.Choice((ir.Special("x"), ir.Special("y"), ir.Bytes(b"a"))))
    assert network.specials == ("x", "y")
    assert network.n_classes == 4
    assert [network.special_class(i) for i in range(2)] == [2, 3]
    assert network.class_bytes[2:] == (b"", b"")


def test_the_same_grammar_gives_the_same_network() -> None:
    key = ir.Sequence((ir.Chars(((0x61, 0x7FF),)), ir.Bytes(b":")))
    members = ir.Members(
        (ir.Member(ir.Bytes(b"a:"), ir.Rule("v"), True), ir.Member(key, ir.Rule("v"), False, True)),
        ir.Bytes(b","),
        "any",
    )
    value = ir.Repeat(ir.Chars(((0x30, 0x39),)), 1, 400)
    first, second = (network_of(members, v=value) for _ in range(2))
    for field in dataclasses.fields(Network):
        left, right = getattr(first, field.name), getattr(second, field.name)
        if isinstance(left, np.ndarray):
            assert np.array_equal(left, right), field.name
    assert first.class_bytes == second.class_bytes


@pytest.mark.parametrize("leaf", [ir.EPSILON, ir.NOTHING], ids=["epsilon", "nothing"])
def test_shared_nodes_that_unfold_to_nothing_are_refused_in_time(leaf: ir.Node) -> None:
    node: ir.Node = leaf
    for _ in range(40):
        node = ir.Choice((node, node))
    start = time.process_time()
    with pytest.raises(BudgetExceeded):
        network_of(node, Limits(time=2.0))
    assert time.process_time() - start < 5


def test_large_copies_of_keys_are_refused() -> None:
    key = ir.Sequence((ir.Bytes(b"a"), ir.Repeat(ir.Bytes(b"b"), 0, 1 << 26)))
    with pytest.raises(BudgetExceeded) as caught:
        network_of(ir.Members((ir.Member(key, ir.EPSILON),), ir.Bytes(b",")))
    assert caught.value.what == "states"


def test_patterns_whose_subsets_are_huge_are_refused_by_a_named_budget() -> None:
    start = time.process_time()
    with pytest.raises(BudgetExceeded) as caught:
        pattern_dfa("^(a?){5000}a{5000}$")
    assert caught.value.what == "steps"
    assert time.process_time() - start < 5
    assert isinstance(pattern_dfa("^(a?){300}$"), CharDfa)


def test_flat_edges_are_the_edges_by_state() -> None:
    """The same automaton in both forms: the same texts, rows and serialisation."""
    a, b = ir.Bytes(b"ab"), ir.Chars(((48, 57),))
    rows = (((a, 1), (b, 0)), ((b, 2),), ())
    flat = ir.FlatEdges(
        (a, b), np.array([0, 2, 3, 3], np.int32), np.array([0, 1, 1], np.int32),
        np.array([1, 0, 2], np.int32),
    )  # fmt: skip
    assert tuple(flat) == rows and len(flat) == 3
    with pytest.raises(IndexError):
        flat[3]
    one = network_of(ir.Automaton(rows, frozenset({2})))
    two = network_of(ir.Automaton(flat, frozenset({2})))
    for text in (b"ab1", b"17ab1", b"ab", b"", b"1ab12"):
        assert accepts(one, text) == accepts(two, text) == (text in (b"ab1", b"17ab1"))
    grammar = ir.GrammarIR({"root": ir.Automaton(flat, frozenset({2}))}, "root")
    assert decode(encode(grammar)).rules["root"] == ir.Automaton(rows, frozenset({2}))


def test_a_countdown_ends_neither_early_nor_an_eighth_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine: of the time that passes, the thread gets a third."""
    now = [0.0]
    monkeypatch.setattr(limits.time, "perf_counter", lambda: 3 * now[0])
    monkeypatch.setattr(limits.time, "thread_time", lambda: now[0])
    countdown = limits.Countdown(8.0)
    while not countdown.over():
        now[0] += 0.01
    assert 8.0 < now[0] < 9.0
    now[0] = 0.0
    countdown = limits.Countdown(8.0)
    with countdown.stopped():
        now[0] += 100
    assert not countdown.over()
