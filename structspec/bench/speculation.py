"""Speculation under a grammar, measured: drafts × masks × verifiers × K × L × temperature.

    python -m structspec.bench.speculation --tasks 8 --drafts auto early-exit:24 --json out.json

Every configuration answers the same tool-calling tasks with the same model in one run: tokens and
accepted tokens per target forward (with a bootstrap interval over tasks), wall-clock and its
break-up. Beside them: plain decoding, transformers' own assisted generation under the same grammar
(`GrammarLogitsProcessor`), and transformers' plain generation with the processors of other engines.
Greedy texts are compared with those of plain decoding.

"masked" drafts are sampled under the grammar; "cut" ones without it, up to and including their
first illegal token, which the verifier then refuses: the lossless form of cutting there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from structspec.bench.machine import describe_machine
from structspec.bench.tasks import ToolTask, read_tasks

_UNTRAINED = ("auto", "forced", "forks", "lookup")


@dataclass(frozen=True)
class Setting:
    """One configuration. `kind`: "structspec", "assisted" or "peer"; the rest as it applies."""

    kind: str
    draft: str = "none"
    masked: bool = True
    verifier: str = "block"
    count: int = 1
    length: int = 0
    temperature: float = 0.0

    @property
    def name(self) -> str:
        """A short name for tables."""
        if self.kind != "structspec":
            return f"{self.kind} {self.draft}"
        if self.draft in ("none", *_UNTRAINED):
            return self.draft
        mask = "masked" if self.masked else "cut"
        return f"{self.draft} {mask} {self.verifier} K={self.count} L={self.length}"


@dataclass(frozen=True)
class Answer:
    """One task answered under one setting; seconds by the clock."""

    task: str
    tokens: tuple[int, ...] = field(repr=False)
    seconds: float
    forwards: int
    drafted: int = 0
    accepted: int = 0
    model_seconds: float = 0.0
    draft_seconds: float = 0.0
    mask_seconds: float = 0.0
    verify_seconds: float = 0.0
    error: str | None = None


def settings(options: argparse.Namespace) -> Iterator[Setting]:
    """The matrix, for each temperature."""
    for temperature in options.temperatures:
        yield Setting("structspec", temperature=temperature)
        for draft in options.drafts:
            if draft in _UNTRAINED:
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
    if setting.draft in ("none", *_UNTRAINED):
        return source
    return replace(source, length=setting.length, adaptive=False, masked=setting.masked)


class Bench:
    """A model and the ways to answer a task with it."""

    def __init__(self, model: Any, max_tokens: int, seed: int = 0) -> None:
        self.model = model
        self.max_tokens = max_tokens
        self.seed = seed
        self._peers: dict[str, Any] = {}
        self._sources: dict[Setting, Any] = {}

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
        from structspec.api import compiled
        from structspec.decoding import GrammarLogitsProcessor

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

            more["assistant_model"] = load(argument).model
        return self._generate(setting, task, processor, more)

    def _peer(self, setting: Setting, task: ToolTask) -> Answer:
        from structspec.bench.peer_processors import PEERS

        if setting.draft not in self._peers:
            self._peers[setting.draft] = PEERS[setting.draft](self.model)
        processor = self._peers[setting.draft].processor(task.schema)
        return self._generate(setting, task, processor, {})

    def _generate(
        self, setting: Setting, task: ToolTask, processor: Any, more: dict[str, Any]
    ) -> Answer:
        """transformers' own generate, timed without the compilation of the grammar."""
        import torch

        from structspec.decoding.prompt import encode_prompt

        ids = torch.tensor([encode_prompt(self.model, task.messages).ids])
        forwards = 0

        def count(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            nonlocal forwards
            forwards += 1

        options: dict[str, Any] = {"do_sample": False}
        if setting.temperature:
            options = {"do_sample": True, "temperature": setting.temperature, "top_k": 0}
        handle = self.model.model.register_forward_hook(count, with_kwargs=True)
        torch.manual_seed(self.seed)
        try:
            started = time.perf_counter()
            rows = self.model.model.generate(
                ids.to(self.model.device),
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


def summarise(
    setting: Setting, answers: Sequence[Answer], plain: Sequence[Answer]
) -> dict[str, Any]:
    """One row of the table."""
    done = [answer for answer in answers if answer.error is None and answer.tokens]
    row: dict[str, Any] = {
        "name": setting.name,
        **asdict(setting),
        "tasks": len(done),
        "failed": len(answers) - len(done),
        "errors": sorted({answer.error for answer in answers if answer.error}),
    }
    if not done:
        return row
    tokens, forwards = sum(len(a.tokens) for a in done), sum(a.forwards for a in done)
    seconds = sum(a.seconds for a in done)
    row |= {
        "tokens": tokens,
        "forwards": forwards,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "tokens_per_forward": tokens / max(1, forwards),
        "tokens_per_forward_95": _interval(
            done, lambda some: sum(len(a.tokens) for a in some) / sum(a.forwards for a in some)
        ),
    }
    if setting.kind == "structspec":
        row |= {
            "accepted_per_forward": sum(a.accepted for a in done) / max(1, forwards),
            "accepted_per_forward_95": _interval(
                done, lambda some: sum(a.accepted for a in some) / sum(a.forwards for a in some)
            ),
            "accepted_per_drafted": sum(a.accepted for a in done)
            / max(1, sum(a.drafted for a in done)),
            "share_of_time": {
                part: sum(getattr(a, f"{part}_seconds") for a in done) / seconds
                for part in ("model", "draft", "mask", "verify")
            },
        }
    if setting.temperature == 0 and plain:
        texts = {a.task: a.tokens for a in plain}
        row["identical_to_plain"] = sum(texts.get(a.task) == a.tokens for a in done)
    return row


def _interval(
    answers: Sequence[Answer], statistic: Callable[[Sequence[Answer]], float]
) -> tuple[float, float]:
    """A 95 % bootstrap interval over tasks; the same resamples every time."""
    if not all(answer.forwards for answer in answers):
        answers = [answer for answer in answers if answer.forwards]
    if not answers:
        return (0.0, 0.0)
    draw = random.Random(0)
    values = sorted(statistic(draw.choices(answers, k=len(answers))) for _ in range(1000))
    return values[25], values[974]


def table(rows: Sequence[dict[str, Any]]) -> Any:
    """A rich table of the summary rows."""
    from rich.table import Table

    shown = Table(title="tool-calling tasks")
    for column in ("T", "setting", "tok/forward", "accepted/forward", "tok/s", "model", "draft"):
        shown.add_column(column, justify="left" if column == "setting" else "right")
    for row in rows:
        if "tokens" not in row:
            error = (row["errors"] or ["no answer"])[0]
            shown.add_row(f"{row['temperature']:g}", row["name"], "failed", error[:40])
            continue
        low, high = row["tokens_per_forward_95"]
        share = row.get("share_of_time", {})
        shown.add_row(
            f"{row['temperature']:g}",
            row["name"],
            f"{row['tokens_per_forward']:.2f} [{low:.2f}, {high:.2f}]",
            f"{row['accepted_per_forward']:.2f}" if "accepted_per_forward" in row else "",
            f"{row['tokens_per_second']:.1f}",
            *(f"{share[part]:.0%}" if part in share else "" for part in ("model", "draft")),
        )
    return shown


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--tasks", type=int, default=8)
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
    add("--peers", nargs="*", default=["xgrammar", "llguidance"])
    add("--threads", type=int, default=1, help="torch threads")
    add("--seed", type=int, default=0)
    add("--json", type=Path, default=None)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the matrix and print the table."""
    options = _parser().parse_args(arguments)
    import torch
    from rich.console import Console
    from rich.progress import Progress

    from structspec.models import load

    torch.set_num_threads(options.threads)
    bench = Bench(load(options.model, dtype=options.dtype), options.max_tokens, options.seed)
    tasks = list(read_tasks(options.tasks))
    rows: list[dict[str, Any]] = []
    plain: dict[float, list[Answer]] = {}
    started = time.perf_counter()
    matrix = list(settings(options))
    with Progress(transient=True) as progress:
        bar = progress.add_task("answers", total=len(matrix) * len(tasks))
        for setting in matrix:
            answers = []
            for task in tasks:
                answers.append(bench.answer(setting, task))
                progress.advance(bar)
            if setting.kind == "structspec" and setting.draft == "none":
                plain[setting.temperature] = answers
            rows.append(summarise(setting, answers, plain.get(setting.temperature, [])))
    Console(width=120).print(table(rows))
    if options.json:
        given = sys.argv[1:] if arguments is None else arguments
        report = {
            "command": "python -m structspec.bench.speculation " + " ".join(given),
            "machine": {**describe_machine(), "torch_threads": torch.get_num_threads()},
            "model": bench.model.name,
            "dtype": options.dtype,
            "seconds": round(time.perf_counter() - started, 1),
            "rows": rows,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
