"""`create_app`: the routes of OpenAI's API on FastAPI, for one model.

    POST /v1/chat/completions    chats: text, reasoning, calls of tools, values of schemas
    POST /v1/responses           the same in the form of OpenAI's Responses
    POST /v1/completions         texts that go on
    GET  /v1/models              the one model
    GET  /health  /metrics       whether it is up, and what was counted

Owns routes, streams of server-sent events, keys, and the status of each error. Requests are read
and schemas compiled on threads beside the event loop; decoding has a thread of its own (`engine`).

Invariants
- what is wrong with a request is said before the first piece of a stream, with a status;
- every error has OpenAI's form; `code` says which it was, `param` where.

Sibling: `cli.serve` loads a model and runs this with uvicorn.

Example::

    app = create_app(structspec.load("default"), Settings(name="smollm2"))
    uvicorn.run(app)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as AnyHTTPException

from structspec import errors
from structspec.models import Model
from structspec.server.answering import Answering
from structspec.server.bodies import Body, ChatBody, CompletionBody
from structspec.server.engine import Engine, EngineFull
from structspec.server.metrics import Metrics
from structspec.server.plan import Plan, Planner, RequestError
from structspec.server.replies import error_body
from structspec.server.responses import ResponseBody, ResponsesRequest
from structspec.server.wire import ChatRequest, Common, CompletionRequest

__all__ = ["Settings", "create_app"]

#: Schemas that are compiled at the same time, at most: more would keep decoding waiting.
_COMPILING = 2

# Errors of requests: what their `code` is. All others are the server's.
_CODES: dict[type[Exception], str] = {
    errors.UnsupportedFeature: "unsupported_schema",
    errors.BudgetExceeded: "schema_too_large",
    errors.Unsatisfiable: "unsatisfiable_schema",
    errors.TokenBudgetError: "max_tokens_too_small",
    errors.SchemaError: "invalid_schema",
    errors.ToolError: "invalid_tool",
    errors.PromptError: "invalid_prompt",
    errors.MissingExtra: "missing_extra",
    RequestError: "invalid_request",
}


@dataclass(frozen=True)
class Settings:
    """What is not the model's.

    name: what clients call the model; None: its own name. api_key: what clients must send as bearer
    token; None: nothing. batch_size: answers that are written at the same time. waiting: answers
    that may wait for a place. cache_bytes: bound on kept constraints. compile_seconds: processor
    time that one schema may take. origins: of web pages that may ask (CORS).
    draft, draft_count, verifier: as for `structspec.generate`.
    """

    name: str | None = None
    api_key: str | None = None
    draft: Any = "auto"
    draft_count: int = 1
    verifier: str = "block"
    batch_size: int = 8
    waiting: int = 256
    cache_bytes: int = 1 << 29
    compile_seconds: float = 10.0
    origins: tuple[str, ...] = ()


class _Served:
    """The parts of one server that its routes share."""

    def __init__(self, model: Model, settings: Settings) -> None:
        self.model = model
        self.name = settings.name or model.name
        self.began = int(time.time())
        self.planner = Planner(
            model,
            cache_bytes=settings.cache_bytes,
            compile_seconds=settings.compile_seconds,
        )
        self.engine = Engine(
            model,
            draft=settings.draft,
            draft_count=settings.draft_count,
            verifier=settings.verifier,
            batch_size=settings.batch_size,
            waiting=settings.waiting,
        )
        self.metrics = Metrics(self.engine, self.planner.constraints)
        self._compiling = asyncio.Semaphore(_COMPILING)

    async def plan(self, make: Callable[[Any], Plan], asked: Common) -> Plan:
        """The plan of a request, made beside the event loop."""
        if asked.model is not None and asked.model != self.name:
            raise HTTPException(
                404, f"there is no model {asked.model!r} here; this server has {self.name!r}"
            )
        async with self._compiling:
            try:
                return await run_in_threadpool(make, asked)
            except errors.StructspecError:
                raise
            except ValueError as error:  # settings out of range
                raise RequestError(str(error), code="invalid_value") from error


def create_app(model: Model, settings: Settings | None = None) -> FastAPI:
    """The application for a model; see the module.

    Raises what `Engine` raises for a draft or verifier that cannot be used. The engine's thread
    ends with the application's lifespan.
    """
    settings = settings or Settings()
    served = _Served(model, settings)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(served.engine.close)

    app = FastAPI(title="structspec", lifespan=lifespan)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["*"],
            allow_headers=["*"],
        )

    def check_key(request: Request) -> None:
        if settings.api_key is None:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(given.encode(), settings.api_key.encode()):
            raise HTTPException(401, "the API key is missing or wrong; send it as bearer token")

    keyed = [Depends(check_key)]

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the server answers, and how many requests it has."""
        engine = served.engine
        return {"status": "ok", "running": engine.running, "waiting": engine.waiting}

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counters in Prometheus' form."""
        return Response(served.metrics.page(), media_type="text/plain; version=0.0.4")

    @app.get("/v1/models", dependencies=keyed)
    async def models() -> dict[str, Any]:
        """The models of this server: one."""
        return {"object": "list", "data": [_model_body(served)]}

    @app.get("/v1/models/{name:path}", dependencies=keyed)
    async def one_model(name: str) -> dict[str, Any]:
        """A model by name."""
        if name != served.name:
            raise HTTPException(404, f"there is no model {name!r} here")
        return _model_body(served)

    @app.post("/v1/chat/completions", dependencies=keyed, response_model=None)
    async def chat(asked: ChatRequest, request: Request) -> Response:
        """The assistant's next message."""
        plan = await served.plan(served.planner.chat, asked)
        body = ChatBody(asked, plan.readers, served.name, model.vocab)
        return await _answer(served, body, asked.stream, plan, request)

    @app.post("/v1/responses", dependencies=keyed, response_model=None)
    async def responses(asked: ResponsesRequest, request: Request) -> Response:
        """A chat's next message, in the form of OpenAI's Responses."""
        plan = await served.plan(served.planner.chat, asked.chat())
        return await _answer(
            served, ResponseBody(asked, plan.readers[0], served.name), asked.stream, plan, request
        )

    @app.post("/v1/completions", dependencies=keyed, response_model=None)
    async def completions(asked: CompletionRequest, request: Request) -> Response:
        """Texts that go on with the prompts."""
        plan = await served.plan(served.planner.completion, asked)
        body = CompletionBody(asked, plan.readers, served.name)
        return await _answer(served, body, asked.stream, plan, request)

    async def refuse(request: Request, error: Exception) -> Response:
        status, body = _explain(error)
        kind = _KINDS.get(request.url.path)
        if kind is not None:
            served.metrics.requests.labels(kind, str(status)).inc()
        headers = dict(getattr(error, "headers", None) or {})
        if status == 503:
            headers["Retry-After"] = "1"
        return JSONResponse(body, status, headers)

    refused = (RequestValidationError, AnyHTTPException, errors.StructspecError, Exception)
    for kind in refused:
        app.add_exception_handler(kind, refuse)
    return app


