"""Which extra brings a package that is not installed.

>>> EXTRAS["torch"]
'models'
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from structspec.errors import MissingExtra

__all__ = ["EXTRAS", "import_room"]

#: The extra of each optional package, by the name that is imported.
EXTRAS = {
    **dict.fromkeys(("torch", "transformers", "accelerate", "gguf", "safetensors"), "models"),
    **dict.fromkeys(("typer", "rich"), "cli"),
    **dict.fromkeys(("tokenizers", "tiktoken", "sentencepiece"), "tokenizers"),
    "lark": "grammars",
    "docstring_parser": "tools",
    "triton": "kernels",
    "matplotlib": "bench",
}


def import_room(module: str) -> ModuleType:
    """Import a module of this package; `MissingExtra` if it needs a package that is not there."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingExtra(package, EXTRAS[package]) from error
