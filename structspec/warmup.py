"""Compiling all kernels ahead, so that no request waits for it.

numba compiles kernels when they are first called and keeps the machine code on disk (beside the
package, or in `NUMBA_CACHE_DIR`). `warm_up` has several processes make what is missing there
(`machine_code`), and then calls each kernel once, on a vocabulary of bytes and a schema that uses
every feature: the first mask of a process is quick afterwards.

Example: `warm_up(print)`, or `structspec warmup` on the command line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from structspec.machine_code.ready import compile_missing

__all__ = ["use_every_kernel", "warm_up"]

_SCHEMA = """{"type": "object", "properties": {
  "a": {"type": "integer", "minimum": 3}, "b": {"type": "string", "maxLength": 90},
  "c": {"type": "array", "items": {"$ref": "#"}, "maxItems": 500}, "d": {"enum": [1, "x"]},
  "e": {"type": "string", "pattern": "^[a-f]+\\\\S*$"}},
  "required": ["a"], "minProperties": 2, "additionalProperties": {"type": "boolean"}}"""
#: A grammar that is in many rules at once.
_LEVELS = ("+", "-", "*", "/", "<", ">", "=", "&", "|", "^", "%", "@", "!", "?", ":", ";", "~", "$")
_ATOMS = " | ".join(['"(" e0 ")"', *(f'"{c}" [0-9]' for c in _LEVELS)])
_AMBIGUOUS = "\n".join(
    [
        "root ::= e0",
        *(f'e{k} ::= e{k + 1} ("{c}" e{k + 1})*' for k, c in enumerate(_LEVELS)),
        f"e{len(_LEVELS)} ::= [a-z]+ | {_ATOMS}",
    ]
)
_TEXT = b'{"a": 12, "b": "some text", "c": [{"a": 3, "e": "abc"}], "d": "x", "other": true}'


def warm_up(
    say: Callable[[str], object] = lambda line: None, processes: int | None = None
) -> float:
    """Make what is missing on disk and run every kernel once; returns the seconds it took.

    say: gets a line per step. processes: how many compile, None for as many as there are cores
    (see `settings.compile_processes`).
    """
    began = time.perf_counter()
    compile_missing(say, processes)
    for step, seconds in use_every_kernel():
        say(f"{step}: {seconds:.1f} s")
    return time.perf_counter() - began


def use_every_kernel() -> Iterator[tuple[str, float]]:
    """Call every kernel in the order of their use; yields each step and its seconds."""
    last = time.perf_counter()

    def spent() -> float:
        nonlocal last
        before, last = last, time.perf_counter()
        return last - before

    from structspec.automata.chardfa import prepare
    from structspec.grammar import compile as compile_grammar
    from structspec.masks.tables import place_hashes
    from structspec.vocab import Vocabulary

    yield "import", spent()
    words = [bytes((a, b)) for a in range(97, 123) for b in range(97, 123)]
    vocab = Vocabulary([*(bytes((b,)) for b in range(256)), *words, None], [256 + len(words)])
    _ = vocab.trie, vocab.plain
    yield "vocabulary", spent()
    prepare()
    grammar = compile_grammar(_SCHEMA)
    yield "schema", spent()
    if not grammar.accepts(_TEXT):
        raise AssertionError("the text of the warm-up does not fit its schema")
    compile_grammar(_SCHEMA, key_order="any").accepts(_TEXT)
    yield "automaton", spent()
    constraint = grammar.bind(vocab)
    yield "costs of the vocabulary", spent()
    state = constraint.start
    for byte in _TEXT:
        constraint.mask(state)
        constraint.mask(state, 60)
        state = constraint.advance(state, byte)
    out = np.zeros((2, len(constraint.mask(state))), np.uint32)
    constraint.fill([constraint.start, state], out)
    constraint.forced(constraint.start)
    ambiguous = compile_grammar(_AMBIGUOUS, syntax="gbnf").bind(vocab)
    for text in (b"", b"ab", b"ab+(c"):
        after = ambiguous.advance_bytes(ambiguous.start, text)
        if after is None:
            raise AssertionError("the text of the warm-up does not fit its grammar")
        ambiguous.mask(after)
    constraint.cache.compact([state])
    place_hashes(constraint.cache.known, np.zeros(0, np.int32))
    yield "masks", spent()
