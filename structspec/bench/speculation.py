"""Speculation under a grammar, measured: drafts × masks × verifiers × K × L × temperature.

    python -m structspec.bench.speculation --quick --drafts auto early-exit:24 --json out.json

Every configuration answers the same tasks with the same model in one run: tokens and accepted
tokens per target forward (with bootstrap intervals over tasks), wall-clock and its break-up.
Beside them: plain decoding, transformers' own assisted generation under the same grammar
(`GrammarLogitsProcessor`), and transformers' plain generation with the processors of other engines.
Tasks are tool calls and, where MaskBench is at hand, prompts for an instance of one of its schemas.
Greedy texts are compared with those of plain decoding.

"masked" drafts are sampled under the grammar; "cut" ones without it, up to and including their
first illegal token, which the verifier then refuses: the lossless form of cutting there.

Tasks go in turn and each is answered by all settings before the next, in an order that rotates: a
machine that gets slower meets all of them, and a run that `--minutes` ends is complete as far as
it went. `--quick` is the main comparison alone: K = 1 and 3, one length, temperatures 0 and 1.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from structspec.bench.machine import describe_machine
from structspec.bench.pages import write_report
from structspec.bench.speculation_report import (
    UNTRAINED,
    Answer,
    Setting,
    comparisons,
    plot,
    summarise,
    tables,
)
from structspec.bench.tasks import ToolTask, read_schema_tasks, read_tasks
from structspec.errors import MissingExtra, StructspecError


def settings(options: argparse.Namespace) -> Iterator[Setting]:
    """The matrix, for each temperature."""
    for temperature in options.temperatures:
        yield Setting("structspec", temperature=temperature)
        for draft in options.drafts:
            if draft in UNTRAINED:
                yield Setting("structspec", draft, temperature=temperature)
                continue
            for length, count, masked, verifier in itertools.product(
                options.lengths, options.counts, options.masks, options.verifiers
            ):
                if (count > 1) != (verifier not in ("token", "block")):
                    continue
                if temperature == 0 and (count > 1 or verifier != "block"):
                    continue  # greedy: one draft, one rule
                yield Setting(
                    "structspec", draft, masked == "masked", verifier, count, length, temperature
                )
        for draft in options.assisted:
            yield Setting("assisted", draft, temperature=temperature)
        for peer in options.peers:
            yield Setting("peer", peer, temperature=temperature)


def source_of(setting: Setting) -> Any:
    """The draft source of a setting of ours."""
    from dataclasses import replace

    from structspec.drafting import draft_source

    source: Any = draft_source(setting.draft)
    if setting.draft in ("none", *UNTRAINED):
        return source
    return replace(source, length=setting.length, adaptive=False, masked=setting.masked)


class Bench:
    """A model and the ways to answer a task with it.

    `stock`: the same model just as transformers makes it, which other engines and transformers'
    own decoding run.
    """

    def __init__(self, model: Any, stock: Any, max_tokens: int, seed: int = 0) -> None:
        self.model = model
        self.stock = stock
        self.max_tokens = max_tokens
        self.seed = seed
        self._peers: dict[str, Any] = {}
        self._sources: dict[Setting, Any] = {}

    def prepare(self, task: ToolTask) -> None:
        """Compile a task's grammar ahead: no engine's compilation is part of its answer's time."""
        from structspec.kept_grammars import compiled

        with contextlib.suppress(StructspecError):  # each answer will say so
            compiled(task.schema, {}).bind(self.model.vocab)

    def answer(self, setting: Setting, task: ToolTask) -> Answer:
        """Answer one task."""
        run: Callable[[Setting, ToolTask], Answer] = {
            "structspec": self._ours,
            "assisted": self._assisted,
            "peer": self._peer,
        }[setting.kind]
        try:
            return run(setting, task)
        except Exception as error:  # other engines raise anything; a bench reports and goes on
            return Answer(task.id, (), 0.0, 0, error=f"{type(error).__name__}: {error}"[:200])

    def _ours(self, setting: Setting, task: ToolTask) -> Answer:
        from structspec.api import generate

        if setting not in self._sources:
            self._sources[setting] = source_of(setting)
        started = time.perf_counter()
        result = generate(
            self.model,
            task.messages,
            task.schema,
            draft=self._sources[setting],
            draft_count=setting.count,
            verifier=setting.verifier,
            temperature=setting.temperature,
            max_tokens=self.max_tokens,
            seed=self.seed,
        )
        seconds = time.perf_counter() - started
        stats = result.stats
        return Answer(
            task.id,
            result.tokens,
            seconds,
            stats.forwards,
            stats.drafted,
            stats.accepted,
            stats.model_time,
            stats.draft_time,
            stats.mask_time,
            stats.verify_time,
        )

    def _assisted(self, setting: Setting, task: ToolTask) -> Answer:
        from structspec.decoding import GrammarLogitsProcessor
        from structspec.kept_grammars import compiled

        constraint = compiled(task.schema, {}).bind(self.model.vocab)
        processor = GrammarLogitsProcessor(constraint, max_new_tokens=self.max_tokens)
        kind, _, argument = setting.draft.partition(":")
        more: dict[str, Any] = {}
        if kind == "lookup":
            more["prompt_lookup_num_tokens"] = int(argument or 8)
        elif kind == "early-exit":
            more["assistant_early_exit"] = int(argument)
        elif kind == "model":
            from structspec.models import load

            more["assistant_model"] = load(argument, quick=False, prefix_cache=0).model
        return self._generate(setting, task, processor, more)

    def _peer(self, setting: Setting, task: ToolTask) -> Answer:
        from structspec.bench.peer_processors import PEERS

        if setting.draft not in self._peers:
            self._peers[setting.draft] = PEERS[setting.draft](self.stock)
        processor = self._peers[setting.draft].processor(task.schema)
        return self._generate(setting, task, processor, {})

    def _generate(
        self, setting: Setting, task: ToolTask, processor: Any, more: dict[str, Any]
    ) -> Answer:
        """transformers' own generate, timed without the compilation of the grammar."""
        import torch

        from structspec.prompt import encode_prompt

        ids = torch.tensor([encode_prompt(self.model, task.messages).ids])
        forwards = 0

        def count(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            nonlocal forwards
            forwards += 1

        options: dict[str, Any] = {"do_sample": False}
        if setting.temperature:
            options = {"do_sample": True, "temperature": setting.temperature, "top_k": 0}
        network = self.stock.model
        handle = network.register_forward_hook(count, with_kwargs=True)
        torch.manual_seed(self.seed)
        try:
            started = time.perf_counter()
            rows = network.generate(
                ids.to(self.stock.device),
                logits_processor=[processor],
                max_new_tokens=self.max_tokens,
                pad_token_id=self.model.eos_ids[0],
                **options,
                **more,
            )
            seconds = time.perf_counter() - started
        finally:
            handle.remove()
        tokens = [t for t in rows[0, ids.shape[1] :].tolist() if t not in self.model.eos_ids]
        return Answer(task.id, tuple(tokens), seconds, forwards)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="the main comparison, about 15 minutes on 2 cores")
    add("--tasks", type=int, default=8, help="tool-calling tasks")
    add("--schemas", type=int, default=0, help="MaskBench prompts")
    add("--minutes", type=float, default=None, help="begin no further task after that")
    add("--model", default="default")
    add("--dtype", default="float32", help="float32, or bfloat16 (ties change greedy choices)")
    add("--max-tokens", type=int, default=128)
    add("--drafts", nargs="*", default=["auto", "early-exit:24"])
    add("--masks", nargs="*", choices=["masked", "cut"], default=["masked", "cut"])
    add("--verifiers", nargs="*", default=["token", "block", "layered"])
    add("--counts", nargs="*", type=int, default=[1, 3], help="drafts per round (K)")
    add("--lengths", nargs="*", type=int, default=[4], help="free tokens per draft (L)")
    add("--temperatures", nargs="*", type=float, default=[0.0, 1.0])
    add("--assisted", nargs="*", default=["lookup:8"], help="transformers' assisted generation")
    add("--peers", nargs="*", default=["xgrammar", "llguidance", "outlines"])
    add("--threads", type=int, default=1, help="torch threads")
    add("--seed", type=int, default=0)
    add("--json", type=Path, default=None, help="where the figures go; a plot lies beside them")
    return parser


