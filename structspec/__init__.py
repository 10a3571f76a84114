"""structspec: language-model output that fits a JSON Schema or a grammar, and comes fast.

One automaton masks the draft and the target; whole blocks are verified at once without changing
the target's masked law.

    >>> import structspec
    >>> structspec.compile({"enum": ["red", "green"]}).accepts('"green"')
    True

Importing this module loads neither torch nor transformers; `load`, `generate` and `structured`
need the extra `models`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from structspec.errors import (
    BatchError,
    BudgetExceeded,
    DraftError,
    KernelError,
    MissingExtra,
    ModelError,
    PromptError,
    SchemaError,
    SerializationError,
    StaleState,
    StructspecError,
    TokenBudgetError,
    TokenRejected,
    ToolCallError,
    ToolError,
    Unsatisfiable,
    UnsupportedFeature,
    ValueRejected,
    VocabularyError,
)
from structspec.extras import import_room
from structspec.limits import Limits

if TYPE_CHECKING:
    from structspec.api import Result, generate, stream
    from structspec.constraint_cache import ConstraintCache
    from structspec.decorators import structured
    from structspec.forward.sampling import Sampling
    from structspec.grammar import Grammar, compile
    from structspec.masks.constraint import Constraint
    from structspec.models import Model, load
    from structspec.report import Report
    from structspec.settings import set_compile_processes, set_threads
    from structspec.tools import ToolCall, ToolSet, call_tools, stream_tools, tool
    from structspec.vocab import Vocabulary

__version__ = "0.1.0"

__all__ = [
    "BatchError",
    "BudgetExceeded",
    "Constraint",
    "ConstraintCache",
    "DraftError",
    "Grammar",
    "KernelError",
    "Limits",
    "MissingExtra",
    "Model",
    "ModelError",
    "PromptError",
    "Report",
    "Result",
    "Sampling",
    "SchemaError",
    "SerializationError",
    "StaleState",
    "StructspecError",
    "TokenBudgetError",
    "TokenRejected",
    "ToolCall",
    "ToolCallError",
    "ToolError",
    "ToolSet",
    "Unsatisfiable",
    "UnsupportedFeature",
    "ValueRejected",
    "Vocabulary",
    "VocabularyError",
    "call_tools",
    "compile",
    "generate",
    "load",
    "set_compile_processes",
    "set_threads",
    "stream",
    "stream_tools",
    "structured",
    "tool",
]

# Loaded when first used: numba and torch take time to import, and many users need only errors,
# limits or the command line's help.
_HOMES = {
    "Constraint": "structspec.masks.constraint",
    "ConstraintCache": "structspec.constraint_cache",
    "Grammar": "structspec.grammar",
    "Model": "structspec.models",
    "Report": "structspec.report",
    "Result": "structspec.api",
    "Sampling": "structspec.forward.sampling",
    "ToolCall": "structspec.tools",
    "ToolSet": "structspec.tools",
    "Vocabulary": "structspec.vocab",
    "call_tools": "structspec.tools",
    "compile": "structspec.grammar",
    "generate": "structspec.api",
    "load": "structspec.models",
    "set_compile_processes": "structspec.settings",
    "set_threads": "structspec.settings",
    "stream": "structspec.api",
    "stream_tools": "structspec.tools",
    "structured": "structspec.decorators",
    "tool": "structspec.tools",
}


# Rooms that `structspec.NAME` reaches without an import of their own.
_ROOMS = frozenset(
    {"decoding", "drafting", "grammars", "models", "sampling", "settings", "tools", "verification"}
)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_room(f"structspec.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'structspec' has no attribute {name!r}")
    value = getattr(import_room(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
