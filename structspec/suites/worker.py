"""The process that an engine runs in: gets schemas and texts, sends answers one by one.

It knows no verdicts and grades nothing. Everything goes through one pipe; what engines print goes
to a log whose end explains a crash. The parent (``runner``) decides about time and death.

Messages to the parent: ``ready`` once (or ``missing`` or ``unusable``); then for each task
``compiled``, or ``refused`` or ``crash`` for the whole schema; for each text ``answer``,
``text-refused`` or ``text-crash``; then ``done``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from structspec.errors import (
    BudgetExceeded,
    MissingExtra,
    SchemaError,
    StructspecError,
    UnsupportedFeature,
)
from structspec.suites.engines import make_engine
from structspec.suites.outcome import Refusal

__all__ = ["Task", "serve"]

# Compiled and run before the first task, so that loading an engine and compiling its kernels is
# nobody's time.
_WARM_UP = (
    ("{}", '{"a": [1.5e2, "x", null]}'),
    (
        """{"type": "object", "properties": {
          "a": {"type": "integer", "minimum": 3}, "b": {"type": "string", "maxLength": 9},
          "c": {"type": "array", "items": {"$ref": "#"}, "maxItems": 5}, "d": {"enum": [1, "x"]}},
        "required": ["a"], "minProperties": 2, "additionalProperties": {"type": "boolean"}}""",
        '{"b": "\\u0061é", "a": 12, "c": [{"a": 3, "e": true}], "d": "x"}',
    ),
    ('{"type": "string", "pattern": "^(ab){1,30}$"}', '"abab"'),
)


@dataclass(frozen=True)
class Task:
    """A schema, the options that differ from the common ones, and the texts to judge."""

    schema: str
    options: Mapping[str, Any]
    texts: tuple[str, ...]


def serve(
    connection: Connection,
    engine_name: str,
    tokenizer: str | None,
    common: Mapping[str, Any],
    log: str,
) -> None:
    """Answer tasks until the pipe closes or None arrives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        engine = make_engine(engine_name, tokenizer)
    except MissingExtra as error:
        connection.send(("missing", error.package, error.extra))
        return
    except StructspecError as error:
        connection.send(("unusable", str(error)))
        return
    for schema, text in _WARM_UP:
        # An engine that cannot do it fails on its tasks, where it counts.
        with contextlib.suppress(Exception):
            engine.compile(schema, common)(text)
    connection.send(("ready", engine.name, engine.version, tuple(engine.notes)))
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        if task is None:
            return
        _answer(connection, engine, task, common)
        connection.send(("done",))


def _answer(connection: Connection, engine: Any, task: Task, common: Mapping[str, Any]) -> None:
    started = time.perf_counter()
    try:
        judge = engine.compile(task.schema, {**common, **task.options})
    except StructspecError as error:
        connection.send(("refused", _refusal_of(error)))
        return
    except BaseException as error:  # a Rust panic is a BaseException
        connection.send(("crash", _told(error)))
        return
    connection.send(("compiled", time.perf_counter() - started))
    for text in task.texts:
        try:
            accepted = bool(judge(text))
        except StructspecError as error:
            connection.send(("text-refused", _refusal_of(error)))
        except BaseException as error:
            connection.send(("text-crash", _told(error)))
        else:
            connection.send(("answer", accepted))


def _refusal_of(error: StructspecError) -> Refusal:
    """A typed error as a `Refusal`, by its attributes."""
    kind = type(error).__name__
    if isinstance(error, UnsupportedFeature):
        return Refusal(kind, error.keyword, error.pointer, error.reason)
    if isinstance(error, BudgetExceeded):
        return Refusal(kind, f"(budget: {error.what})", error.pointer or "", str(error))
    if isinstance(error, SchemaError):
        return Refusal(kind, "(not a schema)", error.pointer or "", str(error))
    return Refusal(kind, f"({kind})", "", str(error))


def _told(error: BaseException) -> str:
    """The error and the place where it was raised, in one line."""
    place = ""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None:
        name = os.path.basename(trace.tb_frame.f_code.co_filename)
        place = f" ({name}:{trace.tb_lineno})"
    sys.stderr.flush()
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{place}"
