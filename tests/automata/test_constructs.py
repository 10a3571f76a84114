"""Single constructs: counts, characters, members, recursion, refusals and budgets."""

from __future__ import annotations

import itertools
import random

import pytest
from automata_reference import Recogniser

from structspec import ir
from structspec.automata import network as network_module
from structspec.automata.automaton import DEAD, Automaton, byte_costs
from structspec.automata.member_costs import UNREACHABLE
from structspec.automata.network import build_network
from structspec.automata.utf8 import utf8_sequences
from structspec.errors import BudgetExceeded, UnsupportedFeature
from structspec.limits import Limits

A, B = ir.Bytes(b"a"), ir.Bytes(b"b")


def automaton_of(node: ir.Node, limits: Limits | None = None, **rules: ir.Node) -> Automaton:
    network = build_network(ir.GrammarIR({"root": node, **rules}, "root"), limits)
    return Automaton(network, byte_costs(network), limits)


def accepts(automaton: Automaton, text: bytes) -> bool:
    if automaton.start == DEAD:
        return False
    state = automaton.advance(automaton.start, text)
    return state != DEAD and automaton.accepting(state)


# -- characters ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_utf8_sequences_are_exactly_the_characters_of_the_range(seed: int) -> None:
    rng = random.Random(seed)
    edges = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]
    points = edges + [rng.randrange(0x110000) for _ in range(12)]
    lo, hi = sorted((rng.choice(points), rng.choice(points)))
    sequences = utf8_sequences(lo, hi)

    def matches(data: bytes) -> int:
        return sum(
            len(data) == len(s) and all(a <= x <= b for x, (a, b) in zip(data, s, strict=True))
            for s in sequences
        )

    near = {p + d for p in points for d in (-1, 0, 1)} | {lo, hi, lo - 1, hi + 1}
    for point in near:
        if 0 <= point < 0x110000 and not 0xD800 <= point <= 0xDFFF:
            assert matches(chr(point).encode()) == int(lo <= point <= hi), hex(point)
    count = 0
    for s in sequences:  # no byte sequence beyond the well-formed ones is let in
        product = 1
        for a, b in s:
            product *= b - a + 1
        count += product
    surrogates = max(0, min(hi, 0xDFFF) - max(lo, 0xD800) + 1)
    assert count == hi - lo + 1 - surrogates


def test_no_characters_is_the_empty_language() -> None:
    assert automaton_of(ir.Chars(())).start == DEAD


# -- counts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(0, 1_000_000), (1_000_000, 1_000_000), (1_000_000, None)])
@pytest.mark.parametrize("item", [A, ir.sequence((A, ir.Chars(((0x61, 0x7FF),))))], ids=str)
def test_a_million_copies_cost_the_states_of_one(
    item: ir.Node, bounds: tuple[int, int | None]
) -> None:
    automaton = automaton_of(ir.Repeat(item, *bounds))
    assert automaton.network.n_states < 20
    one = b"a" if item is A else b"ab"
    assert automaton.cost(automaton.start) == bounds[0] * len(one)
    state = automaton.advance(automaton.start, one * 5)
    assert automaton.accepting(state) == (bounds[0] <= 5)


def test_a_count_of_a_hundred_thousand_is_kept_exactly() -> None:
    automaton = automaton_of(ir.Repeat(A, 99_999, 100_000))
    assert not accepts(automaton, b"a" * 99_998)
    assert accepts(automaton, b"a" * 99_999)
    assert accepts(automaton, b"a" * 100_000)
    assert not accepts(automaton, b"a" * 100_001)


def test_an_upper_limit_beyond_any_text_is_no_limit() -> None:
    automaton = automaton_of(ir.sequence((ir.Repeat(A, 0, (1 << 53) - 1), B)))
    assert accepts(automaton, b"a" * 1000 + b"b")


def test_a_lower_limit_beyond_any_text_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="copies"):
        automaton_of(ir.Repeat(A, 1 << 40, None))


