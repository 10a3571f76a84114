"""From a request to jobs of the engine, and to readers of what they write.

Owns what a request means: which grammar holds for the answer, what the model reads, how it is
sampled. Grammars of schemas are compiled once and kept within a bound of bytes; those of tools in
`tools.calling`.

Invariants
- nothing is decoded before all of a request is understood;
- canonical spelling and conventional whitespace, as for `structspec.generate`;
- answers of one request differ in their seeds only, which are functions of the request's seed.

Cost: the chat template, one tokenisation, and for a new schema its compilation.

Example::

    planner = Planner(model)
    plan = planner.chat(ChatRequest(messages=[{"role": "user", "content": "Hello"}]))
    [engine.submit(job, told) for job in plan.jobs]
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from structspec.constraint_cache import ConstraintCache
from structspec.decoding.healing import heal
from structspec.decoding.progress import Job, row_seed
from structspec.errors import PromptError, StructspecError
from structspec.forward.sampling import Sampling
from structspec.frontends import tags
from structspec.grammar import Grammar
from structspec.kept_grammars import compiled
from structspec.limits import Limits
from structspec.masks.constraint import Constraint
from structspec.models import Model
from structspec.prompt import encode_prompt
from structspec.server.reading import Reader, ReplyReader, TextReader
from structspec.server.wire import (
    SAMPLING,
    ChatRequest,
    Common,
    CompletionRequest,
    ResponseFormat,
)
from structspec.tools.calling import prepare
from structspec.tools.prompt import format_of, template_of, thinking_of

__all__ = ["Plan", "Planner", "RequestError"]

#: What renders a chat, beside the tokenizer's own arguments.
_RENDERING = {"messages", "add_generation_prompt", "continue_final_message", "tools", "documents"}
_SPELLING = {"spelling": "canonical", "whitespace": "conventional"}


class RequestError(StructspecError, ValueError):
    """A request that cannot be answered; `param` names the field, `code` the kind of error."""

    def __init__(
        self, message: str, param: str | None = None, code: str = "invalid_request"
    ) -> None:
        self.param = param
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class Plan:
    """A request, ready to be decoded: a job and a new reader for each answer, in order.

    held: whether text is held to a grammar, so that it is complete wherever it ends.
    """

    jobs: tuple[Job, ...]
    readers: tuple[Reader, ...]
    held: bool


class Planner:
    """See the module.

    cache_bytes: bound on the kept constraints. compile_seconds: processor time that one schema may
    take; `BudgetExceeded` beyond it.
    """

    def __init__(
        self, model: Model, *, cache_bytes: int = 1 << 29, compile_seconds: float = 10.0
    ) -> None:
        self.model = model
        self.constraints = ConstraintCache(cache_bytes)
        self._limits = Limits(time=compile_seconds)
        template = getattr(model.tokenizer, "apply_chat_template", None)
        self._taken = set() if template is None else set(inspect.signature(template).parameters)
        self._taken |= _RENDERING
        # whether answers may begin with reasoning, which then stands before a schema's value, too
        self._reasons = thinking_of(format_of(model), template_of(model), b"", None) != "none"

    def chat(self, asked: ChatRequest) -> Plan:
        """The plan of a chat's next message.

        Raises RequestError, PromptError, and the errors of compiling.
        """
        messages = [_message(message, i) for i, message in enumerate(asked.messages)]
        source = self._source(asked, asked.response_format)
        calls = asked.tools or any(m.get("tool_calls") or m["role"] == "tool" for m in messages)
        if source is None or self._reasons or calls:
            return self._reply(asked, messages, source)
        prompt = encode_prompt(self.model, messages, **self._arguments(asked))
        job = self._job(asked, asked.budget, prompt.ids, self._bind(source))
        return _several(asked, [job], True, lambda _: TextReader())

    def completion(self, asked: CompletionRequest) -> Plan:
        """The plan of texts that go on with the prompts. Raises as `chat`."""
        source = self._source(asked, asked.response_format)
        free = source is None
        constraint = self._bind(source or _Source(tags.AnyText(), {"syntax": "structural_tag"}))
        jobs = []
        for prompt in asked.prompts:
            encoded = encode_prompt(self.model, prompt)
            ids: Sequence[int] = encoded.ids
            held = constraint
            if encoded.open:
                ids, held = heal(encoded.ids, constraint)
            jobs.append(self._job(asked, asked.budget, ids, held))
        return _several(asked, jobs, not free, lambda _: TextReader(asked.stops if free else ()))

    def _arguments(self, asked: ChatRequest) -> dict[str, Any]:
        """What the chat template gets. Raises RequestError for what is the server's to say."""
        taken = self._taken & set(asked.chat_template_kwargs or ())
        if taken:
            names = ", ".join(sorted(taken))
            raise RequestError(
                f"chat_template_kwargs are variables of the chat template, which {names} are not",
                "chat_template_kwargs",
            )
        return asked.template_arguments

    # -- parts -----------------------------------------------------------------------------------

    def _reply(
        self, asked: ChatRequest, messages: Sequence[Mapping[str, Any]], source: _Source | None
    ) -> Plan:
        """Text, free or held to a source, or calls of tools; perhaps behind reasoning."""
        parallel = True if asked.parallel_tool_calls is None else asked.parallel_tool_calls
        request = prepare(
            self.model,
            messages,
            asked.allowed_tools,
            asked.choice,
            parallel=parallel,
            reasoning=asked.reasons,
            answer=None if source is None else self._grammar(source),
            template_arguments=self._arguments(asked),
            limits=self._limits,
        )
        constraint = request.grammar.bind(self.model.vocab)
        stops = asked.stops if source is None else ()
        job = self._job(asked, asked.budget, request.ids, constraint)
        held = source is not None
        return _several(asked, [job], held, lambda job: ReplyReader(request, job.seed or 0, stops))

    def _source(self, asked: Common, wanted: ResponseFormat | None) -> _Source | None:
        """What the answer is held to; None: free text."""
        if wanted is not None:
            if wanted.json_schema is None:
                return _Source({"type": "object"}, {})
            loose = wanted.json_schema.strict is False
            return _Source(wanted.json_schema.schema_, {"on_unsupported": "widen"} if loose else {})
        if asked.structured_outputs is None:
            return None
        ((kind, value),) = asked.structured_outputs.given()
        if kind == "json":
            return _Source(value, {})
        if kind == "json_object":
            return _Source({"type": "object"}, {})
        if kind == "choice":
            texts = tuple(tags.ConstString(text) for text in value)
            return _Source(tags.Or(texts), {"syntax": "structural_tag"})
        syntax = asked.structured_outputs.syntax if kind == "grammar" else kind
        return _Source(value, {"syntax": syntax})

    def _options(self, source: _Source) -> dict[str, Any]:
        return {**_SPELLING, **source.options, "limits": self._limits}

    def _grammar(self, source: _Source) -> Grammar:
        return compiled(source.source, self._options(source))

    def _bind(self, source: _Source) -> Constraint:
        return self.constraints.get(source.source, self.model.vocab, **self._options(source))

    def _job(
        self,
        asked: ChatRequest | CompletionRequest,
        budget: int | None,
        ids: Sequence[int],
        constraint: Any,
    ) -> Job:
        given = {name: getattr(asked, name) for name in SAMPLING}
        sampling = Sampling(**{k: v for k, v in given.items() if v is not None})
        return Job(
            ids,
            constraint,
            sampling,
            budget,
            asked.stops,
            logprobs=asked.alternatives is not None,
            top_logprobs=asked.alternatives or 0,
        )


