"""Which extra brings a package that is not installed, and names that wait until they are touched.

>>> EXTRAS["torch"]
'models'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from structspec.errors import MissingExtra

__all__ = ["EXTRAS", "import_room", "names_at", "require"]

#: The extra of each optional package, by the name that is imported.
EXTRAS = {
    **dict.fromkeys(("torch", "transformers", "accelerate", "gguf", "safetensors"), "models"),
    **dict.fromkeys(("typer", "rich"), "cli"),
    **dict.fromkeys(("tokenizers", "tiktoken", "sentencepiece"), "tokenizers"),
    **dict.fromkeys(("fastapi", "uvicorn", "prometheus_client"), "server"),
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


def names_at(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names are imported when touched, as torch is wanted.

    homes: name -> its module, inside the package, or with its full name if that has a dot.
    `MissingExtra` says which extra a name lacks.
    """

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = home if "." in home else f"{package}.{home}"
        return getattr(import_room(module), name)

    return find


def require(*packages: str) -> None:
    """Raise `MissingExtra` for the first of these packages that is not there."""
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            raise MissingExtra(package, EXTRAS[package]) from error
