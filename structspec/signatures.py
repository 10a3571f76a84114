"""Which arguments a function takes by name, whatever its annotations say.

Since Python 3.14 annotations are evaluated when somebody asks for them, `inspect.signature`
included. A model's `forward` may name types there that only type checkers import.

>>> from structspec.signatures import argument_names
>>> sorted(argument_names(lambda ids, *, cache=None: None))
['cache', 'ids']
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["argument_names"]


def argument_names(function: Callable[..., Any]) -> frozenset[str]:
    """The names of all parameters; `*args` and `**kwargs` count as "args" and "kwargs"."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        signature = inspect.signature(function, annotation_format=Format.STRING)
    else:
        signature = inspect.signature(function)
    return frozenset(signature.parameters)
