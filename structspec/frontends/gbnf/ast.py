"""The syntax tree of a GBNF grammar; every node that can be at fault knows its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Class", "Group", "Literal", "Node", "Reference", "Repeat", "Rule", "Token"]


@dataclass(frozen=True, slots=True)
class Literal:
    """These characters; may be empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Class:
    """One character out of `ranges`, or (`negated`) outside of them. `.` is the negated ()."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the vocabulary by its text or as `<[id]>`; `negated`: any but that one."""

    name: str
    negated: bool
    place: int


@dataclass(frozen=True, slots=True)
class Reference:
    """Another rule."""

    name: str
    place: int


@dataclass(frozen=True, slots=True)
class Group:
    """One of some sequences."""

    alternatives: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`minimum` to `maximum` copies (None: any number)."""

    item: Node
    minimum: int
    maximum: int | None
    place: int


Node: TypeAlias = Literal | Class | Token | Reference | Group | Repeat


@dataclass(frozen=True, slots=True)
class Rule:
    """A definition."""

    name: str
    body: Group
    place: int
