"""Everything structspec raises.

::

    StructspecError
    ├── SchemaError            the schema, grammar or type is not one (also ValueError)
    ├── UnsupportedFeature     a legal keyword or construct that cannot be compiled exactly
    ├── BudgetExceeded         compiling or running would pass a limit of `Limits`
    ├── Unsatisfiable          nothing satisfies it, or this vocabulary cannot write it
    ├── TokenRejected          a token that the state does not allow (also ValueError)
    ├── StaleState             a state number that the cache does not know
    ├── TokenBudgetError       `max_tokens` is below the certified shortest completion
    ├── ValueRejected          the finished value fails a check beyond the grammar (also ValueError)
    ├── BatchError             some requests of a batch failed; it holds the others' results
    ├── PromptError            the prompt cannot be used with this model (also ValueError)
    ├── VocabularyError        bytes of tokens not readable, ids out of range (also ValueError)
    ├── ModelError             a model that cannot be loaded or that returned nonsense
    ├── DraftError             a draft that cannot be used with this target (also ValueError)
    ├── KernelError            tensors that a numeric kernel cannot take (also ValueError)
    ├── ToolError              a tool that cannot be offered or run (also ValueError)
    ├── ToolCallError          a text that is no reply in the call format (also ValueError)
    ├── SerializationError     saved bytes that this release cannot read (also ValueError)
    └── MissingExtra           an optional package is not installed (also ImportError)

Every message names the place (JSON pointer or position), the value and the limit where there is
one, and what to do. Nobody needs to parse a message: the same facts are attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "BatchError",
    "BudgetExceeded",
    "DraftError",
    "KernelError",
    "MissingExtra",
    "ModelError",
    "PromptError",
    "SchemaError",
    "SerializationError",
    "StaleState",
    "StructspecError",
    "TokenBudgetError",
    "TokenRejected",
    "ToolCallError",
    "ToolError",
    "Unsatisfiable",
    "UnsupportedFeature",
    "ValueRejected",
    "VocabularyError",
]


class StructspecError(Exception):
    """Root of all errors of this package. They can be pickled, as pools of processes do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


