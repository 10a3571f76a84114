"""What a server counts, in Prometheus' form: `GET /metrics`.

Each server has a registry of its own, so that several can live in one process.

Example::

    metrics = Metrics(engine)
    metrics.answered("chat", [output], seconds=1.2, first_token=0.3)
    metrics.page()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from structspec.decoding.output import Output
from structspec.server.engine import Engine

if TYPE_CHECKING:
    from structspec.constraint_cache import ConstraintCache

__all__ = ["Metrics"]

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)


class Metrics:
    """Counters of one server."""

    def __init__(self, engine: Engine, constraints: ConstraintCache) -> None:
        self._registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"structspec_{name}", text, labels, registry=registry)

        text = "Requests by kind and HTTP status; 499: the client went away."
        self.requests = counter("requests", text, "kind", "status")
        self._read = counter("prompt_tokens", "Tokens of prompts.")
        self._cached = counter("prompt_tokens_cached", "Tokens of prompts that were not read anew.")
        self._written = counter("output_tokens", "Tokens that were written.")
        self._forwards = counter("forwards", "Calls of the model, counted for each request.")
        self._drafted = counter("drafted_tokens", "Tokens that were drafted.")
        self._accepted = counter("accepted_tokens", "Drafted tokens that were kept.")
        self._seconds = Histogram(
            "structspec_request_seconds",
            "Time of whole requests.",
            ["kind"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._first = Histogram(
            "structspec_first_token_seconds",
            "Time until the first token, waiting included.",
            ["kind"],
            buckets=_SECONDS,
            registry=registry,
        )
        for name, text, function in (
            ("running_requests", "Answers that are being written.", lambda: engine.running),
            ("waiting_requests", "Answers that wait for a place.", lambda: engine.waiting),
            ("constraints", "Compiled schemas that are kept.", lambda: len(constraints)),
            ("constraint_bytes", "Memory of compiled schemas.", lambda: constraints.n_bytes),
        ):
            gauge = Gauge(f"structspec_{name}", text, registry=registry)
            gauge.set_function(function)

    def answered(
        self, kind: str, outputs: Sequence[Output], seconds: float, first_token: float | None
    ) -> None:
        """Count a request that was answered."""
        self._seconds.labels(kind).observe(seconds)
        if first_token is not None:
            self._first.labels(kind).observe(first_token)
        for output in outputs:
            stats = output.stats
            self._read.inc(stats.prompt_tokens)
            self._cached.inc(stats.reused)
            self._written.inc(stats.tokens)
            self._forwards.inc(stats.forwards)
            self._drafted.inc(stats.drafted)
            self._accepted.inc(stats.accepted)

    def page(self) -> bytes:
        """All of it, as text."""
        return generate_latest(self._registry)
