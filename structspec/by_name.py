"""Pickling what a decorator put in the place of a function: by name, as Python pickles functions.

The function's own name leads to what replaced it, so pickle refuses the function inside. A process
that unpickles imports the module and finds the decorated one there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from typing import Any

__all__ = ["named"]


def named(decorated: object, function: object) -> tuple[Callable[..., Any], tuple[str, str]] | None:
    """What `__reduce__` returns for what stands where `function` was defined; None elsewhere."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if module not in sys.modules or name is None:
        return None
    try:
        there = attrgetter(name)(sys.modules[module])
    except AttributeError:  # defined inside a function
        return None
    return (_find, (module, name)) if there is decorated else None


def _find(module: str, name: str) -> Any:
    return attrgetter(name)(import_module(module))
