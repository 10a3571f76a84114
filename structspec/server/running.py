"""`run`: a server in this process until somebody ends it.

Ctrl-C (or SIGTERM) takes no new connections and lets answers go on for `grace` seconds; then the
engine stops after the round that is under way, and what is not finished ends with an error that
says why. A second Ctrl-C does not wait.

Sibling: `app`, the application that it runs.

Example::

    run(create_app(model), host="127.0.0.1", port=8000)
"""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from fastapi import FastAPI

from structspec.server.engine import Engine

__all__ = ["run"]

#: Seconds that connections get to tell their clients that the engine has stopped.
_FAREWELL = 5


def run(
    app: FastAPI,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    grace: float = 10,
    log_level: str = "info",
) -> None:
    """Serve an application of `create_app`. port 0: any free one."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level=log_level,
        timeout_graceful_shutdown=int(grace) + _FAREWELL,
    )
    _Server(config, app.state.engine, grace).run()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, engine: Engine, grace: float) -> None:
        super().__init__(config)
        self._engine = engine
        self._grace = grace

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the engine when its grace is over, whatever connections are open."""
        timer = asyncio.get_running_loop().call_later(self._grace, self._engine.stop)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()
