"""`compiled`: grammars of output types, compiled once and kept for the next request.

Owns the memory of what `generate`, decorators, adapters and training ask for again and again, and
how they spell where the caller does not say: canonical spelling and conventional whitespace, since
every further spelling splits the model's mass and hides forced text.

Invariants
- equal types with equal options give the same `Grammar`, and so share what its constraints learnt;
- types that cannot be told apart by a key are compiled anew each time.

Cost: a look-up; the most recent `_KEPT_GRAMMARS` are kept.

Sibling: `grammar.compile`, which it calls and which keeps nothing.

Example::

    compiled(Person, {"key_order": "any"}).bind(model.vocab)
"""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from structspec.errors import SchemaError
from structspec.grammar import Grammar
from structspec.grammar import compile as compile_grammar
from structspec.locks import lock

__all__ = ["COMPILE_OPTIONS", "KeptGrammars", "check_options", "compiled"]

#: How texts are spelled, where the caller does not say.
_SPELLING = {"spelling": "canonical", "whitespace": "conventional"}
COMPILE_OPTIONS = frozenset(inspect.signature(compile_grammar).parameters) - {"source"}
_KEPT_GRAMMARS = 256
#: What other libraries call arguments of `generate`.
_ELSEWHERE = {
    "max_new_tokens": "max_tokens",
    "max_length": "max_tokens",
    "num_return_sequences": "n",
    "do_sample": "temperature (0 is greedy)",
    "response_format": "output_type",
    "schema": "output_type",
}


class KeptGrammars:
    """The grammars that were asked for last, by key; safe to use from any thread.

    most: how many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._grammars: OrderedDict[Any, Grammar] = OrderedDict()
        self._lock = lock()

    def get(self, key: Any, make: Callable[[], Grammar]) -> Grammar:
        """The grammar of a key, made if need be (without the lock, so perhaps twice at once)."""
        with self._lock:
            found = self._grammars.get(key)
            if found is not None:
                self._grammars.move_to_end(key)
                return found
        grammar = make()
        with self._lock:
            self._grammars[key] = grammar
            while len(self._grammars) > self._most:
                self._grammars.popitem(last=False)
        return grammar


_kept = KeptGrammars(_KEPT_GRAMMARS)


def compiled(output_type: Any, options: Mapping[str, Any]) -> Grammar:
    """Compile once per (type, options); the most recent ones are kept."""
    check_options(options)
    if isinstance(output_type, Grammar):
        if options:
            raise SchemaError(
                f"a compiled grammar takes no compile options, got {', '.join(sorted(options))}"
            )
        return output_type
    options = {**_SPELLING, **options}
    try:
        key: Any = (_key(output_type), tuple(sorted((k, _key(v)) for k, v in options.items())))
        hash(key)
    except TypeError:
        return compile_grammar(output_type, **options)
    return _kept.get(key, lambda: compile_grammar(output_type, **options))


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse what is no option of `compile`: TypeError that says what may be meant."""
    for name in sorted(set(options) - COMPILE_OPTIONS):
        near = get_close_matches(name, COMPILE_OPTIONS, 1)
        meant = _ELSEWHERE.get(name) or (near[0] if near else None)
        raise TypeError(
            f"there is no argument {name!r}"
            + (f"; did you mean {meant}?" if meant else "")
            + "; besides its own, this function takes the options of structspec.compile: "
            + ", ".join(sorted(COMPILE_OPTIONS))
        )


def _key(value: Any) -> Any:
    # Schemas are unhashable; their text says the same. 1 and 1.0 and true differ as text.
    if isinstance(value, dict | list):
        return ("json", json.dumps(value))
    return (type(value), value)