def test_a_repeat_with_more_copies_at_least_than_at_most_matches_nothing() -> None:
    for item in (A, ir.sequence((A, ir.Rule("long")))):
        for bounds in ((3, 2), (500, 400)):
            automaton = automaton_of(ir.Repeat(item, *bounds), long=ir.Bytes(b"b" * 60))
            assert automaton.start == DEAD, (item, bounds)


@pytest.mark.parametrize("item", [ir.EPSILON, ir.NOTHING, ir.Bytes(b"")], ids=str)
def test_copies_of_nothing_cost_nothing(item: ir.Node) -> None:
    for minimum in (0, 1_000_000):
        automaton = automaton_of(
            ir.sequence((A, ir.Repeat(item, minimum, 10_000_000))), Limits(time=2.0)
        )
        assert automaton.network.n_states < 50
        assert accepts(automaton, b"a") == (minimum == 0 or item != ir.NOTHING)


def test_nested_plus_stays_linear() -> None:
    node: ir.Node = A
    for _ in range(40):
        node = ir.Repeat(node, 1, None)
    automaton = automaton_of(node, Limits(time=5.0))
    assert accepts(automaton, b"aaa")
    assert not accepts(automaton, b"")


@pytest.mark.parametrize("expand", [-1, 1 << 12])
def test_ambiguous_and_nullable_copies_are_counted_exactly(
    expand: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_module, "_EXPAND_WEIGHT", expand)
    items = [
        ir.Choice((A, ir.Bytes(b"aa"))),
        ir.Repeat(A, 0, 2),
        ir.Choice((ir.Bytes(b"ab"), A, ir.EPSILON, B)),
        ir.Repeat(ir.Choice((A, B)), 2, None),
    ]
    for item, minimum, maximum in itertools.product(items, (0, 1, 2, 5), (None, 5, 7)):
        node = ir.sequence((ir.Repeat(item, minimum, maximum), ir.Choice((B, ir.EPSILON))))
        automaton = automaton_of(node)
        reference = Recogniser(ir.GrammarIR({"root": node}, "root"))
        for length in range(17):
            for text in {b"a" * length, b"ab" * (length // 2), b"a" * length + b"b"}:
                assert accepts(automaton, text) == reference.accepts(text), (node, text)


# -- members ---------------------------------------------------------------------------------


def test_a_key_that_may_be_empty_is_refused_by_name() -> None:
    node = ir.Members((ir.Member(ir.Choice((A, ir.EPSILON)), B),), ir.Bytes(b","))
    with pytest.raises(UnsupportedFeature, match="key"):
        automaton_of(node)


def test_a_recursive_key_is_refused_by_name() -> None:
    for key in (ir.Rule("k"), ir.Members((ir.Member(A, B),), ir.Bytes(b","))):
        node = ir.Members((ir.Member(ir.sequence((A, key)), B),), ir.Bytes(b","))
        with pytest.raises(UnsupportedFeature, match="key"):
            automaton_of(node, k=ir.sequence((A, ir.choice((ir.Rule("k"), B)))))


def test_a_key_may_be_an_automaton() -> None:
    loop = ir.Automaton((((A, 1),), ((B, 0), (A, 1))), frozenset((1,)))
    automaton = automaton_of(ir.Members((ir.Member(loop, ir.Bytes(b"=")),), ir.Bytes(b",")))
    assert accepts(automaton, b"aaba=")
    assert not accepts(automaton, b"ab=")
    recursive = ir.Automaton((((ir.sequence((A, ir.Rule("root"))), 0),),), frozenset((0,)))
    with pytest.raises(UnsupportedFeature, match="key"):
        automaton_of(ir.Members((ir.Member(recursive, B),), ir.Bytes(b",")))


@pytest.mark.parametrize("order", ["declared", "any"])
def test_a_key_belongs_to_the_first_member_that_contains_it(order: str) -> None:
    any_key = ir.Repeat(ir.Chars(((97, 98),)), 1, None)
    node = ir.Members(
        (
            ir.Member(ir.Bytes(b"ab"), ir.Bytes(b"=1"), required=True),
            ir.Member(ir.Bytes(b"ba"), ir.Bytes(b"=2")),
            ir.Member(any_key, ir.Bytes(b"=3"), repeatable=True),
        ),
        ir.Bytes(b","),
        order,  # type: ignore[arg-type]
    )
    automaton = automaton_of(node)
    good = [b"ab=1", b"ab=1,ba=2", b"ab=1,a=3,a=3,b=3", b"ab=1,ba=2,bb=3"]
    other_order = [b"ba=2,ab=1", b"a=3,ab=1,b=3"]
    bad = [b"", b"ab=3", b"ab=1,ab=3", b"ab=1,ba=3", b"ba=2", b"a=3", b"ab=1,", b"ab=1,ba=2,ba=2"]
    for text in good:
        assert accepts(automaton, text), text
    for text in other_order:
        assert accepts(automaton, text) == (order == "any"), text
    for text in bad:
        assert not accepts(automaton, text), text


def test_a_required_member_without_a_value_makes_the_list_impossible() -> None:
    for order in ("declared", "any"):
        node = ir.Members(
            (ir.Member(A, B), ir.Member(B, ir.NOTHING, required=True)),
            ir.Bytes(b","),
            order,  # type: ignore[arg-type]
        )
        assert automaton_of(node).start == DEAD


def test_three_hundred_members_come_in_any_order() -> None:
    members = tuple(
        ir.Member(ir.Bytes(b"k%d:" % k), ir.Chars(((48, 57),)), required=k % 3 == 0)
        for k in range(300)
    )
    node = ir.sequence((ir.Bytes(b"{"), ir.Members(members, ir.Bytes(b","), "any"), ir.Bytes(b"}")))
    automaton = automaton_of(node)
    rng = random.Random(7)
    for _ in range(10):
        keys = [k for k in range(300) if k % 3 == 0 or rng.random() < 0.5]
        rng.shuffle(keys)
        text = b"{" + b",".join(b"k%d:1" % k for k in keys) + b"}"
        assert accepts(automaton, text)
        assert not accepts(automaton, text[:-1] + b",k%d:2}" % rng.choice(keys))
        missing = b"{" + b",".join(b"k%d:1" % k for k in keys if k != 3) + b"}"
        assert not accepts(automaton, missing)
        state = automaton.advance(automaton.start, missing[:-1])
        assert automaton.cost(state) == len(b",k3:1}")


# -- recursion -------------------------------------------------------------------------------


def test_brackets_nest_ten_thousand_deep() -> None:
    node = ir.sequence((ir.Bytes(b"["), ir.choice((ir.Rule("root"), ir.EPSILON)), ir.Bytes(b"]")))
    automaton = automaton_of(node)
    depth = 10_000
    state = automaton.advance(automaton.start, b"[" * depth)
    assert automaton.cost(state) == depth
    assert accepts(automaton, b"[" * depth + b"]" * depth)
    assert not accepts(automaton, b"[" * depth + b"]" * (depth - 1))
    assert not accepts(automaton, b"[" * depth + b"]" * (depth + 1))


def test_an_ambiguous_grammar_stays_polynomial() -> None:
    s = ir.Rule("root")
    node = ir.choice((ir.sequence((A, s, A)), ir.sequence((A, s, B)), ir.sequence((A, s, s)), A))
    automaton = automaton_of(node)
    reference = Recogniser(ir.GrammarIR({"root": node}, "root"))
    for length in range(1, 40):
        assert accepts(automaton, b"a" * length) == reference.accepts(b"a" * length)
    assert accepts(automaton, b"a" * 150 + b"b" * 149)


def test_tail_recursion_keeps_one_configuration() -> None:
    automaton = automaton_of(
        ir.Rule("list"),
        list=ir.sequence((ir.Bytes(b"x" * 60), ir.choice((ir.Rule("list"), ir.EPSILON)))),
    )
    state = automaton.advance(automaton.start, b"x" * 6000)
    assert automaton.accepting(state)
    assert automaton.n_configurations < 200


@pytest.mark.parametrize(
    "rules",
    [
        {"root": ir.sequence((ir.Rule("root"), A))},
        {"root": ir.choice((ir.sequence((ir.Rule("other"), A)), B)), "other": ir.Rule("root")},
        {"root": ir.sequence((ir.Repeat(A, 0, None), ir.Rule("root"), A))},
        {"root": ir.sequence((ir.Repeat(ir.Rule("root"), 0, 70), A))},
        {"root": ir.Rule("root")},
    ],
    ids=lambda rules: f"{len(rules)} rules",
)
def test_left_recursion_is_refused(rules: dict[str, ir.Node]) -> None:
    with pytest.raises(UnsupportedFeature, match="left recursion"):
        build_network(ir.GrammarIR(rules, "root"))


def test_an_empty_language_has_no_start() -> None:
    endless = ir.sequence((A, ir.Rule("root")))
    for node in (ir.NOTHING, endless, ir.sequence((A, ir.NOTHING)), ir.Repeat(ir.NOTHING, 1, None)):
        automaton = automaton_of(node)
        assert automaton.start == DEAD
        assert not accepts(automaton, b"a")


def test_a_branch_that_cannot_end_is_never_entered() -> None:
    automaton = automaton_of(
        ir.choice((A, ir.sequence((B, ir.Rule("endless"))))),
        endless=ir.sequence((A, ir.Rule("endless"))),
    )
    assert automaton.advance(automaton.start, b"b") == DEAD
    assert automaton.consumed(automaton.start, b"aa") == 1


def test_deeply_nested_nodes_are_built() -> None:
    node: ir.Node = A
    for k in range(2_000):
        node = ir.Sequence((ir.Choice((node, B)), B)) if k % 2 else ir.Sequence((A, node))
    automaton = automaton_of(node)
    assert automaton.cost(automaton.start) > 0


# -- budgets ---------------------------------------------------------------------------------


def exponential(depth: int) -> ir.Node:
    """Its smallest deterministic automaton has more than 2 ** depth states."""
    letter = ir.Chars(((97, 98),))
    return ir.sequence((ir.Repeat(letter, 0, None), A, ir.sequence((letter,) * depth)))


def test_the_budget_of_states_is_kept() -> None:
    with pytest.raises(BudgetExceeded) as caught:
        automaton_of(exponential(18), Limits(states=20_000))
    assert caught.value.what == "states"
    assert caught.value.limit == 20_000


def test_the_budget_of_time_is_kept() -> None:
    with pytest.raises(BudgetExceeded) as caught:
        automaton_of(exponential(24), Limits(time=0.2, states=1 << 40))
    assert caught.value.what == "time"


def test_the_budget_of_time_covers_shared_nodes_that_unfold() -> None:
    node: ir.Node = A
    for _ in range(40):
        node = ir.Sequence((node, B, node))
    with pytest.raises(BudgetExceeded):
        automaton_of(node, Limits(time=0.5))


def test_the_budget_of_memory_is_kept_and_the_automaton_stays_usable() -> None:
    automaton = automaton_of(ir.Repeat(A, 0, 1_000_000), Limits(memory=4 << 20))
    with pytest.raises(BudgetExceeded) as caught:
        automaton.advance(automaton.start, b"a" * 1_000_000)
    assert caught.value.what == "memory"
    assert accepts(automaton, b"a" * 100)


def test_tables_grow_without_losing_anything() -> None:
    automaton = automaton_of(ir.Repeat(ir.Choice((A, B)), 0, 30_000))
    numbers = [automaton.start]
    for _ in range(20_000):
        numbers.append(automaton.advance(numbers[-1], b"b"))
    assert automaton.n_configurations > 20_000
    assert len(set(numbers)) == len(numbers)
    assert [automaton.advance(s, b"a") for s in numbers[:-1]] == numbers[1:]
    assert automaton.cost(automaton.start) == 0
    assert automaton.cost(numbers[7]) < UNREACHABLE
