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
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as AnyHTTPException

from structspec import errors
from structspec.models import Model
from structspec.server.answering import Answering
from structspec.server.bodies import Body, ChatBody, CompletionBody
from structspec.server.engine import Engine
from structspec.server.gate import Gate
from structspec.server.metrics import Metrics
from structspec.server.plan import Plan, Planner, RequestError
from structspec.server.refusals import Fault, explain, in_writing
from structspec.server.responses import ResponseBody, ResponsesRequest
from structspec.server.wire import ChatRequest, Common, CompletionRequest

__all__ = ["Settings", "create_app"]

log = logging.getLogger("structspec")

_Asked = TypeVar("_Asked", bound=BaseModel)
_Result = TypeVar("_Result")
#: Bytes of a request that are read in the event loop; longer ones take a thread.
_AT_ONCE = 1 << 15
#: Schemas that are compiled at the same time, at most: more would keep decoding waiting.
_COMPILING = 2


@dataclass(frozen=True)
class Settings:
    """What is not the model's. Raises ValueError for a key that is empty.

    name: what clients call the model; None: its own name. api_key: what clients must send as bearer
    token; None: nothing. batch_size: answers that are written at the same time. waiting: answers
    that may wait for a place. cache_bytes: bound on kept constraints. compile_seconds: processor
    time that one schema may take. most_bytes: of a request's body. origins: of web pages that may
    ask (CORS). draft, draft_count, verifier: as for `structspec.generate`.
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
    most_bytes: int = 4 << 20
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.api_key == "":
            raise ValueError("the API key is empty; leave it out to let anybody ask")


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
        # requests without a grammar of their own never wait for others' grammars
        compiling = self._compiling if asked.has_grammar else contextlib.nullcontext()
        async with compiling:
            try:
                plan = await run_in_threadpool(make, asked)
            except errors.StructspecError:
                raise
            except ValueError as error:  # settings out of range
                raise RequestError(str(error), code="invalid_value") from error
        most = self.engine.capacity
        if len(plan.jobs) > most:
            raise RequestError(
                f"{len(plan.jobs)} answers are asked for at once; this server takes {most}", "n"
            )
        return plan


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

    app = FastAPI(title="structspec", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.engine = served.engine
    app.add_middleware(
        Gate, api_key=settings.api_key, most_bytes=settings.most_bytes, open_paths=("/health",)
    )
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.origins),
            allow_methods=["*"],
            allow_headers=["*"],
        )

    @app.api_route("/health", methods=["GET", "HEAD"])
    async def health() -> dict[str, Any]:
        """Whether the server answers, and how many requests it has."""
        engine = served.engine
        return {"status": "ok", "running": engine.running, "waiting": engine.waiting}

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counters in Prometheus' form."""
        return Response(served.metrics.page(), media_type="text/plain; version=0.0.4")

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The models of this server: one."""
        return {"object": "list", "data": [_model_body(served)]}

    @app.get("/v1/models/{name:path}")
    async def one_model(name: str) -> dict[str, Any]:
        """A model by name."""
        if name != served.name:
            raise HTTPException(404, f"there is no model {name!r} here")
        return _model_body(served)

    @app.post("/v1/chat/completions", openapi_extra=_schema_of(ChatRequest))
    async def chat(request: Request) -> Response:
        """The assistant's next message."""
        asked = await _read(request, ChatRequest)
        plan = await _unless_gone(request, served.plan(served.planner.chat, asked))
        body = ChatBody(asked, plan, served.name, model.vocab)
        return await _answer(served, body, asked.stream, plan, request)

    @app.post("/v1/responses", openapi_extra=_schema_of(ResponsesRequest))
    async def responses(request: Request) -> Response:
        """A chat's next message, in the form of OpenAI's Responses."""
        asked = await _read(request, ResponsesRequest)
        plan = await _unless_gone(request, served.plan(served.planner.chat, asked.chat()))
        body = ResponseBody(asked, plan, served.name)
        return await _answer(served, body, asked.stream, plan, request)

    @app.post("/v1/completions", openapi_extra=_schema_of(CompletionRequest))
    async def completions(request: Request) -> Response:
        """Texts that go on with the prompts."""
        asked = await _read(request, CompletionRequest)
        plan = await _unless_gone(request, served.plan(served.planner.completion, asked))
        body = CompletionBody(asked, plan, served.name, served.model.vocab)
        return await _answer(served, body, asked.stream, plan, request)

    async def refuse(request: Request, error: Exception) -> Response:
        gone = isinstance(error, _Gone)
        status, body = (_GONE, {}) if gone else explain(error)
        if status == 500:
            log.error("a request failed", exc_info=error)
        kind = _KINDS.get(request.url.path)
        if kind is not None:
            served.metrics.requests.labels(kind, str(status)).inc()
        if gone:
            return Response(status_code=status)  # nobody reads it
        headers = dict(getattr(error, "headers", None) or {})
        if status == 503:
            headers["Retry-After"] = "1"
        return JSONResponse(body, status, headers)

    known = (_Gone, Fault, ValidationError, AnyHTTPException, errors.StructspecError)
    for kind in (*known, Exception):
        app.add_exception_handler(kind, refuse)
    return app


