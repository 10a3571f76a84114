"""Special tokens of the vocabulary as terminals of a grammar."""

from __future__ import annotations

import itertools
import random

import pytest

from structspec import Grammar, ir
from structspec.automata.member_costs import UNREACHABLE
from structspec.automata.network import build_network
from structspec.errors import TokenRejected, Unsatisfiable
from structspec.limits import Limits
from structspec.masks.constraint import END, Constraint
from structspec.report import Report
from structspec.vocab import Vocabulary

A, B, AB, TOOL, OPEN, CLOSE, EOS = 0, 1, 2, 3, 4, 5, 6
#: `<tool>` is text; the special token of that name is another thing.
VOCAB = Vocabulary(
    [b"a", b"b", b"ab", b"<tool>", b"<", b"t", b"o", b"l", b">"],
    [12],
    {"<tool>": 9, "</tool>": 10, "far": 11, "<end>": 12},
    logit_width=13,
)
TOOL_ID, CLOSE_ID, FAR_ID, EOS_ID = 9, 10, 11, 12
CALL = ir.Sequence(
    (
        ir.Special("<tool>"),
        ir.Repeat(ir.Bytes(b"a"), 1, 3),
        ir.Choice((ir.Special("</tool>"), ir.Special("far"))),
    )
)


def bind(node: ir.Node, vocab: Vocabulary = VOCAB, **rules: ir.Node) -> Constraint:
    return Constraint(build_network(ir.GrammarIR({"root": node, **rules}, "root")), vocab)


def grammar(node: ir.Node) -> Grammar:
    network = build_network(ir.GrammarIR({"root": node}, "root"))
    return Grammar(network, Report(()), Limits(), None)  # type: ignore[arg-type]


def run(c: Constraint, *tokens: int) -> int:
    state = c.start
    for token in tokens:
        state = c.advance(state, token)
    return state


def test_text_never_matches_a_special_token_nor_the_other_way_round() -> None:
    g = grammar(CALL)
    tool, close = ir.Special("<tool>"), ir.Special("</tool>")
    assert g.accepts_parts([tool, "aa", close])
    assert g.accepts_parts([tool, b"a", "a", "", ir.Special("far")])
    assert not g.accepts_parts([tool, "aaaa", close])
    assert not g.accepts_parts(["<tool>", "aa", close])
    assert not g.accepts_parts([tool, "aa"])
    assert not g.accepts_parts([tool, "aa", ir.Special("unknown")])
    assert not g.accepts("<tool>aa</tool>") and not g.accepts("aa")
    text = grammar(ir.Bytes(b"<tool>"))
    assert text.accepts("<tool>") and not text.accepts_parts([tool])


def test_the_mask_holds_the_special_token_and_not_its_text() -> None:
    c = bind(CALL)
    assert c.allowed(c.start).tolist() == [TOOL_ID]
    assert c.allowed(run(c, TOOL_ID)).tolist() == [A]
    assert c.allowed(run(c, TOOL_ID, A)).tolist() == [A, CLOSE_ID, FAR_ID]
    done = run(c, TOOL_ID, A, CLOSE_ID)
    assert c.accepting(done) and c.allowed(done).tolist() == [EOS_ID]
    assert c.advance(done, EOS_ID) == END
    for token in (TOOL, CLOSE_ID, EOS_ID, 13):
        with pytest.raises(TokenRejected) as caught:
            c.advance(c.start, token)
        assert caught.value.expected == (TOOL_ID,)
    both = bind(ir.Choice((CALL, ir.Bytes(b"<tool>"))))
    assert both.allowed(both.start).tolist() == [TOOL, 4, TOOL_ID]


def test_a_special_token_costs_one_token() -> None:
    c = bind(CALL)
    assert [c.distance(run(c, *ids)) for ids in ((), (TOOL_ID,), (TOOL_ID, A))] == [3, 2, 1]
    assert c.allowed(run(c, TOOL_ID, A), 1).tolist() == [CLOSE_ID, FAR_ID]
    assert c.allowed(c.start, 2).tolist() == [] and c.allowed(c.start, 3).tolist() == [TOOL_ID]
    long = bind(ir.Sequence((ir.Bytes(b"abab"), ir.Special("far"), ir.Bytes(b"<tool>"))))
    assert long.distance(long.start) == 4  # ab, ab, far, <tool>


def test_forced_and_suggested_text_stops_before_a_special_token() -> None:
    c = bind(ir.Sequence((ir.Bytes(b"ab"), ir.Special("far"), ir.Bytes(b"ba"))))
    assert c.forced(c.start) == c.suggest(c.start) == b"ab"
    assert c.forced(run(c, AB)) == c.suggest(run(c, AB)) == b""
    assert c.forced(run(c, AB, FAR_ID)) == b"ba"
    lacks = Vocabulary([b"a", b"b", None], [2], {"<end>": 2})
    either = bind(ir.Choice((ir.Bytes(b"a"), ir.Special("far"))), lacks)
    assert either.forced(either.start) == b"a"


