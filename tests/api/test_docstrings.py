"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"structspec": "", "kernels": "kernels", "grammars": "grammars"}


def with_examples() -> list[str]:
    """The modules whose source holds an example."""
    found = []
    for folder, inside in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if ">>> " in path.read_text("utf-8"):
                parts = ["structspec", inside, *path.relative_to(ROOT / folder).parts]
                name = ".".join(part for part in parts if part).removesuffix(".py")
                found.append(name.removesuffix(".__init__"))
    return found


@pytest.mark.parametrize("name", with_examples())
def test_examples_give_what_they_say(name: str) -> None:
    module = importlib.import_module(name)
    failed, attempted = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert failed == 0 and attempted > 0
