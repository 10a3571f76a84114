"""Fixtures that every room shares: one thread, one default model, the third-party data."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

try:
    import torch
except ImportError:  # the core's tests run without it
    torch = None  # type: ignore[assignment]
else:
    # Two threads on a busy machine can be many times slower than one.
    torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    """Drop compiled kernels that were made from other sources.

    numba notices a change in the file of a cached function, not in files of functions that it
    calls; tests would then run the old kernels.
    """
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return
    kernels = [ROOT / "structspec" / room for room in ("automata", "masks", "vocab")]
    kernels.append(ROOT / "kernels" / "automaton_walk")
    digest = hashlib.sha256()
    for source in sorted(path for room in kernels for path in room.glob("*.py")):
        digest.update(source.read_bytes())
    stamp = kernels[0] / "__pycache__" / "kernels.sha256"
    if stamp.is_file() and stamp.read_text() == digest.hexdigest():
        return
    for room in kernels:
        for compiled in room.glob("__pycache__/*.nb[ci]"):
            compiled.unlink(missing_ok=True)
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(digest.hexdigest())


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """Third-party test data; set STRUCTSPEC_DATA if it lies elsewhere."""
    default = ROOT.parent / "shared" / "data"
    path = Path(os.environ.get("STRUCTSPEC_DATA", default))
    if not path.is_dir():
        pytest.skip(f"third-party data is missing: no directory {path}; set STRUCTSPEC_DATA")
    return path


@pytest.fixture(scope="session")
def default_model() -> Any:
    """The default model in float32, loaded once."""
    if torch is None:
        pytest.skip("the default model needs torch: pip install 'structspec[models]'")
    from structspec import models
    from structspec.errors import MissingExtra, ModelError

    try:
        return models.load("default", device="cpu", dtype="float32")
    except (MissingExtra, ModelError) as error:
        pytest.skip(f"the default model cannot be loaded: {error}")
