"""Fixtures that every room shares: one thread, one default model, the third-party data."""

from __future__ import annotations

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
