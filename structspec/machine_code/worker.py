"""A process that compiles kernels for `crew`: reads one order a line, answers each with a line.

An order is `{"kernel", "signatures"}`, an answer `{"kernel", "error"}` (null if all went well); an
empty line says that there are no more orders. The machine code goes to the cache on disk; nothing
is ever run here.
"""

from __future__ import annotations

import gc
import json
import os
import sys

from structspec.machine_code import linking, ready
from structspec.machine_code.catalogue import Entry

__all__ = ["main"]

# PERF: compiling makes millions of small objects and few circles; the collector's default looks at
# them again and again.
_COLLECT_AFTER = 200_000


def main() -> None:
    """Answer orders until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what compilers print must not mix with the answers
    gc.set_threshold(_COLLECT_AFTER, 20, 100)
    ready.skip()
    for line in sys.stdin:
        if not line.strip():
            break
        order = json.loads(line)
        entry = Entry(order["kernel"], tuple(order["signatures"]), 0.0)
        error = None
        try:
            entry.load()
            linking.declare()
            entry.compile()
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"[:500]
        print(json.dumps({"kernel": entry.kernel, "error": error}), file=answers, flush=True)