def _again(
    kind: type[StructspecError], args: tuple[Any, ...], facts: dict[str, Any]
) -> StructspecError:
    """The error of another process: made without its arguments, which are part of the message."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class SchemaError(StructspecError, ValueError):
    """The input is not a schema (or grammar, or type) at all.

    `pointer` is the JSON pointer of the offending place for schemas; `line` and `column`
    (1-based) locate it in source texts.
    """

    def __init__(
        self,
        message: str,
        *,
        pointer: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        self.pointer = pointer
        self.line = line
        self.column = column
        where = ""
        if pointer is not None:
            where = f"at '{pointer}': " if pointer else "at the root: "
        elif line is not None:
            where = f"line {line}, column {column}: "
        super().__init__(where + message)


class UnsupportedFeature(StructspecError):
    """A legal keyword or construct that structspec refuses because it cannot be exact.

    `pointer` locates it in schemas, `line` and `column` (1-based) in source texts.
    """

    def __init__(
        self,
        keyword: str,
        pointer: str,
        reason: str,
        *,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        self.keyword = keyword
        self.pointer = pointer
        self.reason = reason
        self.line = line
        self.column = column
        place = f" at '{pointer}'" if pointer else ""
        where = "" if line is None else f"line {line}, column {column}: "
        super().__init__(f"{where}'{keyword}'{place} is not supported: {reason}")


class BudgetExceeded(StructspecError):
    """A compile or a run would pass a limit.

    `adjustable` limits are those of `structspec.Limits`; the others are built in. `pointer` and
    `keyword` name the place of a schema that took so much, where one is known; `line` and `column`
    (1-based) that of a source text.
    """

    def __init__(
        self,
        what: str,
        limit: float,
        needed: float | None = None,
        *,
        adjustable: bool = False,
        keyword: str | None = None,
        pointer: str | None = None,
        line: int | None = None,
        column: int | None = None,
        shown: str = "",
    ) -> None:
        self.what = what
        self.limit = limit
        self.needed = needed
        self.adjustable = adjustable
        self.keyword = keyword
        self.pointer = pointer
        self.line = line
        self.column = column
        need = "" if needed is None else f" (needs {needed:,g} or more)"
        where = "" if pointer is None else f"at '{pointer}': " if pointer else "at the root: "
        if keyword:
            where = where.removesuffix(": ") + f", '{keyword}': "
        if line is not None:
            where = f"line {line}, column {column}: "
        advice = (
            f"raise it with structspec.Limits({what}=...) or simplify the schema"
            if adjustable
            else "this limit is built in; simplify the schema (long length bounds beside a pattern "
            "or format, and combinators of large objects, take most)"
        )
        shown = f"\n{shown}" if shown else ""
        super().__init__(f"{where}the budget for {what} is {limit:,g}{need}; {advice}{shown}")

    def at_line(self, line: int, column: int, shown: str) -> BudgetExceeded:
        """The same with its place in a source text, which `shown` shows with a caret."""
        return BudgetExceeded(
            self.what,
            self.limit,
            self.needed,
            adjustable=self.adjustable,
            line=line,
            column=column,
            shown=shown,
        )

    def at(self, keyword: str | None, pointer: str) -> BudgetExceeded:
        """The same with its place, unless it has one already."""
        if self.pointer is not None:
            return self
        return BudgetExceeded(
            self.what,
            self.limit,
            self.needed,
            adjustable=self.adjustable,
            keyword=keyword,
            pointer=pointer,
        )


class Unsatisfiable(StructspecError):
    """No text satisfies the grammar, or none that this vocabulary can write.

    `missing` holds the bytes that the language needs and no token can write, if that is why, and
    `missing_special` the names of special tokens that it needs and the vocabulary lacks.
    """

    def __init__(
        self, message: str, *, missing: bytes = b"", missing_special: tuple[str, ...] = ()
    ) -> None:
        self.missing = missing
        self.missing_special = missing_special
        super().__init__(message)


class TokenRejected(StructspecError, ValueError):
    """`advance` got a token that the state does not allow. The state stays usable.

    `expected` holds a few ids that are allowed there (at most 16, not all of them).
    """

    def __init__(self, token: int, state: int, expected: Sequence[int], detail: str = "") -> None:
        self.token = token
        self.state = state
        self.expected = tuple(expected)
        shown = ", ".join(map(str, self.expected[:8])) or "none"
        super().__init__(
            f"token {token}{f' ({detail})' if detail else ''} is not allowed in state {state}; "
            f"allowed there: {shown}{', …' if len(self.expected) > 8 else ''}"
        )


class StaleState(StructspecError):
    """A state number that its cache does not know.

    It is from before `Cache.compact`, whose mapping holds the valid ones, or of another cache.
    """

    def __init__(self, state: int) -> None:
        self.state = state
        super().__init__(
            f"state {state} is not known to this cache: it is from before compact(), whose mapping "
            "holds the valid numbers, or of another constraint or cache"
        )


class TokenBudgetError(StructspecError):
    """`max_tokens` leaves no room for a complete text.

    `needed` is the certified number of tokens that suffices; `exact` says whether fewer are
    known to be impossible.
    """

    def __init__(self, max_tokens: int, needed: int, exact: bool) -> None:
        self.max_tokens = max_tokens
        self.needed = needed
        self.exact = exact
        figure = "the shortest valid text takes" if exact else "a valid text is certain to fit in"
        super().__init__(
            f"max_tokens={max_tokens} is too small: {figure} {needed} tokens "
            f"({'exact' if exact else 'an upper bound of the shortest'}); "
            f"raise max_tokens to at least {needed}"
        )


class ValueRejected(StructspecError, ValueError):
    """The text is complete and fits the grammar, but its value fails a further check.

    Such checks are a type's own validators, and keywords that were dropped on request with
    `on_unsupported="widen"`. `text` and `result` hold what was made.
    """

    def __init__(self, message: str, *, text: str, result: object = None) -> None:
        self.text = text
        self.result = result
        super().__init__(message)


class BatchError(StructspecError):
    """Some requests of a batch failed; the others did not.

    `results` holds, in the order of the requests, a result or the error that took its place.
    """

    def __init__(self, results: Sequence[object]) -> None:
        self.results = list(results)
        self.errors = {i: r for i, r in enumerate(self.results) if isinstance(r, Exception)}
        first = next(iter(self.errors))
        super().__init__(
            f"{len(self.errors)} of {len(self.results)} requests failed, first number {first}: "
            f"{self.errors[first]}; the finished ones are in .results of this error, or pass "
            "errors='return'"
        )


class PromptError(StructspecError, ValueError):
    """A prompt that cannot be used: empty, longer than the model's window, bad messages."""


class VocabularyError(StructspecError, ValueError):
    """A tokenizer whose token bytes cannot be determined exactly, or inconsistent ids."""


class ModelError(StructspecError):
    """A model that cannot be found, loaded, or that returned NaN."""


class DraftError(StructspecError, ValueError):
    """A draft that cannot be used with this target."""


class KernelError(StructspecError, ValueError):
    """Tensors whose dtype, shape, device or size a numeric kernel does not take."""


class ToolError(StructspecError, ValueError):
    """A tool that cannot be offered to a model or run here, or a choice of tools that is none.

    `name` is the tool's name, where there is one.
    """

    def __init__(self, message: str, *, name: str | None = None) -> None:
        self.name = name
        super().__init__(message)


class ToolCallError(StructspecError, ValueError):
    """A text that is not a reply in the model's call format, or a call that breaks its schema.

    `position` counts characters from the start of `text`, a special token as one.
    """

    def __init__(self, message: str, *, text: str = "", position: int = 0) -> None:
        self.text = text
        self.position = position
        shown = text[position : position + 30]
        where = f"at character {position} ({shown!r}): " if text else ""
        super().__init__(where + message)


class SerializationError(StructspecError, ValueError):
    """Saved bytes that are damaged, foreign, or of another release or vocabulary."""


class MissingExtra(StructspecError, ImportError):
    """An optional dependency is missing. The message holds the install command."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(
            f"this needs the package '{package}', which is not installed; "
            f"install it with: pip install 'structspec[{extra}]'"
        )
