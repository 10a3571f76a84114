"""What the first mask of a process imports."""

from __future__ import annotations

import os
import subprocess
import sys

_MASK = """
import sys
import structspec
vocab = structspec.Vocabulary([*(bytes((b,)) for b in range(256)), None], [256])
c = structspec.compile({"type": "object", "properties": {"a": {"type": "integer"}}}).bind(vocab)
c.mask(c.start)
heavy = {"torch", "transformers", "pydantic", "tokenizers", "typer", "scipy.linalg",
         "referencing", "jsonschema_specifications"}
print(sorted(heavy & set(sys.modules)))
"""


def test_a_mask_of_a_schema_imports_nothing_heavy() -> None:
    """Each of these would add a quarter of a second or more to the first mask of every process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = [sys.executable, "-c", _MASK]
    subprocess.run(run, env=environment, check=True, capture_output=True)  # fills the disk cache
    found = subprocess.run(run, env=environment, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def test_references_to_other_documents_bring_their_library() -> None:
    code = """
import sys
import structspec
names = {"properties": {"$ref": {"type": "integer"}, "id": {"type": "string"}}}
structspec.compile(names)
inside = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}, "items": {"$ref": "#"}}
grammar = structspec.compile(inside)
assert grammar.accepts("12") and not grammar.accepts("true")
assert "referencing" not in sys.modules
for schema in (
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}},
    {"$ref": "other#here", "$defs": {"a": {"$id": "other", "$anchor": "here", "type": "integer"}}},
    {"$ref": "urn:other"},
):
    grammar = structspec.compile(schema, resources={"urn:other": {"type": "integer"}})
    assert grammar.accepts("12") and not grammar.accepts("true"), schema
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