def test_an_end_token_is_a_terminal_until_the_text_is_complete() -> None:
    end = ir.Special("<end>")
    turns = ir.Sequence((ir.Bytes(b"a"), end, ir.Bytes(b"b"), end))
    c = bind(turns)
    state = run(c, A)
    assert c.allowed(state).tolist() == [EOS_ID] and not c.accepting(state)
    state = c.advance(state, EOS_ID)
    assert state != END and c.allowed(state).tolist() == [B]
    state = c.advance(c.advance(state, B), EOS_ID)
    assert state != END and c.accepting(state) and c.advance(state, EOS_ID) == END
    with pytest.raises(TokenRejected):
        c.advance(c.start, EOS_ID)
    # Where the text may end and the token is a terminal too, it ends: always complete.
    optional = bind(ir.Sequence((ir.Bytes(b"a"), ir.Repeat(end, 0, 1))))
    assert optional.advance(run(optional, A), EOS_ID) == END


def test_branches_with_a_special_token_that_the_vocabulary_lacks_are_pruned() -> None:
    no = ir.Special("<missing>")
    c = bind(ir.Choice((ir.Sequence((ir.Bytes(b"ab"), no)), ir.Bytes(b"ba"))))
    assert c.allowed(c.start).tolist() == [B]
    with pytest.raises(Unsatisfiable, match="'<missing>'") as caught:
        bind(ir.Sequence((ir.Bytes(b"ab"), no)))
    assert caught.value.missing_special == ("<missing>",) and caught.value.missing == b""
    assert bind(ir.Repeat(no, 0, 2)).accepting(bind(ir.Repeat(no, 0, 2)).start)


def test_special_tokens_inside_calls_loops_and_keys() -> None:
    key = ir.Sequence((ir.Bytes(b"a"), ir.Special("far")))
    members = ir.Members(
        (
            ir.Member(key, ir.Rule("v"), required=True),
            ir.Member(ir.Special("<tool>"), ir.Bytes(b"b")),
        ),
        ir.Special("</tool>"),
        "any",
    )
    c = bind(members, v=ir.Repeat(ir.Sequence((ir.Bytes(b"ab"), ir.Special("far"))), 50, 90))
    assert c.allowed(c.start).tolist() == [A, TOOL_ID]
    assert c.distance(c.start) == 102 and c.distance(run(c, TOOL_ID, B)) == 103
    state = run(c, TOOL_ID, B, CLOSE_ID, A, FAR_ID, *[AB, FAR_ID] * 50)
    assert c.accepting(state) and c.allowed(state).tolist() == [A, AB, EOS_ID]
    with pytest.raises(TokenRejected):
        run(c, TOOL_ID, B, CLOSE_ID, TOOL_ID)


@pytest.mark.parametrize("covered", [True, False])
def test_distances_and_masks_agree_with_enumeration(covered: bool) -> None:
    """Every sequence of up to six tokens, over random grammars with special tokens."""
    rng = random.Random(5)
    tokens: list[bytes | None] = [b"a", b"b", b"ab"] if covered else [b"ab", b"ba", b"a"]
    vocab = Vocabulary([*tokens, None, None], [5], {"x": 3, "y": 4}, logit_width=6)
    symbols: list[ir.Node] = [ir.Bytes(b"a"), ir.Bytes(b"b"), ir.Special("x"), ir.Special("y")]

    def node(depth: int) -> ir.Node:
        kind = rng.randrange(4) if depth else 0
        if kind == 0:
            return rng.choice(symbols)
        if kind == 3:
            return ir.Repeat(node(depth - 1), rng.randrange(2), rng.choice((1, 2)))
        items = tuple(node(depth - 1) for _ in range(rng.choice((2, 2, 3))))
        return ir.Sequence(items) if kind == 1 else ir.Choice(items)

    checked = 0
    for _ in range(60):
        tree = node(3)
        texts = grammar(tree)
        parts = [
            t if t is not None else ir.Special("xy"[i - 3]) for i, t in enumerate(vocab.tokens)
        ]
        complete = {
            ids
            for n in range(6)
            for ids in itertools.product(range(5), repeat=n)
            if texts.accepts_parts([parts[i] for i in ids])  # type: ignore[misc]
        }
        try:
            c = bind(tree, vocab)
        except Unsatisfiable:
            assert not complete
            continue
        reachable = {(): c.start}
        for _ in range(3):
            fresh: dict[tuple[int, ...], int] = {}
            for ids, state in reachable.items():
                assert c.accepting(state) == (ids in complete)
                rest = [len(full) - len(ids) for full in complete if full[: len(ids)] == ids]
                if rest:
                    assert min(rest) <= c.distance(state) < UNREACHABLE
                    checked += 1
                for token in range(5):
                    longer = (*ids, token)
                    allowed = token in c.allowed(state)
                    if any(full[: len(longer)] == longer for full in complete):
                        assert allowed
                    if allowed:
                        fresh[longer] = c.advance(state, token)
                if not c.accepting(state):
                    here = c.distance(state)
                    assert any(c.distance(fresh[(*ids, t)]) < here for t in c.allowed(state))
            reachable = fresh
    assert checked > 100


def test_gbnf_names_special_tokens_by_number_too() -> None:
    import structspec

    source = 'root ::= <[9]> "a" </tool>'
    constraint = structspec.compile(source, syntax="gbnf").bind(VOCAB)
    assert constraint.accepting(run(constraint, TOOL_ID, A, CLOSE_ID))
    with pytest.raises(Unsatisfiable, match=r"<\[3\]>"):  # token 3 writes text
        structspec.compile('root ::= <[3]> "a"', syntax="gbnf").bind(VOCAB)