#: What the counters call the routes.
_KINDS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "response",
    "/v1/completions": "completion",
}


def _model_body(served: _Served) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": served.began,
        "owned_by": "structspec",
        "max_model_len": served.model.window,
    }


# -- answers -------------------------------------------------------------------------------------


async def _answer(
    served: _Served, body: Body, stream: bool, plan: Plan, request: Request
) -> Response:
    answered = served.metrics.requests.labels(body.kind, "200")
    if stream:
        events = _stream(served, body, plan)
        first = await anext(events)  # what is wrong with the request shows here
        answered.inc()

        async def told() -> AsyncIterator[str]:
            try:
                yield first
                async for event in events:
                    yield event
            finally:
                await events.aclose()

        return StreamingResponse(
            told(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )
    whole = asyncio.ensure_future(_whole(served, body, plan))
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({whole, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not whole.done():
            return Response(status_code=499)  # nobody reads it
        found = JSONResponse(whole.result())
        answered.inc()
        return found
    finally:
        for task in (whole, gone):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await whole


async def _gone(request: Request) -> None:
    """Return when the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _whole(served: _Served, body: Body, plan: Plan) -> dict[str, Any]:
    async with Answering(served.engine, plan) as answering:
        async for index, pieces, output in answering:
            body.add(index, pieces, output)
    served.metrics.answered(body.kind, body.outputs, answering.seconds, answering.first_token)
    return body.whole()


async def _stream(served: _Served, body: Body, plan: Plan) -> AsyncGenerator[str, None]:
    """Server-sent events; what is wrong with the request is raised before the first one."""
    begun = False
    async with Answering(served.engine, plan) as answering:
        try:
            async for index, pieces, output in answering:
                told = body.add(index, pieces, output)
                if told:
                    begun = True
                    yield "".join(map(_event, told))
        except Exception as error:
            if not begun:
                raise
            yield _event(_explain(error)[1])  # too late for a status
            return
    served.metrics.answered(body.kind, body.outputs, answering.seconds, answering.first_token)
    for event in body.last():
        yield _event(event)
    if body.closes:
        yield "data: [DONE]\n\n"


def _event(body: dict[str, Any]) -> str:
    name = f"event: {body['type']}\n" if "type" in body else ""
    return f"{name}data: {json.dumps(body, ensure_ascii=False)}\n\n"


# -- errors --------------------------------------------------------------------------------------


def _explain(error: Exception) -> tuple[int, dict[str, Any]]:
    """Status and body of an error."""
    if isinstance(error, RequestValidationError):
        return 400, _field_errors(error)
    if isinstance(error, AnyHTTPException):
        code = {401: "invalid_api_key", 404: "not_found"}.get(error.status_code)
        return error.status_code, error_body(str(error.detail), "invalid_request_error", code)
    if isinstance(error, EngineFull):
        return 503, error_body(str(error), "server_error", "overloaded")
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            param = getattr(error, "param", None) or getattr(error, "pointer", None)
            code = getattr(error, "code", code)
            return 400, error_body(str(error), "invalid_request_error", code, param)
    return 500, error_body(str(error), "server_error", type(error).__name__)


def _field_errors(error: RequestValidationError) -> dict[str, Any]:
    found = []
    for one in error.errors():
        place = ".".join(str(step) for step in one["loc"] if step != "body")
        if one["type"] == "extra_forbidden":
            found.append((place, f"the field {place!r} is not known to this server"))
            continue
        given = one.get("input")
        shown = f", not {given!r}" if isinstance(given, str | int | float) else ""
        found.append((place, (f"{place}: " if place else "") + one["msg"] + shown[:100]))
    message = "; ".join(text for _, text in found)
    return error_body(message, "invalid_request_error", "invalid_field", found[0][0] or None)
