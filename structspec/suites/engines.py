"""Engines behind one hook: `compile(schema, options)` gives a judge, text -> bool.

An engine refuses by raising any `StructspecError` (`UnsupportedFeature` names the keyword);
whatever else it raises is a crash. `make_engine` finds one by name: ``structspec``, a peer
(``xgrammar``, ``llguidance``, ``outlines``, ``lmfe``; see ``peers``), or your own as
``module:factory`` or ``path/to/file.py:factory``, where ``factory(tokenizer)`` returns it.

Options are those of `structspec.compile`; engines that lack one ignore it, and `notes` says so.

Example::

    >>> from structspec.suites.engines import make_engine
    >>> make_engine("structspec").compile('{"type": "null"}', {})("null")
    True
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from structspec.errors import SchemaError
from structspec.frontends.jsonschema.exact import read_text

__all__ = ["ENGINES", "Engine", "Judge", "StructspecEngine", "make_engine"]

Judge = Callable[[str], bool]


class Engine(Protocol):
    """What an adapter offers."""

    name: str
    version: str
    notes: tuple[str, ...]

    def compile(self, schema: str, options: Mapping[str, Any]) -> Judge:
        """A judge for complete texts; a schema that the engine refuses raises StructspecError."""
        ...


class StructspecEngine:
    """This package, through its public surface."""

    name = "structspec"
    notes: tuple[str, ...] = ()

    def __init__(self, tokenizer: str | None = None) -> None:
        from structspec import __version__

        self.version = __version__
        self._resources: tuple[Any, Any] = (None, None)

    def compile(self, schema: str, options: Mapping[str, Any]) -> Judge:
        """Compile the schema's text; resources are parsed once, exactly."""
        from structspec.grammar import compile as compile_grammar

        given = dict(options)
        texts = given.pop("resources", None)
        if texts:
            if self._resources[0] is not texts:
                self._resources = (texts, {uri: read_text(text) for uri, text in texts.items()})
            given["resources"] = self._resources[1]
        return compile_grammar(schema, **given).accepts


#: Name -> where its factory is. Peers are optional packages, imported when asked for.
ENGINES = {
    "structspec": "structspec.suites.engines:StructspecEngine",
    "xgrammar": "structspec.suites.peers:XGrammarEngine",
    "llguidance": "structspec.suites.peers:LLGuidanceEngine",
    "outlines": "structspec.suites.peers:OutlinesEngine",
    "lmfe": "structspec.suites.peers:LMFormatEnforcerEngine",
}


def make_engine(name: str, tokenizer: str | None = None) -> Engine:
    """Make an engine from a name in `ENGINES` or a ``module:factory`` of your own.

    `tokenizer`: directory or name for transformers' AutoTokenizer; None gives peers one token per
    byte. Raises MissingExtra if its package is not installed, SchemaError if there is no such
    engine.
    """
    place = ENGINES.get(name, name)
    module_name, _, factory = place.rpartition(":")
    if not module_name:
        raise SchemaError(
            f"no engine {name!r}; use one of {', '.join(ENGINES)}, or module:factory of your own"
        )
    try:
        if module_name.endswith(".py"):
            spec = importlib.util.spec_from_file_location("structspec_suite_engine", module_name)
            if spec is None or spec.loader is None:
                raise ImportError(f"cannot load '{module_name}'")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
        make = getattr(module, factory)
    except (ImportError, AttributeError, FileNotFoundError) as error:
        raise SchemaError(f"no engine {name!r}: {error}") from error
    engine: Engine = make(tokenizer)
    return engine
