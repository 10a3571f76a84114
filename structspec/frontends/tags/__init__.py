"""The structural-tag front end: free text, constrained regions, free text again.

`spec` holds what a structural tag is made of, `read` the two JSON forms of the field, `free_text`
the automaton of text without a trigger, `lower` puts all of it into the grammar IR.

Invariant: where one of the triggers occurs in free text, a tag that begins with it follows; read
from the left, the first trigger to be complete decides. Special tokens and text that looks like
them are different things.

Sibling: `structspec.tools` writes the call formats of model families in these terms.

Example::

    >>> from structspec.frontends.tags import JSONSchema, Tag, TriggeredTags, lower_tags
    >>> call = Tag("<call>", JSONSchema({"type": "integer"}), "</call>")
    >>> grammar, report = lower_tags(TriggeredTags((call,), at_least_one=True))
    >>> len(report), grammar.start
    (1, 'root')
"""

from __future__ import annotations

from structspec.frontends.tags.lower import lower_tags
from structspec.frontends.tags.read import read_structural_tag
from structspec.frontends.tags.spec import (
    AnyText,
    ConstString,
    Content,
    Embedded,
    JSONSchema,
    Node,
    Or,
    Regex,
    Repeat,
    Sequence,
    StructuralTag,
    Tag,
    TagsWithSeparator,
    Token,
    TriggeredTags,
    reasoning,
)

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
    "lower_tags",
    "read_structural_tag",
    "reasoning",
]
