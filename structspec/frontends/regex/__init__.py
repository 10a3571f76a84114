"""Regular expressions: parse to a tree, resolve assertions, lower to the grammar IR.

`lower_regex` compiles texts that match as a whole, `search_regex` texts that contain a match.
`parse` and `resolve` give the tree over characters to front ends that spell characters their own
way (JSON Schema's `pattern`); `language` gives an automaton over characters, which patterns with
lookaround need.
"""

from structspec.frontends.regex.automaton import Language, language
from structspec.frontends.regex.lower import lower, lower_dfa, lower_regex, search_regex
from structspec.frontends.regex.parse import MOST_COPIES, Dialect, number, parse
from structspec.frontends.regex.resolve import resolve
from structspec.frontends.regex.whole import lower_pattern

__all__ = [
    "MOST_COPIES",
    "Dialect",
    "Language",
    "language",
    "lower",
    "lower_dfa",
    "lower_pattern",
    "lower_regex",
    "number",
    "parse",
    "resolve",
    "search_regex",
]
