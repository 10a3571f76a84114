"""The few names that most people use: `generate` and `stream`.

Both are thin: they compile the type, encode the prompt, run `decoding.loop` and parse the
text. Texts are written in canonical spelling and conventional whitespace unless asked otherwise,
since every further spelling splits the model's mass and hides forced text.

Sibling: `decorators.structured` makes a function of them.

Example::

    result = structspec.generate("default", "Ada Lovelace, 36, as JSON", Person)
    result.value                                    # a Person
    for event in structspec.stream("default", "Three colours", list[str], partial=True):
        print(event.value)                          # [], ['red'], …
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from structspec.arguments import conversation, model_of, one_each, sampling_of, seeds_of
from structspec.errors import BatchError, StructspecError
from structspec.extras import require
from structspec.grammar import Grammar
from structspec.integers import is_int
from structspec.kept_grammars import compiled
from structspec.values import value_of

if TYPE_CHECKING:
    from structspec.decoding.output import Alternatives, Output, Stats
    from structspec.decoding.progress import Job
    from structspec.decoding.streaming import Stream
    from structspec.drafting import DraftSource
    from structspec.forward.sampling import Sampling
    from structspec.models import Model

__all__ = ["Result", "generate", "stream"]

Messages = Sequence[Mapping[str, Any]]
T = TypeVar("T")


@dataclass(frozen=True)
class Result(Generic[T]):
    """One generated value.

    value: the parsed value (an instance of the type, or plain JSON data for a schema).
    text: exactly what was written. tokens: the ids. stats: counts and times, see `Stats`.
    finish_reason: "stop", "stop_string" or "length" (the text is complete in every case).
    seed: reproduces the result together with the same arguments.
    logprobs, end_logprob, top_logprobs: if asked for, see `decoding.output.Output`.
    """

    value: T
    text: str
    tokens: tuple[int, ...]
    stats: Stats = field(compare=False)
    finish_reason: str
    seed: int
    grammar: Grammar = field(repr=False, compare=False)
    logprobs: tuple[float, ...] | None = field(default=None, repr=False, compare=False)
    end_logprob: float | None = field(default=None, repr=False, compare=False)
    top_logprobs: tuple[Alternatives, ...] | None = field(default=None, repr=False, compare=False)


def generate(
    model: Any,
    prompt: str | Messages | Sequence[int] | Sequence[Any],
    output_type: Any,
    *,
    draft: DraftSource | str | None = "auto",
    draft_count: int = 1,
    verifier: str = "block",
    max_tokens: int | None = None,
    sampling: Sampling | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | Sequence[int] | None = None,
    stop: str | bytes | Sequence[str | bytes] = (),
    n: int | None = None,
    logprobs: bool = False,
    top_logprobs: int = 0,
    chat: bool | None = None,
    continue_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    template_arguments: Mapping[str, Any] | None = None,
    on_token: Callable[[int, bytes], object] | None = None,
    batch_size: int = 8,
    errors: Literal["raise", "return"] = "raise",
    **options: Any,
) -> Any:
    """Let a model write one value of a type, or many.

    model: a `structspec.Model`, a name or path for `structspec.load`, or a (model, tokenizer)
        pair of transformers.
    prompt: text, chat messages, or token ids. Text becomes a user message if the model has a
        chat template (`chat=False` continues it as raw text instead). A list of prompts is
        answered together, each as if it were alone.
    output_type: a pydantic model, dataclass, TypedDict, Enum, Literal, union, list, …, a JSON
        Schema (dict or text), or a compiled `Grammar`. With a list of prompts also a list of as
        many.
    draft: "auto" (forced spans and prompt look-up), "forced", "lookup", "forks", "eagle" (the head
        that comes with the default model), "early-exit:LAYERS", "model:NAME", "eagle:DIR",
        "medusa:DIR", None or "none" (plain decoding), a smaller `Model`, or a source of
        `structspec.drafting`. The law of the output does not depend on it, and the text of a seed
        neither where drafts are certain of themselves ("auto", "forced", "lookup", "forks", None).
    draft_count: independent drafts per round, for drafts that sample.
    verifier: "block" or "token" ("layered" and others with several drafts); temperature 0 is
        verified greedily.
    max_tokens: the text is complete within this many tokens, or refused before the first one.
        None: 1,024, or what the context window leaves.
    sampling: all sampling settings; temperature, top_k, top_p, min_p override single ones.
        Without any of them: temperature 1.
    seed: an int from 0 on for reproducible output; None takes that of `sampling` if given, else
        draws a fresh one (`Result.seed` tells it, and gives the same result alone or in any
        batch). A list holds one for each prompt.
    stop: strings that end the text at the first token behind them where it is complete; nothing
        is cut off.
    n: how many values per prompt.
    logprobs: whether results hold the log-probability of each token under the sampled law.
    top_logprobs: of how many of the likeliest tokens at each place, too.
    continue_final_message: write behind the last message instead of opening a new turn. The
        answer is still a whole value: a message that already holds its beginning is not part
        of it.
    tools, template_arguments: passed to the chat template.
    on_token: called with (id, bytes) for every token as soon as it is certain; one request only.
    batch_size: requests that are decoded at the same time, at most.
    errors: with several requests, "raise" raises `BatchError` when all have ended if any failed
        (it holds the others' results); "return" puts the errors in their places.
    options: any option of `structspec.compile`; spelling and whitespace default to "canonical"
        and "conventional" here.

    Returns a `Result`; with `n` a list of `n`; with a list of prompts a list with one of these
    for each.

    Raises the errors of `compile` and of `decoding.loop.decode`, and `ValueRejected` if a
    validator of the type refuses the finished value.
    """
    require("torch", "transformers")
    from structspec.decoding.loop import Loop

    if errors not in ("raise", "return"):
        raise ValueError(f"errors={errors!r} is neither 'raise' nor 'return'")
    if n is not None and not is_int(n, 1):
        raise ValueError(f"n must be an int from 1 on, or None for a single value, not {n!r}")
    target = model_of(model)
    many = _is_batch(prompt)
    several = many or n is not None
    if on_token is not None and not callable(on_token):
        raise TypeError(f"on_token is a {type(on_token).__name__}; pass a function of (id, bytes)")
    if template_arguments is not None and not isinstance(template_arguments, Mapping):
        kind = type(template_arguments).__name__
        raise TypeError(f"template_arguments is a {kind}; pass a mapping of names to values")
    if several and on_token is not None:
        raise TypeError("on_token follows a single request; several have no common order")
    prompts: Sequence[Any] = prompt if many else [prompt]
    count = len(prompts)
    listed = many and isinstance(output_type, list)
    types = one_each("output_type", output_type, count) if listed else [output_type] * count
    settings = sampling_of(sampling, temperature, top_k, top_p, min_p)
    seeds = seeds_of(seed, sampling, count, n or 1)
    results: list[Any] = [None] * len(seeds)
    jobs: list[Job] = []
    places: list[tuple[int, Grammar]] = []
    for place, own in enumerate(seeds):
        i = place // (n or 1)
        try:
            job, grammar = _job(
                target,
                prompts[i],
                types[i],
                options,
                chat=chat,
                continue_final_message=continue_final_message,
                tools=tools,
                template_arguments=template_arguments,
                sampling=settings,
                max_tokens=max_tokens,
                stop=stop,
                seed=own,
                on_token=on_token,
                logprobs=logprobs,
                top_logprobs=top_logprobs,
            )
        except StructspecError as error:
            if not several:
                raise
            results[place] = error
            continue
        places.append((place, grammar))
        jobs.append(job)
    loop = Loop(
        target,
        jobs,
        draft=draft,
        draft_count=draft_count,
        verifier=verifier,
        batch_size=batch_size,
    )
    loop.run()
    for (place, grammar), outcome in zip(places, loop.outcomes, strict=True):
        results[place] = outcome
        if not isinstance(outcome, Exception):
            assert outcome is not None
            try:
                results[place] = _result(grammar, outcome)
            except StructspecError as error:
                results[place] = error
    if not several:
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]
    if errors == "raise" and any(isinstance(result, Exception) for result in results):
        raise BatchError(results)
    if n is None:
        return results
    grouped = [results[i * n : (i + 1) * n] for i in range(len(prompts))]
    return grouped if many else grouped[0]


def stream(
    model: Any,
    prompt: str | Messages | Sequence[int],
    output_type: Any,
    *,
    partial: bool = False,
    draft: DraftSource | str | None = "auto",
    draft_count: int = 1,
    verifier: str = "block",
    max_tokens: int | None = None,
    sampling: Sampling | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    stop: str | bytes | Sequence[str | bytes] = (),
    logprobs: bool = False,
    top_logprobs: int = 0,
    chat: bool | None = None,
    continue_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    template_arguments: Mapping[str, Any] | None = None,
    **options: Any,
) -> Stream:
    """Let a model write one value of a type, and watch it grow.

    Arguments as for `generate`. partial: whether each event holds the finished part of the JSON
    value.

    Returns an iterator of `StreamEvent`s: new text and tokens, the partial value, and in the last
    one the `Result`. It decodes while it is asked for more; leaving it, or `close()`, stops the
    model, and its `text` and `output` keep what was written.

    Raises what `generate` raises: before the first token from this call, later from the iterator.
    """
    require("torch", "transformers")
    from structspec.decoding.streaming import Stream

    settings = sampling_of(sampling, temperature, top_k, top_p, min_p)
    target = model_of(model)
    job, grammar = _job(
        target,
        prompt,
        output_type,
        options,
        chat=chat,
        continue_final_message=continue_final_message,
        tools=tools,
        template_arguments=template_arguments,
        sampling=settings,
        max_tokens=max_tokens,
        stop=stop,
        seed=seeds_of(seed, sampling, 1, 1)[0],
        on_token=None,
        logprobs=logprobs,
        top_logprobs=top_logprobs,
    )
    return Stream(
        target,
        job,
        partial=partial and grammar.spec is not None,
        finish=functools.partial(_result, grammar),
        draft=draft,
        draft_count=draft_count,
        verifier=verifier,
    )


def _is_batch(prompt: Any) -> bool:
    """Whether it is a list of prompts: texts, message lists or id lists."""
    return (
        isinstance(prompt, list | tuple)
        and bool(prompt)
        and all(isinstance(one, str | list | tuple) or hasattr(one, "tolist") for one in prompt)
    )


def _job(
    target: Model,
    prompt: Any,
    output_type: Any,
    options: Mapping[str, Any],
    *,
    chat: bool | None,
    continue_final_message: bool,
    tools: Sequence[Mapping[str, Any]] | None,
    template_arguments: Mapping[str, Any] | None,
    **settings: Any,
) -> tuple[Job, Grammar]:
    """One request of the loop: prompt encoded, grammar bound, seam healed."""
    from structspec.decoding.healing import heal
    from structspec.decoding.progress import Job
    from structspec.prompt import encode_prompt

    grammar = compiled(output_type, options)
    encoded = encode_prompt(
        target,
        conversation(target, prompt, chat, continue_final_message),
        tools=tools,
        continue_final_message=continue_final_message,
        **(template_arguments or {}),
    )
    ids: Sequence[int] = encoded.ids
    constraint: Any = grammar.bind(target.vocab)
    if encoded.open:
        ids, constraint = heal(encoded.ids, constraint)
    return Job(ids, constraint, **settings), grammar


def _result(grammar: Grammar, output: Output) -> Result[Any]:
    """The result of an output, its value parsed."""
    text = output.text.decode("utf-8")
    result: Result[Any] = Result(
        None,
        text,
        output.tokens,
        output.stats,
        output.finish_reason,
        output.seed,
        grammar,
        output.logprobs,
        output.end_logprob,
        output.top_logprobs,
    )
    return replace(result, value=value_of(grammar, text, lambda data: replace(result, value=data)))