#: The status of a request whose client did not wait for the answer.
_GONE = 499
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


def _schema_of(asked: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says of a body that is read here and not by FastAPI."""
    schema = asked.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


# -- requests ------------------------------------------------------------------------------------


class _Gone(Exception):
    """The client has gone away."""


async def _read(request: Request, kind: type[_Asked]) -> _Asked:
    """The request in a body, whatever type it says it has."""
    data = await request.body()
    if len(data) <= _AT_ONCE:
        return kind.model_validate_json(data)
    return await run_in_threadpool(kind.model_validate_json, data)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of some work, which is given up if the client goes away: `_Gone`."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise _Gone
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


async def _gone(request: Request) -> None:
    """Return when the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


# -- answers -------------------------------------------------------------------------------------


async def _answer(
    served: _Served, body: Body, stream: bool, plan: Plan, request: Request
) -> Response:
    if not stream:
        whole = await _unless_gone(request, _whole(served, body, plan))
        served.metrics.requests.labels(body.kind, "200").inc()
        return JSONResponse(whole)
    events = _stream(served, body, plan)
    try:
        # what is wrong with the request shows here
        first = await _unless_gone(request, _next(events))
    except BaseException:
        await events.aclose()
        raise

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


async def _next(events: AsyncGenerator[str, None]) -> str:
    return await anext(events)


async def _whole(served: _Served, body: Body, plan: Plan) -> dict[str, Any]:
    async with Answering(served.engine, plan) as answering:
        try:
            async for gain in answering:
                body.add(gain)
        except Exception as error:
            raise in_writing(error) from error
    served.metrics.answered(body.kind, body.outputs, answering.seconds, answering.first_token)
    return body.whole()


async def _stream(served: _Served, body: Body, plan: Plan) -> AsyncGenerator[str, None]:
    """Server-sent events; what is wrong with the request is raised before the first one."""
    begun, outcome = False, _GONE
    try:
        async with Answering(served.engine, plan) as answering:
            async for gain in answering:
                told = body.add(gain)
                if told:
                    begun = True
                    yield "".join(map(_event, told))
        outcome = 200
    except Exception as error:
        shown = in_writing(error)
        if not begun:
            raise shown from error
        log.error("a stream failed", exc_info=error)
        outcome, explained = explain(shown)
        yield _event(explained)  # too late for a status
        return
    finally:
        if begun:  # before that, `refuse` counts it
            served.metrics.requests.labels(body.kind, str(outcome)).inc()
    served.metrics.answered(body.kind, body.outputs, answering.seconds, answering.first_token)
    for event in body.last():
        yield _event(event)
    if body.closes:
        yield "data: [DONE]\n\n"


def _event(body: dict[str, Any]) -> str:
    name = f"event: {body['type']}\n" if "type" in body else ""
    # in ASCII: some clients take Unicode's line separators for ends of lines
    return f"{name}data: {json.dumps(body)}\n\n"
