"""An engine whose schema and texts say what it does; workers load it by this file's path."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from structspec.errors import BudgetExceeded, MissingExtra, SchemaError, UnsupportedFeature


class Panic(BaseException):
    """Stands for what a foreign runtime may throw."""


def act(what: str) -> bool:
    """Do one thing, or answer."""
    if what == "die":
        print("fatal: the engine said this last", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit":
        os._exit(7)
    if what == "hang":
        time.sleep(600)
    if what == "raise":
        raise KeyError("no such thing")
    if what == "panic":
        raise Panic("panicked")
    if what == "refuse":
        raise UnsupportedFeature("pattern", "/items", "too hard")
    if what == "budget":
        raise BudgetExceeded("states", 10, 20)
    if what == "malformed":
        raise SchemaError("nonsense", pointer="/x")
    return what == "yes"


class Scripted:
    name = "scripted"
    version = "1"
    notes = ("does what it is told",)

    def compile(self, schema: str, options: Mapping[str, Any]) -> Callable[[str], bool]:
        script = json.loads(schema)
        if "options" in script:
            return lambda text: json.loads(text) == options.get(script["options"])
        act(script.get("compile", ""))
        return lambda text: act(json.loads(text))


def make(tokenizer: str | None) -> Scripted:
    return Scripted()


def lacking(tokenizer: str | None) -> Scripted:
    raise MissingExtra("nosuchengine", "peers")


def dying(tokenizer: str | None) -> Scripted:
    os._exit(3)
