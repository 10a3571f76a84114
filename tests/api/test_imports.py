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
heavy = {"torch", "transformers", "pydantic", "tokenizers", "typer", "scipy.linalg"}
print(sorted(heavy & set(sys.modules)))
"""


def test_a_mask_of_a_schema_imports_nothing_heavy() -> None:
    """Each of these would add a quarter of a second or more to the first mask of every process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = [sys.executable, "-c", _MASK]
    subprocess.run(run, env=environment, check=True, capture_output=True)  # fills the disk cache
    found = subprocess.run(run, env=environment, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
