"""`Gate`: who may ask, and how much, before anything of a request is read.

An ASGI middleware. The key is compared as bytes in a time that does not tell how much of it was
right; bodies are counted as they come in, whatever their header says.

Sibling: `app`, in front of which it stands.

Example::

    app.add_middleware(Gate, api_key="secret", most_bytes=4 << 20, open_paths=("/health",))
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from structspec.server.refusals import explain

__all__ = ["Gate"]


class Gate:
    """See the module. api_key None: anybody may ask. open_paths: for these anybody may."""

    def __init__(
        self, app: ASGIApp, api_key: str | None, most_bytes: int, open_paths: Sequence[str] = ()
    ) -> None:
        self._app = app
        self._key = None if api_key is None else api_key.encode()
        self._most = most_bytes
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        asked = scope["method"] != "OPTIONS" and scope["path"] not in self._open
        if self._key is not None and asked and not self._right(headers.get(b"authorization", b"")):
            text = "the API key is missing or wrong; send it as bearer token"
            await _refuse(HTTPException(401, text), scope, receive, send)
            return
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._most:
            await _refuse(self._too_large(), scope, receive, send)
            return
        read, answering = 0, False

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise self._too_large()
            return message

        async def noted(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        try:
            await self._app(scope, counted, noted)
        except HTTPException as error:
            if answering:
                raise
            await _refuse(error, scope, receive, send)

    def _right(self, header: bytes) -> bool:
        scheme, _, given = header.partition(b" ")
        assert self._key is not None
        return scheme.lower() == b"bearer" and secrets.compare_digest(given.strip(), self._key)

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"a request holds at most {self._most} bytes here")


async def _refuse(error: HTTPException, scope: Scope, receive: Receive, send: Send) -> None:
    status, body = explain(error)
    # what was not read of the body would be taken for the next request
    await JSONResponse(body, status, {"Connection": "close"})(scope, receive, send)
