"""A Lark grammar read by lark's own loader: imports, templates, `%extend`, `%override`, `%declare`.

Owns `load`. The loader does what lark does with a grammar up to its rule trees; nothing is
compiled to lark's parsers. Its errors come out as `SchemaError` with line, column and a caret where
lark or a search for the name in question tells the place.

Imported files come from lark's own library (`common`, `python`, …) and from the resources that the
caller gives; no other file is read. Our additions work in them too.

Cost: that of lark (some milliseconds; the first call builds lark's own parser, about 0.1 s).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from structspec.errors import MissingExtra, SchemaError
from structspec.frontends.lark.extensions import Stripped, strip
from structspec.frontends.rules.source import Source

__all__ = ["Loaded", "load"]

_NOWHERE = "/structspec-has-no-such-folder"
_DEFINITION = (
    r"(?m)^[ \t]*(?:%(?:override|extend)[ \t]+)?[!?]{0,2}(NAME)"
    r"[ \t]*(?:\{[^}\n]*\})?(?:\.-?\d+)?[ \t]*:"
)


@dataclass(frozen=True)
class Loaded:
    """What a grammar file says, in lark's trees.

    rules: name → (template parameters, tree, options); terminals: name → (tree, priority), with
    references to other terminals resolved. Trees of declared names are None.
    """

    rules: dict[str, tuple[tuple[str, ...], Any, Any]]
    terminals: dict[str, tuple[Any, int]]
    ignore: list[str]
    stripped: Stripped

    @property
    def source(self) -> Source:
        """The text that the user wrote."""
        return self.stripped.source

    def place(self, token: Any) -> int | None:
        """Where one of lark's tokens stands in `source.text`; None if it was imported."""
        start = getattr(token, "start_pos", None)
        if start is None or not self.stripped.text.startswith(str(token), start):
            return None
        return self.source.original(start)

    def definition(self, name: str) -> int | None:
        """Where a rule or terminal is defined in `source.text`."""
        return self._definitions.get(name)

    @cached_property
    def _definitions(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for match in re.finditer(_DEFINITION.replace("NAME", r"\w+"), self.source.text):
            found.setdefault(match[1], match.start(1))
        return found


def load(text: str, resources: Mapping[str, Any] | None = None) -> Loaded:
    """Read a grammar.

    resources: path → text of grammars to import from, such as "words.lark" for `%import .words.X`.

    Raises `SchemaError` for whatever lark refuses, `UnsupportedFeature` for nesting that it cannot
    read and `MissingExtra` without lark.
    """
    try:
        from lark.exceptions import GrammarError, LarkError, UnexpectedInput
        from lark.load_grammar import GrammarBuilder
    except ImportError as error:
        raise MissingExtra("lark", "grammars") from error

    text = text.removeprefix("\ufeff")  # some editors put a byte order mark in front
    Source(text).check_characters()
    stripped = strip(text)
    try:
        builder = GrammarBuilder(False, [_imports(resources or {}, stripped)])
        # The name makes lark look for relative imports beside a file that does not exist.
        builder.load_grammar(stripped.text, f"{_NOWHERE}/grammar.lark")
        grammar = builder.build()
    except SchemaError:
        raise
    except RecursionError as error:
        raise stripped.source.refusal(
            "(", _deepest(stripped.source.text), "groups are nested deeper than lark can read"
        ) from error
    except UnexpectedInput as error:
        raise _at(stripped, error.pos_in_stream or 0, _said(error)) from error
    except GrammarError as error:
        inner = error.__context__
        message = str(error).split("\n\n")[0]
        if isinstance(inner, UnexpectedInput) and inner.pos_in_stream is not None:
            message = re.sub(r",? at line \d+ column \d+.*", "", message, flags=re.DOTALL)
            raise _at(stripped, inner.pos_in_stream, message) from error
        raise _search(stripped.source, message) from error
    except (LarkError, AssertionError, SyntaxError, ValueError, KeyError) as error:
        # Lark asserts where it meets grammars that it did not expect.
        raise _search(stripped.source, str(error) or "lark cannot read this grammar") from error
    except OSError as error:
        raise _search(
            stripped.source, f"there is no grammar '{error.filename}' to import from"
        ) from error
    return Loaded(
        {
            str(name): (tuple(map(str, parameters)), tree, options)
            for name, parameters, tree, options in grammar.rule_defs
        },
        {str(name): (tree, priority) for name, (tree, priority) in grammar.term_defs},
        [str(name) for name in grammar.ignore],
        stripped,
    )


def _imports(
    resources: Mapping[str, Any], stripped: Stripped
) -> Callable[[Any, str], tuple[Any, str]]:
    """A source of imported files: the given ones, with our additions taken out."""

    def read(base: Any, path: str) -> tuple[Any, str]:
        text = resources.get(Path(path).as_posix())
        if not isinstance(text, str):
            raise OSError(2, "no such resource", path)
        # A folder that does not exist, or lark would look beside the importing file.
        return f"{_NOWHERE}/{path}", strip(text.removeprefix("\ufeff"), stripped).text

    return read


def _deepest(text: str) -> int:
    """The place of the bracket that is nested most deeply."""
    depth = most = place = 0
    for found in re.finditer(r"[()\[\]]", _uncommented(text)):
        depth += 1 if found[0] in "([" else -1
        if depth > most:
            most, place = depth, found.start()
    return place


def _said(error: Any) -> str:
    token = getattr(error, "token", None)
    if token is None:
        return str(error).split("\n")[0]
    return f"unexpected {repr(str(token)) if str(token).strip() else 'end of the line'}"


def _at(stripped: Stripped, offset: int, message: str) -> SchemaError:
    source = stripped.source
    return source.error(source.original(min(offset, len(stripped.text))), _plain(message))


def _plain(message: str) -> str:
    message = " ".join(message.split())
    return message[:1].lower() + message[1:] if message[:2].istitle() else message


def _search(source: Source, message: str) -> SchemaError:
    """The error at the first place where a name that the message mentions stands."""
    if "more than once" in message or "ecursion in terminal" in message:
        name = re.findall(r"'([^']+)'", message)[0]
        pattern = _DEFINITION.replace("NAME", re.escape(name))
        places = [found.start(1) for found in re.finditer(pattern, source.text)]
        if places:
            return source.error(places[min("more" in message, len(places) - 1)], _plain(message))
    inside = re.search(r"inside terminals \(NonTerminal\('(\w+)'\) in (\w+)\)", message)
    if inside:
        rule, terminal = inside.groups()
        used = re.search(
            _DEFINITION.replace("NAME", re.escape(terminal)) + rf"[^:]*?(?<!\w)({rule})(?!\w)",
            source.text,
        )
        said = f"the terminal '{terminal}' uses the rule '{rule}'; terminals hold terminals only"
        return source.error(used.start(2) if used else 0, said)
    names = re.findall(r"arguments used for (\w+)", message)
    names += re.findall(r"'([^']+)'", message) + re.findall(
        r"[A-Z_][A-Z_0-9]+|\b[a-z_]\w*$", message
    )
    for name in names:
        found = re.search(rf"(?<![\w]){re.escape(name)}(?!\w)", _uncommented(source.text))
        if found:
            return source.error(found.start(), _plain(message))
    return source.error(0, _plain(message))


def _uncommented(text: str) -> str:
    """The text with comments and strings blanked out."""
    return re.sub(
        r'//[^\n]*|#[^\n]*|"(?:\\"|\\\\|[^"\n])*?"i?|/(?!/)(?:\\/|\\\\|[^/\n])*?/[imslux]*',
        lambda found: " " * len(found[0]),
        text,
    )
