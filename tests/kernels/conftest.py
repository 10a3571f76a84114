"""Every kernel test runs on the reference and torch here, and on Triton where it can run.

Without a device Triton runs interpreted, which must be decided before triton is imported. So
`test_interpreted` runs this folder again in a process with `TRITON_INTERPRET=1`, where `backend`
is "triton"; in an ordinary process it is "reference" and "torch".
"""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch: pip install 'structspec[models]'")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def pytest_configure(config: pytest.Config) -> None:
    if INTERPRETED:
        from structspec.kernels.checks.interpreter import patch_once

        patch_once()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        backends = ["triton"] if INTERPRETED else ["reference", "torch"]
        metafunc.parametrize("backend", backends)


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of 128 tokens, so that small vocabularies take several splits."""
    from structspec.kernels import launch

    monkeypatch.setattr(launch, "SPLIT_WORDS", 4)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The interpreted process runs what takes a backend; all else has run in the ordinary one."""
    if INTERPRETED:
        idle = {i for i in items if "backend" not in getattr(i, "fixturenames", ())}
        config.hook.pytest_deselected(items=list(idle))
        items[:] = [i for i in items if i not in idle]
