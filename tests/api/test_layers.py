"""Imports flow downwards: no package imports one that stands above it, wherever the import is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# From the bottom up; packages of one line do not import each other. A dotted name is a part that
# stands elsewhere than its package.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("history", "hooks", "integers", "packed", "records", "signatures"),
    ("by_name", "errors", "locks", "settings"),
    ("extras",),
    ("machine_code",),
    ("ir", "limits", "report", "few_rows"),
    ("ir_codec", "vocab", "linear"),
    ("attention", "prefix_cache"),
    ("automata",),
    ("masks", "frontends", "models", "verification"),
    ("grammar",),
    ("kept_grammars", "constraint_cache", "sampling", "warmup", "grammars", "prompt"),
    ("kernels",),
    ("forward",),
    ("drafting",),
    ("decoding",),
    ("arguments", "values"),
    ("api",),
    ("decorators", "tools"),
    ("structspec",),  # the façade, structspec/__init__.py
    # the rim: nothing inside imports these
    ("suites", "server"),
    ("bench", "kernels.checks", "kernels.gpu_benchmarks", "kernels.gpu_check", "kernels.gpu_peers",
     "kernels.gpu_timing"),
    ("cli",),
)  # fmt: skip
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FOLDERS = {"structspec": "", "kernels": "kernels", "grammars": "grammars"}

# A fact about the façade, not a use of what stands above: its version.
ALLOWED_NAMES = {"structspec.__version__"}


def place(module: str) -> str:
    """The layer name of `structspec.x.y`: the longest one listed."""
    name = module.removeprefix("structspec").removeprefix(".")
    while name:
        if name in LEVEL:
            return name
        name = name.rpartition(".")[0]
    return "structspec"


def modules() -> Iterator[tuple[str, Path]]:
    for folder, inside in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = ["structspec", inside, *path.relative_to(ROOT / folder).with_suffix("").parts]
            yield ".".join(part for part in parts if part and part != "__init__"), path


def imported(module: str, path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import of the package itself, those inside functions too."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            # `from structspec import api` names a module, `from structspec.api import x` may not
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "structspec":
                yield node.lineno, name


def test_every_module_has_a_layer() -> None:
    found = {name.split(".")[1] for name, _ in modules() if "." in name}
    assert sorted(found - set(LEVEL)) == []
    assert sorted(name for name in LEVEL if name.split(".")[0] not in found | {"structspec"}) == []


def test_imports_flow_downwards() -> None:
    upward = []
    for module, path in modules():
        own = place(module)
        for line, name in imported(module, path):
            theirs = place(name)
            together = LEVEL[theirs] == LEVEL[own] and theirs.split(".")[0] == own.split(".")[0]
            if name in ALLOWED_NAMES or together or LEVEL[theirs] < LEVEL[own]:
                continue
            upward.append(f"{path.relative_to(ROOT)}:{line} imports {name}: {own} < {theirs}")
    assert upward == []
