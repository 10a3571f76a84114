"""GBNF, the grammar notation of llama.cpp: `parse` to a tree, `lower` to the IR, `export` back."""

from structspec.frontends.gbnf.export import to_gbnf
from structspec.frontends.gbnf.lower import lower_gbnf

__all__ = ["lower_gbnf", "to_gbnf"]
