"""The JSON Schema front end: drafts 4, 6, 7, 2019-09 and 2020-12.

``load`` reads a ``document`` of ``exact`` values, ``places`` interns its subschemas and reports on
every keyword, ``assertions`` and ``normal`` turn subschemas into normal forms (``algebra`` with
``numbers``, ``strings``, ``arrays``, ``objects``), ``lower`` writes normal forms as a grammar with
``spelling`` for characters and ``digits`` for numbers.

Invariant: the grammar accepts exactly the texts that the schema allows under the policies of
`SchemaOptions` (at worst fewer spellings of the same values, reported as narrowed), or
`UnsupportedFeature` names the keyword, the place and the reason.

Example::

    >>> from structspec.frontends.jsonschema import SchemaOptions, lower_schema
    >>> grammar, report = lower_schema({"type": "boolean"}, SchemaOptions(whitespace="compact"))
    >>> grammar.rules[grammar.start]
    Choice(items=(Bytes(value=b'true'), Bytes(value=b'false')))
"""

from __future__ import annotations

from typing import Any

from structspec.errors import UnsupportedFeature
from structspec.frontends.jsonschema.budget import Work
from structspec.frontends.jsonschema.load import load
from structspec.frontends.jsonschema.lower import Lowering
from structspec.frontends.jsonschema.normal import CircularReference, Normaliser
from structspec.frontends.jsonschema.options import SchemaOptions
from structspec.frontends.jsonschema.places import Atlas
from structspec.frontends.jsonschema.spelling import spell, spell_text
from structspec.ir import GrammarIR
from structspec.limits import Limits, Stopwatch
from structspec.report import Report

__all__ = ["SchemaOptions", "lower_schema", "spell", "spell_text"]


def lower_schema(
    schema: dict[str, Any] | bool | str,
    options: SchemaOptions | None = None,
    limits: Limits | None = None,
    watch: Stopwatch | None = None,
    *,
    exact: bool = False,
) -> tuple[GrammarIR, Report]:
    """Lower a schema (a JSON value, or its text) to a grammar; report on every keyword.

    exact: the schema is what `exact.read_text` made of a text, so that it need not be copied.

    Raises SchemaError if it is not a schema (with the pointer, or line and column of the text),
    UnsupportedFeature if it cannot be exact, BudgetExceeded if it would take longer than `limits`
    allow or combinators multiply out too far.
    A schema that nothing satisfies gives a grammar whose start rule is `structspec.ir.NOTHING`.
    """
    options = options or SchemaOptions()
    with Work(limits or Limits(), watch).running() as work:
        atlas = Atlas(load(schema, options, exact=exact), options)
        lowering = Lowering(atlas, Normaliser(atlas, options), options)
        try:
            grammar = lowering.grammar()
            work.watch.check()  # loops over members and texts are quick, and spend nothing
        except CircularReference as error:
            raise UnsupportedFeature(
                "$ref",
                "",
                "a reference leads back to itself beside a keyword that has to look through it, "
                "without passing through a property or an item",
            ) from error
        return grammar, atlas.report()