def _quick(options: argparse.Namespace) -> None:
    """At most 36 tasks in 19 minutes, short answers; at temperature 0 what a user would compare."""
    options.tasks, options.schemas = 30, 6
    options.minutes = options.minutes or 19.0
    options.max_tokens = min(options.max_tokens, 96)
    options.lengths, options.counts = options.lengths[:1], [1, 3]
    options.temperatures = [0.0, 1.0]
    options.peers = [peer for peer in options.peers if peer != "outlines"]


def _matrix(options: argparse.Namespace) -> list[Setting]:
    matrix = list(settings(options))
    if options.quick:
        # other engines once; a cut draft is compared at the temperature where it is sampled
        matrix = [
            setting
            for setting in matrix
            if (setting.temperature == 0) == (setting.kind != "structspec")
            or (setting.kind == "structspec" and setting.masked)
        ]
        matrix = [s for s in matrix if s.masked or (s.count == 1 and s.verifier == "block")]
    return matrix


def main(arguments: list[str] | None = None) -> int:
    """Run the matrix and print the tables."""
    options = _parser().parse_args(arguments)
    if options.quick:
        _quick(options)
    import torch
    from rich.console import Console
    from rich.progress import Progress

    from structspec.models import load

    torch.set_num_threads(options.threads)
    # every setting reads the prompt itself, as other engines do
    model = load(options.model, dtype=options.dtype, prefix_cache=0, history=False)
    stock = load(options.model, dtype=options.dtype, quick=False)
    bench = Bench(model, stock, options.max_tokens, options.seed)
    tasks = [*read_tasks(options.tasks), *read_schema_tasks(options.schemas)]
    # tool calls and schemas alternate, so that a run that is cut short has both
    tasks = sorted(tasks, key=_turns(tasks).__getitem__)
    matrix = _matrix(options)
    answers: dict[Setting, list[Answer]] = {setting: [] for setting in matrix}
    started = time.perf_counter()
    with Progress(transient=True) as progress:
        bar = progress.add_task("answers", total=len(matrix) * len(tasks))
        for turn, task in enumerate(tasks):
            if options.minutes and time.perf_counter() - started > 60 * options.minutes:
                break
            bench.prepare(task)
            if turn == 0:
                bench.answer(matrix[0], task)  # what is loaded or compiled once is not measured
            for i in range(len(matrix)):
                setting = matrix[(i + turn) % len(matrix)]
                answers[setting].append(bench.answer(setting, task))
                progress.advance(bar)
    plain = {
        s.temperature: a for s, a in answers.items() if s.kind == "structspec" and s.draft == "none"
    }
    rows = [summarise(s, a, plain.get(s.temperature, [])) for s, a in answers.items()]
    ratios = comparisons(answers)
    for shown in tables(rows, ratios):
        Console(width=150).print(shown)
    if options.json:
        given = sys.argv[1:] if arguments is None else arguments
        report = {
            "command": "python -m structspec.bench.speculation " + " ".join(given),
            "machine": {**describe_machine(), "torch_threads": torch.get_num_threads()},
            "model": bench.model.name,
            "dtype": options.dtype,
            "seconds": round(time.perf_counter() - started, 1),
            "rows": rows,
            "ratios": ratios,
        }
        write_report(options.json, report)
        try:
            plot(rows, options.json.with_suffix(".svg"))
        except MissingExtra as error:  # the figures are safe by now
            Console().print(f"no plot: {error}")
    return 0


def _turns(tasks: list[ToolTask]) -> dict[ToolTask, float]:
    """Places that spread each kind of task evenly over the run."""
    kinds: dict[str, list[ToolTask]] = {}
    for task in tasks:
        kinds.setdefault(task.kind, []).append(task)
    return {t: (i + 0.5) / len(some) for some in kinds.values() for i, t in enumerate(some)}


if __name__ == "__main__":
    sys.exit(main())
