"""Constraints: transitions, end tokens, forced bytes, caches, threads, refusals."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import structspec
from structspec import ir
from structspec.automata.network import build_network
from structspec.errors import (
    BudgetExceeded,
    StaleState,
    StructspecError,
    TokenRejected,
    Unsatisfiable,
)
from structspec.limits import Limits
from structspec.masks.constraint import END, Constraint
from structspec.vocab import Vocabulary

LETTERS = Vocabulary([b"a", b"b", b"ab", b"c", None, b"", b"ba"], [4], {4: "</s>"}, 40)
SPARSE = Vocabulary([b"ab", b"ba", b"a", None], [3])


def bind(node: ir.Node | str, vocab: Vocabulary = LETTERS, **limits: float) -> Constraint:
    settings = Limits(**limits) if limits else None  # type: ignore[arg-type]
    if isinstance(node, str):
        network = structspec.compile(node, syntax="regex").network
    else:
        network = build_network(ir.GrammarIR({"root": node}, "root"))
    return Constraint(network, vocab, settings)


def run(c: Constraint, *tokens: int) -> int:
    state = c.start
    for token in tokens:
        state = c.advance(state, token)
    return state


# -- transitions and end tokens ----------------------------------------------------------------


def test_a_rejected_token_names_allowed_ones_and_leaves_the_state_usable() -> None:
    c = bind("ab?c")
    state = run(c, 0)
    for token in (0, 2, 4, 5, 6, 7, 39, 40, -1, 10**9):
        with pytest.raises(TokenRejected) as caught:
            c.advance(state, token)
        assert caught.value.expected == (1, 3)
        assert (caught.value.token, caught.value.state) == (token, state)
        assert isinstance(caught.value, ValueError)
    assert c.accepting(c.advance(state, 3))


def test_after_an_end_token_the_text_is_complete_and_nothing_may_follow() -> None:
    c = bind("ab?")
    ended = c.advance(run(c, 0), 4)
    assert ended == END
    assert c.accepting(ended) and c.distance(ended) == 0
    assert not c.mask(ended).any() and not c.mask(ended, 5).any()
    assert c.forced(ended) == c.suggest(ended) == b""
    assert c.advance_bytes(ended, b"") == ended
    assert c.advance_bytes(ended, b"b") is None
    for token in (0, 4):
        with pytest.raises(TokenRejected, match="ended"):
            c.advance(ended, token)


def test_end_tokens_behind_the_vocabulary_end_the_text() -> None:
    c = bind("a", Vocabulary([b"a", b"b"], [5, 7], logit_width=9))
    assert c.allowed(run(c, 0)).tolist() == [5, 7]
    assert c.advance(run(c, 0), 7) == END
    with pytest.raises(TokenRejected):
        c.advance(run(c, 0), 6)


def test_equal_byte_strings_lead_to_equal_states() -> None:
    c = bind("(ab|ba)*")
    assert run(c, 2, 6) == run(c, 0, 1, 6) == run(c, 0, 1, 1, 0)
    assert run(c, 2) == c.start


def test_bytes_need_not_be_tokens() -> None:
    c = bind("a(ba)*c")
    assert c.advance_bytes(c.start, b"abababac") == run(c, 2, 2, 2, 0, 3)
    assert c.advance_bytes(c.start, b"abb") is None
    assert c.advance_bytes(c.start, b"") == c.start


def test_rows_are_read_only_and_fill_writes_them() -> None:
    c = bind("a[ab]*c")
    states = [c.start, run(c, 0), run(c, 2, 3), END]
    for state in states[:3]:
        with pytest.raises(ValueError):
            c.mask(state)[0] = 1
    out = np.full((6, 2), 77, np.uint32)
    c.fill(states, out)
    assert out[:4].tolist() == [c.mask(s).tolist() for s in states]
    assert (out[4:] == 77).all()
    c.fill(states, out, left=[1, 2, None, 0])
    expected = [c.mask(c.start, 1), c.mask(states[1], 2), c.mask(states[2]), c.mask(END, 0)]
    assert out[:4].tolist() == [row.tolist() for row in expected]


@pytest.mark.parametrize("vocab", [LETTERS, SPARSE], ids=["covered", "sparse"])
def test_a_budget_of_no_tokens_allows_the_end_only(vocab: Vocabulary) -> None:
    c = bind("(ab)+", vocab)
    assert c.distance(c.start) == 1
    for left in (0, -3):
        assert c.allowed(c.start, left).size == 0
    done = run(c, vocab.tokens.index(b"ab"))
    assert c.allowed(done, 0).tolist() == list(vocab.eos_ids)


# -- forced and suggested bytes ------------------------------------------------------------------


def test_forced_bytes_stop_at_a_choice_and_where_the_text_may_end() -> None:
    assert bind("ab(ca|cb)").forced(bind("ab(ca|cb)").start) == b"abc"
    assert bind("ab?").forced(bind("ab?").start) == b"a"
    c = bind("[ab]c")
    assert c.forced(c.start) == b""
    assert c.forced(run(c, 0)) == b"c"


def test_a_choice_within_one_byte_class_is_not_forced() -> None:
    for pattern in ("[ab]|c", "c|[ab]", "[ab]a|cb", ".", "[^a]"):
        c = bind(pattern, Vocabulary([b"a", b"b", b"c", b"d"], []))
        assert c.forced(c.start) == b"", pattern


def test_bytes_that_the_vocabulary_lacks_are_no_choice() -> None:
    c = bind("[a-z]c", Vocabulary([b"a", b"c", b"ac"], []))
    assert c.forced(c.start) == b""
    c = bind("[b-z]", Vocabulary([b"a", b"c", b"ac"], []))
    assert c.forced(c.start) == b"c"


def test_suggestions_leave_out_other_spellings_and_forced_bytes_do_not() -> None:
    node = ir.sequence(
        (ir.Bytes(b"a"), ir.choice((ir.Bytes(b"bc"), ir.Variant(ir.Bytes(b"c")))), ir.Bytes(b"a"))
    )
    c = bind(node)
    assert c.forced(c.start) == b"a"
    assert c.suggest(c.start) == b"abca"
    assert c.accepting(c.advance_bytes(c.start, b"aca") or END)
    assert c.advance_bytes(c.start, c.suggest(c.start)) is not None


def test_a_byte_that_both_spellings_begin_with_may_be_suggested() -> None:
    node = ir.choice((ir.Bytes(b"ab"), ir.Variant(ir.Bytes(b"ac"))))
    c = bind(node)
    assert c.suggest(c.start).startswith(b"a")


# -- caches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab", [LETTERS, SPARSE], ids=["covered", "sparse"])
def test_compacting_keeps_the_meaning_of_kept_states_and_makes_others_stale(
    vocab: Vocabulary,
) -> None:
    # nested and counted, so that frames with registers and parents are copied
    inner = ir.Rule("root")
    pair = ir.choice((ir.Bytes(b"ab"), ir.Bytes(b"ba")))
    node = ir.sequence((ir.Bytes(b"ab"), ir.Repeat(ir.choice((pair, inner)), 0, 100), pair))
    node = ir.choice((node, ir.sequence((ir.Bytes(b"aba"), ir.Repeat(pair, 20, 30)))))
    c = bind(node, vocab)
    fresh = bind(node, vocab)
    rng = random.Random(3)
    ids = [i for i, t in enumerate(vocab.tokens) if t]
    states = {c.start: fresh.start, END: END}
    for _ in range(10):
        state, twin = c.start, fresh.start
        for _ in range(12):
            allowed = [t for t in c.allowed(state).tolist() if t in ids]
            if not allowed:
                break
            token = rng.choice(allowed)
            state, twin = c.advance(state, token), fresh.advance(twin, token)
            states[state] = twin
    kept = [*rng.sample(sorted(states), 8), c.start, END]
    old_start = c.start
    mapping = c.cache.compact(kept)
    assert set(mapping) == set(kept)
    assert mapping[END] == END
    assert mapping[old_start] == c.start != old_start
    for state in set(states) - {END}:
        for query in (c.mask, c.accepting, c.distance, c.forced, c.suggest):
            with pytest.raises(StaleState):
                query(state)
        with pytest.raises(StaleState):
            c.advance(state, ids[0])
    for state in kept:
        new, twin = mapping[state], states[state]
        assert c.accepting(new) == fresh.accepting(twin)
        assert c.distance(new) == fresh.distance(twin)
        assert c.forced(new) == fresh.forced(twin)
        for left in (None, 1, 3, 50):
            assert np.array_equal(c.mask(new, left), fresh.mask(twin, left))
        for token in c.allowed(new).tolist():
            a, b = c.advance(new, token), fresh.advance(twin, token)
            assert np.array_equal(c.mask(a), fresh.mask(b))
    again = c.cache.compact([c.start])
    assert list(again.values()) == [c.start]


def test_compacting_keeps_sets_of_members() -> None:
    members = tuple(ir.Member(ir.Bytes(b"a" * k + b"b"), ir.Bytes(b"c")) for k in range(70))
    c = bind(ir.Members(members, ir.Bytes(b"ab"), "any"))
    text = b"ab".join(b"a" * k + b"bc" for k in (60, 3, 69, 20))
    state = c.advance_bytes(c.start, text)
    assert state is not None
    new = c.cache.compact([state])[state]
    for k in range(70):
        following = c.advance_bytes(new, b"ab" + b"a" * k + b"bc")
        assert (following is None) == (k in (60, 3, 69, 20)), k


def test_another_cache_gives_the_same_masks_and_keeps_the_first_untouched() -> None:
    c = bind("(a|ba)*c")
    twin = c.with_cache(c.new_cache())
    assert twin.cache is not c.cache
    before = c.cache.automaton.n_configurations
    assert np.array_equal(twin.mask(twin.start), bind("(a|ba)*c").mask(c.start))
    assert twin.accepting(run(twin, 0, 6, 3))
    assert c.cache.automaton.n_configurations == before
    twin.cache.compact([])
    assert c.accepting(run(c, 0, 6, 3)) and twin.accepting(run(twin, 0, 6, 3))


def test_the_cache_of_another_constraint_is_refused() -> None:
    with pytest.raises(StructspecError, match="cache"):
        bind("a*").with_cache(bind("b*").cache)


def test_rows_that_pass_the_budget_of_memory_are_made_again() -> None:
    c = bind("(a|b){0,400}", memory=24 << 20)
    c.cache._knowledge._most_rows = 2
    c.cache._knowledge._make_pool()
    expected = bind("(a|b){0,400}")
    state, twin = c.start, expected.start
    for _ in range(60):
        assert np.array_equal(c.mask(state), expected.mask(twin))
        assert c.cache.n_rows <= 2
        state, twin = c.advance(state, 0), expected.advance(twin, 0)


def test_the_memory_of_a_cache_is_bounded_and_the_constraint_stays_usable() -> None:
    c = bind("a{0,100000}", memory=4 << 20)
    state = c.start
    with pytest.raises(BudgetExceeded) as caught:
        for _ in range(100_000):
            state = c.advance(state, 0)
    assert caught.value.what == "memory"
    state = c.cache.compact([state])[state]
    for _ in range(50):
        state = c.advance(state, 0)
    assert c.allowed(state).tolist() == [0, 4]


def test_five_thousand_configurations_keep_their_masks() -> None:
    c = bind("a{0,6000}b")
    states = [c.start]
    for _ in range(5_500):
        c.mask(states[-1])
        states.append(c.advance(states[-1], 0))
    assert c.cache.automaton.n_configurations > 5_000
    fresh = bind("a{0,6000}b")
    state = fresh.start
    for old in states[:300]:
        assert np.array_equal(c.mask(old), fresh.mask(state))
        state = fresh.advance(state, 0)
    assert c.distance(states[-1]) == 1


def test_three_hundred_members_in_any_order_are_masked() -> None:
    vocab = Vocabulary([bytes((b,)) for b in range(256)] + [b"0:x", b"k1", b"k299:x"], [])
    members = tuple(
        ir.Member(ir.Bytes(b"k%d:" % k), ir.Bytes(b"x"), required=k % 2 == 0) for k in range(300)
    )
    c = bind(ir.Members(members, ir.Bytes(b","), "any"), vocab)
    rng = random.Random(1)
    order = list(range(300))
    rng.shuffle(order)
    state, left = c.start, c.distance(c.start)
    done: set[int] = set()
    for k in order[:200]:
        state_ = c.advance_bytes(state, (b"," if done else b"") + b"k%d:x" % k)
        assert state_ is not None
        state = state_
        done.add(k)
        rest = [j for j in range(0, 300, 2) if j not in done]
        assert c.accepting(state) == (not rest)
        assert c.distance(state) <= sum(len(b",k%d:x" % j) for j in rest)
        open_ = c.advance_bytes(state, b",")
        assert open_ is not None
        assert (vocab.tokens.index(b"k299:x") in c.allowed(open_)) == (299 not in done)
    assert left >= 150 * 3


# -- threads -----------------------------------------------------------------------------------


def test_four_threads_on_one_constraint_agree_with_one() -> None:
    pattern = "(ab|ba|c){0,400}(abc)*"
    shared, alone = bind(pattern), bind(pattern)
    failures: list[object] = []

    def work(seed: int) -> None:
        try:
            rng = random.Random(seed)
            result = []
            state = shared.start
            for _ in range(300):
                allowed = [t for t in shared.allowed(state).tolist() if t != 4]
                token = rng.choice(allowed)
                result.append((token, shared.mask(state).tolist(), shared.distance(state)))
                state = shared.advance(state, token)
            results[seed] = result
        except BaseException as error:
            failures.append(error)

    results: dict[int, list[tuple[int, list[int], int]]] = {}
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for seed in range(4):
        state = alone.start
        for token, row, distance in results[seed]:
            assert (alone.mask(state).tolist(), alone.distance(state)) == (row, distance)
            state = alone.advance(state, token)


def test_compacting_beside_other_threads_gives_stale_states_and_never_wrong_ones() -> None:
    c, alone = bind("(ab|ba|c){0,400}"), bind("(ab|ba|c){0,400}")
    stop, failures = threading.Event(), []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            state, twin = c.start, alone.start
            try:
                for _ in range(60):
                    row = c.mask(state)
                    if not np.array_equal(row, alone.mask(twin)):
                        failures.append((state, twin))
                    token = rng.choice([t for t in alone.allowed(twin).tolist() if t != 4])
                    state, twin = c.advance(state, token), alone.advance(twin, token)
            except StaleState:
                continue
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        c.cache.compact([])
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


# -- refusals ----------------------------------------------------------------------------------


def test_an_empty_language_cannot_be_bound() -> None:
    for node in (ir.NOTHING, ir.sequence((ir.Bytes(b"a"), ir.Rule("root")))):
        with pytest.raises(Unsatisfiable, match="empty") as caught:
            bind(node)
        assert caught.value.missing == b""


def test_missing_bytes_are_named() -> None:
    with pytest.raises(Unsatisfiable, match=r"5A \('Z'\)") as caught:
        bind("a(b|c)Z")
    assert caught.value.missing == b"Z"
    with pytest.raises(Unsatisfiable) as caught:
        bind("é")
    assert set(caught.value.missing) == set("é".encode())


def test_tokens_that_do_not_combine_are_told_from_missing_bytes() -> None:
    with pytest.raises(Unsatisfiable, match="combine") as caught:
        bind("b", SPARSE)
    assert caught.value.missing == b""


def test_a_branch_that_the_vocabulary_cannot_finish_is_not_offered() -> None:
    c = bind("a(bZ|c)|cc")
    assert c.allowed(c.start).tolist() == [0, 3]
    assert c.allowed(run(c, 0)).tolist() == [3]


def test_the_empty_text_can_be_the_only_one() -> None:
    c = bind("", SPARSE)
    assert c.accepting(c.start) and c.distance(c.start) == 0
    assert c.allowed(c.start).tolist() == [3]
    c = bind("Z?")
    assert c.allowed(c.start).tolist() == [4]


def test_the_core_imports_without_torch_and_transformers() -> None:
    code = (
        "import sys, structspec.grammar\n"
        "heavy = {'torch', 'transformers', 'typer', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_memory_goes_with_the_last_reference() -> None:
    c = bind("a[ab]*c")
    c.mask(c.advance(c.start, 0))
    automaton = weakref.ref(c.cache.automaton)
    gc.disable()  # nothing may wait for the collector of circles
    try:
        del c
        assert automaton() is None
    finally:
        gc.enable()