@dataclass(frozen=True)
class _Source:
    """What to compile, and how."""

    source: Any
    options: Mapping[str, Any]


def _several(
    asked: Common, jobs: Sequence[Job], held: bool, reader: Callable[[Job], Reader]
) -> Plan:
    """Each job as often as the request asks for, with seeds of their own."""
    seed = secrets.randbits(63) if asked.seed is None else asked.seed
    seeded = [
        replace(job, seed=row_seed(seed, place, sample))
        for place, job in enumerate(jobs)
        for sample in range(asked.n or 1)
    ]
    return Plan(tuple(seeded), tuple(reader(job) for job in seeded), held)


def _message(message: Mapping[str, Any], index: int) -> dict[str, Any]:
    """A message as chat templates know them: content in parts becomes text."""
    said = {k: v for k, v in message.items() if v is not None or k == "content"}
    if not isinstance(said.get("role"), str):
        raise PromptError(f'message {index} has no "role" (such as "user")')
    if said["role"] == "developer":
        said["role"] = "system"
    content = said.get("content")
    if isinstance(content, list):
        texts = []
        for part in content:
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind not in ("text", "refusal") or not isinstance(part.get(kind), str):
                raise RequestError(
                    f"content of type {kind!r} cannot be read here; this model reads text",
                    f"messages[{index}].content",
                )
            texts.append(part[kind])
        said["content"] = "".join(texts)
    elif not isinstance(content, str | None):
        raise PromptError(f"the content of message {index} is neither text nor a list of parts")
    calls = said.get("tool_calls", [])
    if not isinstance(calls, list) or not all(_is_call(call) for call in calls):
        raise RequestError(
            'tool_calls are a list of {"type": "function", "function": {"name": …, …}}',
            f"messages[{index}].tool_calls",
        )
    if said.get("content") is None and not said.get("tool_calls"):
        raise PromptError(f'message {index} has neither "content" nor "tool_calls"')
    return said


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    return isinstance(function, Mapping) and isinstance(function.get("name"), str)
