"""What a structural tag is made of: frozen dataclasses, read by `lower`, written by `read`.

A structural tag describes a whole output: free text up to a trigger, then a constrained region,
then free text again. `TriggeredTags` is that; the other classes are what its regions are made of.
The names are those of the field's JSON form, which `read` turns into these classes.

Example::

    >>> call = Tag("<call>", JSONSchema({"type": "integer"}), "</call>")
    >>> TriggeredTags((call,)).triggers_or_begins()
    ('<call>',)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from structspec import ir

__all__ = [
    "AnyText",
    "ConstString",
    "Content",
    "Embedded",
    "JSONSchema",
    "Node",
    "Or",
    "Regex",
    "Repeat",
    "Sequence",
    "StructuralTag",
    "Tag",
    "TagsWithSeparator",
    "Token",
    "TriggeredTags",
    "reasoning",
]


@dataclass(frozen=True)
class ConstString:
    """Exactly this text."""

    value: str


@dataclass(frozen=True)
class Token:
    """One special token of the vocabulary, by name; never equal to text that looks the same."""

    name: str


@dataclass(frozen=True)
class AnyText:
    """Any text without special tokens, at most `max_chars` characters of it.

    It contains none of `excludes`. As (the last part of) the content of a `Tag` it also ends at
    the first occurrence of the tag's end.
    """

    excludes: tuple[str, ...] = ()
    max_chars: int | None = None


@dataclass(frozen=True)
class JSONSchema:
    """A JSON value that a schema (or type) allows, spelled under the policies of the compile.

    `resources` are further documents that its references may name, as for `compile`; `options`
    are policies (fields of `SchemaOptions`) that hold for this schema instead of the compile's.
    """

    schema: Any
    resources: Mapping[str, Any] | None = None
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Regex:
    """A text that a regular expression matches as a whole."""

    pattern: str
    dialect: Literal["ecma", "python"] = "ecma"


@dataclass(frozen=True)
class Embedded:
    """A text of a grammar: its source in `syntax`, or a grammar that is lowered already."""

    source: str | ir.GrammarIR
    syntax: Literal["lark", "gbnf", "ir"] = "lark"


@dataclass(frozen=True)
class Node:
    """A node of the grammar IR as it is."""

    node: ir.Node


@dataclass(frozen=True)
class Sequence:
    """One after another."""

    elements: tuple[Content, ...]


@dataclass(frozen=True)
class Or:
    """Any one of them."""

    elements: tuple[Content, ...]


@dataclass(frozen=True)
class Repeat:
    """`minimum` to `maximum` copies (None: any number)."""

    content: Content
    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True)
class Tag:
    """A region: `begin`, the content, one of `end`."""

    begin: str | Token
    content: Content
    end: str | Token | tuple[str | Token, ...] = ""

    def ends(self) -> tuple[str | Token, ...]:
        """The alternatives for the end."""
        return self.end if isinstance(self.end, tuple) else (self.end,)


@dataclass(frozen=True)
class TriggeredTags:
    """Free text; where a trigger occurs in it, a tag that begins with that trigger follows.

    triggers: what is watched for; None: the begins of the tags. Each must be a beginning of some
        tag's begin; several tags may share one.
    at_least_one: one tag at least. stop_after_first: nothing follows the first tag.
    text_first: whether free text may come before the first tag; False needs `at_least_one`.
    excludes: texts that the free text does not contain.
    """

    tags: tuple[Tag, ...]
    triggers: tuple[str | Token, ...] | None = None
    at_least_one: bool = False
    stop_after_first: bool = False
    text_first: bool = True
    excludes: tuple[str, ...] = ()

    def triggers_or_begins(self) -> tuple[str | Token, ...]:
        """The triggers, without repetition."""
        given = self.triggers
        if given is None:
            given = tuple(tag.begin for tag in self.tags)
        return tuple(dict.fromkeys(given))


@dataclass(frozen=True)
class TagsWithSeparator:
    """Tags and nothing else, `separator` between two of them."""

    tags: tuple[Tag, ...]
    separator: str
    at_least_one: bool = False
    stop_after_first: bool = False


Content: TypeAlias = (
    ConstString
    | Token
    | AnyText
    | JSONSchema
    | Regex
    | Embedded
    | Node
    | Sequence
    | Or
    | Repeat
    | Tag
    | TriggeredTags
    | TagsWithSeparator
)


@dataclass(frozen=True)
class StructuralTag:
    """A whole output."""

    format: Content


def reasoning(
    answer: Content,
    *,
    begin: str | Token = "<think>",
    end: str | Token = "</think>",
    required: bool = False,
    opened: bool = False,
) -> Content:
    """`answer` behind a reasoning block, whose markers are texts or special tokens.

    required: the block must be there. opened: the prompt has written `begin` already.
    """
    block = Tag("" if opened else begin, AnyText(), end)
    front: Content = block if required or opened else Repeat(block, 0, 1)
    return Sequence((front, answer))
