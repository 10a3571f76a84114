"""Lark: grammars read with lark's own loader (`source`, `load`), lowered to the IR (`lower`)."""

from structspec.frontends.lark.export import to_lark
from structspec.frontends.lark.lower import lower_lark

__all__ = ["lower_lark", "to_lark"]
