"""Servers on a free port in this process, and OpenAI's own client for them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
openai = pytest.importorskip("openai")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")

from structspec.models import Model  # noqa: E402
from structspec.server import Settings, create_app  # noqa: E402


@contextlib.contextmanager
def running(model: Model, settings: Settings | None = None) -> Iterator[str]:
    """The address of a server that runs until the block ends."""
    config = uvicorn.Config(create_app(model, settings), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until = time.monotonic() + 30
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        assert server.started
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def serve() -> Callable[..., contextlib.AbstractContextManager[str]]:
    """`running`, for tests that need a server of their own."""
    return running


@pytest.fixture(scope="session")
def server_model(byte_tokenizer: Any, make_llama: Callable[..., Any]) -> Model:
    """A float64 Llama with a window of 2,048: what it writes depends on no batch."""
    llama = make_llama(len(byte_tokenizer), window=2048, seed=1)
    return Model.wrap(llama, byte_tokenizer, name="bytes")


@pytest.fixture(scope="session")
def address(server_model: Model) -> Iterator[str]:
    """A server of the byte model."""
    with running(server_model) as found:
        yield found


@pytest.fixture(scope="session")
def client(address: str) -> Any:
    """OpenAI's client for it, without retries."""
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
