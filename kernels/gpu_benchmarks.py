"""What the GPU check times, at the sizes of the goals or tiny (dry runs).

Every benchmark yields `Line`s: our kernel with its floor (bytes that must be read over the measured
copy bandwidth), straightforward torch code, and peers. Goals are stated where the line is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from structspec.kernels import gpu_peers
from structspec.kernels.automaton_walk import DeviceAutomaton
from structspec.kernels.block_verify import block_verify
from structspec.kernels.draft_step import DraftStep
from structspec.kernels.gather_head import gather_head
from structspec.kernels.gpu_timing import Timer, Timing
from structspec.kernels.layered_verify import layered_verify
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.masked_softmax_stats import masked_softmax_stats

__all__ = ["BENCHMARKS", "Line", "Setting", "synthetic_automaton"]


@dataclass
class Line:
    """One row of the table. goal: what `value` should not pass."""

    kernel: str
    what: str
    timing: Timing | None
    floor: float | None = None
    goal: float | None = None
    value: float | None = None
    unit: str = "µs"
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Setting:
    """Device, timer, bandwidth in bytes per µs, and whether sizes are tiny."""

    device: torch.device
    timer: Timer
    bandwidth: float
    tiny: bool
    backend: str = "triton"

    def size(self, real: int, small: int) -> int:
        """The real size, or the small one in a dry run."""
        return small if self.tiny else real

    def logits(self, *shape: int) -> Tensor:
        """bfloat16 noise."""
        return (torch.randn(*shape, device=self.device) * 2).to(torch.bfloat16)

    def masks(self, rows: int, vocab: int, share: float = 0.5) -> Tensor:
        """Random packed masks, about `share` of the tokens allowed (token 0 always)."""
        legal = torch.rand(rows, -(-vocab // 32), 32, device=self.device) < share
        legal[:, 0, 0] = True
        bits = (legal.long() << torch.arange(32, device=self.device)).sum(-1)
        return torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32)

    def floor(self, n_bytes: int) -> float:
        """Microseconds that reading takes at the copy bandwidth."""
        return n_bytes / self.bandwidth

    def attempt(self, kernel: str, calls: dict[str, Callable[[], Any]]) -> Iterator[Line]:
        """Peers and plain code: whatever they raise is their line's note."""
        for name, call in calls.items():
            try:
                yield Line(kernel, name, self.timer.time([call], graph=False))
            except ImportError:
                yield Line(kernel, name, None, note="not installed")
            except Exception as error:  # their interface, not ours
                yield Line(kernel, name, None, note=f"{type(error).__name__}: {error}"[:200])


def stats(setting: Setting) -> Iterator[Line]:
    """Masked statistics of 288 rows of 152,064 bfloat16 logits; goal 1.3 × floor."""
    rows, vocab = setting.size(288, 2), setting.size(152_064, 300)
    n_bytes = rows * (2 * vocab + vocab // 8)
    inputs = [
        LogitRows(setting.logits(rows, vocab), setting.masks(rows, vocab), temperature=0.8)
        for _ in range(setting.timer.copies(n_bytes))
    ]
    calls = [lambda r=r: masked_softmax_stats(r, backend=setting.backend) for r in inputs]
    timing = setting.timer.time(calls)
    floor = setting.floor(n_bytes)
    yield Line("masked_softmax_stats", f"{rows} x {vocab} bf16, half allowed", timing, floor,
               1.3, timing.median / floor, "x floor")  # fmt: skip
    first = inputs[0]

    def plain() -> Tensor:
        return torch.logsumexp(
            (first.logits.float() / 0.8).masked_fill(~first.legal(), -torch.inf), dim=-1
        )

    yield from setting.attempt(
        "masked_softmax_stats", {"torch": plain, **gpu_peers.softmax(first.logits.float())}
    )


def _pair(setting: Setting, rows_p: int, rows_q: int, vocab: int) -> tuple[LogitRows, LogitRows]:
    """Target and draft rows of which each draft row resembles the target row it came from."""
    p = setting.logits(rows_p, vocab)
    masks = setting.masks(rows_p, vocab)
    step = rows_p // max(rows_p - rows_q, 1)
    keep = torch.arange(rows_p, device=setting.device) % step != step - 1
    q = p[keep][:rows_q] + (setting.logits(rows_q, vocab) * 0.25)
    return LogitRows(p, masks), LogitRows(q, masks[keep][:rows_q].contiguous())


def _drawn(rows: LogitRows) -> Tensor:
    """One token per row, from its law."""
    scores = rows.logits.float().masked_fill(~rows.legal(), -torch.inf)
    noise = -torch.log(-torch.log(torch.rand_like(scores).clamp(1e-9, 1 - 1e-7)))
    return (scores + noise).argmax(dim=-1).to(torch.int32)


def block(setting: Setting) -> Iterator[Line]:
    """Block verification of 32 drafts of 8 tokens at V = 152,064; goal 2 × floor."""
    batch, length = setting.size(32, 2), setting.size(8, 2)
    vocab = setting.size(152_064, 300)
    n_bytes = batch * (2 * length + 1) * (2 * vocab + vocab // 8)
    lengths = torch.full((batch,), length, dtype=torch.int32, device=setting.device)
    calls, first = [], None
    for _ in range(min(setting.timer.copies(n_bytes), 3)):
        p, q = _pair(setting, batch * (length + 1), batch * length, vocab)
        tokens = _drawn(q).view(batch, length)
        u = torch.rand(batch, length + 1, device=setting.device, dtype=torch.float64)
        first = first or (p, q, tokens, u)
        calls.append(
            lambda p=p, q=q, t=tokens, u=u: block_verify(
                p, q, t, lengths, uniforms=u, backend=setting.backend
            )
        )
    timing = setting.timer.time(calls)
    floor = setting.floor(n_bytes)
    yield Line("block_verify", f"B={batch} L={length} V={vocab} bf16", timing, floor, 2.0,
               timing.median / floor, "x floor")  # fmt: skip
    assert first is not None
    p, q, tokens, u = first
    yield from setting.attempt(
        "block_verify",
        {"torch": lambda: block_verify(p, q, tokens, lengths, uniforms=u, backend="torch")},
    )
    laws = [
        torch.softmax(r.logits.float().masked_fill(~r.legal(), -torch.inf), -1).view(
            batch, -1, vocab
        )
        for r in (p, q)
    ]
    yield from setting.attempt("block_verify", gpu_peers.chain_verify(laws[0], laws[1], tokens))


def layered(setting: Setting) -> Iterator[Line]:
    """Layered verification, 4 drafts of 8 tokens."""
    for batch in (setting.size(1, 1), setting.size(8, 1)):
        drafts, length = setting.size(4, 2), setting.size(8, 1)
        vocab = setting.size(152_064, 100)
        paths = batch * drafts
        p, q = _pair(setting, paths * (length + 1), paths * length, vocab)
        # Equal prefixes need equal rows: the root's rows are the first path's.
        p_map = torch.arange(paths * (length + 1), dtype=torch.int32, device=setting.device)
        p_map = p_map.view(batch, drafts, length + 1)
        q_map = torch.arange(paths * length, dtype=torch.int32, device=setting.device)
        q_map = q_map.view(batch, drafts, length)
        p_map[:, :, 0], q_map[:, :, 0] = p_map[:, :1, 0], q_map[:, :1, 0]
        tokens = _drawn(q)[q_map.long()].contiguous()
        # Different first tokens, so that no deeper prefix is shared.
        tokens[:, :, 0] = torch.arange(drafts, dtype=torch.int32, device=setting.device) + 0
        masks = q.masks
        assert masks is not None
        masks[:, 0] |= (1 << drafts) - 1
        assert p.masks is not None
        p.masks[:, 0] |= (1 << drafts) - 1
        lengths = torch.full((batch, drafts), length, dtype=torch.int32, device=setting.device)
        u = torch.rand(batch, 2, device=setting.device, dtype=torch.float64)
        n_bytes = batch * (drafts * 2 * length + 2) * (2 * vocab + vocab // 8)

        def call(
            p: LogitRows = p, q: LogitRows = q, tokens: Tensor = tokens, lengths: Tensor = lengths,
            p_map: Tensor = p_map, q_map: Tensor = q_map, u: Tensor = u,
        ) -> Any:  # fmt: skip
            return layered_verify(
                p, q, tokens, lengths, target_rows=p_map.contiguous(),
                draft_rows=q_map.contiguous(), uniforms=u, backend=setting.backend,
            )  # fmt: skip

        timing = setting.timer.time([call])
        floor = setting.floor(n_bytes)
        yield Line("layered_verify", f"B={batch} K={drafts} L={length} V={vocab} bf16", timing,
                   floor, None, timing.median / floor, "x floor")  # fmt: skip
        if setting.tiny:
            return


def synthetic_automaton(vocab: int, device: torch.device) -> DeviceAutomaton:
    """An object with a string and a number over a made-up vocabulary of words and pieces."""
    texts: list[bytes | None] = [bytes([b]) for b in range(256)]
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    state = 12345
    while len(texts) < vocab - 1:
        word = " " if state % 3 else ""
        for _ in range(1 + state % 4):
            state = (state * 1103515245 + 12345) % 2**31
            word += syllables[(state >> 8) % len(syllables)]
        word += ["", '"', '":', ",", "}"][state % 5 if state % 7 == 0 else 0]
        texts.append(f"{word}{len(texts) % 10}".encode() if state % 11 == 0 else word.encode())
    texts = [*texts[: vocab - 1], None]
    head, middle, tail = b'{"name": "', b', "count": ', b"}"
    literal = sorted(set(head + middle + tail + b"0123456789"))
    # class 0: not in a string; 1: other string characters; then one per literal byte; digits
    class_of = [0 if b < 32 else 1 for b in range(256)]
    for i, b in enumerate(literal):
        class_of[b] = i + 2
    class_of[0x5C] = 0
    n_classes = len(literal) + 2
    rows: list[list[int]] = [[1] * n_classes, [1] * n_classes]

    def fresh() -> int:
        rows.append([1] * n_classes)
        return len(rows) - 1

    here = fresh()
    for byte in head:
        following = fresh()
        rows[here][class_of[byte]] = following
        here = following
    text = here
    rows[text] = [text] * n_classes
    rows[text][0] = 1
    here = fresh()
    rows[text][class_of[0x22]] = here
    for byte in middle:
        following = fresh()
        rows[here][class_of[byte]] = following
        here = following
    number, end = fresh(), fresh()
    for digit in b"0123456789":
        rows[here][class_of[digit]] = number
        rows[number][class_of[digit]] = number
    rows[number][class_of[0x7D]] = end
    accepting = [int(s == end) for s in range(len(rows))]
    return DeviceAutomaton.from_table(
        rows, accepting, [0] * len(rows), class_of, texts, [vocab - 1], device=device
    )


def masks(setting: Setting) -> Iterator[Line]:
    """Masks of 64 states at V = 131,072; goal 50 µs."""
    vocab, count = setting.size(131_072, 600), setting.size(64, 3)
    automaton = synthetic_automaton(vocab, setting.device)
    total = automaton.next.shape[0]
    text = int(automaton.next[2:, 1].max())  # the string state: a class no literal has leads there
    spread = torch.arange(count, device=setting.device, dtype=torch.int32) % (total - 2) + 2
    for what, states in (("all states in turn", spread), ("string states only", spread * 0 + text)):
        out = torch.empty(count, automaton.words, dtype=torch.int32, device=setting.device)
        timing = setting.timer.time(
            [partial(automaton.masks, states, out=out, backend=setting.backend)]
        )
        yield Line("automaton_walk", f"masks of {count} states, V={vocab}, {what}", timing, None,
                   50.0, timing.median)  # fmt: skip
    yield from setting.attempt(
        "automaton_walk", {"torch": lambda: automaton.masks(spread, backend="torch")}
    )


def head(setting: Setting) -> Iterator[Line]:
    """The projection of 64 allowed rows beside the whole product."""
    vocab, hidden = setting.size(131_072, 200), setting.size(4096, 64)
    weight = setting.logits(vocab, hidden)
    for batch in (1, 32):
        batch = setting.size(batch, 1)
        x = setting.logits(batch, hidden)
        allowed = setting.masks(batch, vocab, 64 / vocab)
        out = torch.empty(batch, vocab, dtype=torch.float32, device=setting.device)
        timing = setting.timer.time(
            [partial(gather_head, x, weight, allowed, out=out, backend=setting.backend)]
        )
        floor = setting.floor(batch * 64 * hidden * 2)
        yield Line("gather_head", f"B={batch}, about 64 of {vocab} rows of {hidden}", timing, floor)
        whole = setting.timer.time([partial(torch.matmul, x, weight.T)])
        yield Line("gather_head", f"B={batch}, torch: all rows", whole)
        if setting.tiny:
            return


class OneLayerHead:
    """Random weights of one transformer layer (attention over its own token) and the projection."""

    def __init__(self, setting: Setting, hidden: int, inner: int, vocab: int) -> None:
        def weight(*shape: int) -> Tensor:
            return (torch.randn(*shape, device=setting.device) * shape[-1] ** -0.5).to(dtype)

        dtype = torch.bfloat16
        self.embedding = weight(vocab, hidden)
        self.qkv, self.out = weight(3 * hidden, hidden), weight(hidden, hidden)
        self.up, self.down = weight(2 * inner, hidden), weight(hidden, inner)
        self.head = weight(vocab, hidden)

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits [N, V] behind one token per row."""
        x = self.embedding[tokens.clamp(min=0).long()]
        size = x.shape[1]
        q, k, v = (x @ self.qkv.T).split(size, dim=1)
        x = x + (torch.sigmoid((q * k).sum(-1, keepdim=True)) * v) @ self.out.T
        up, gate = (x @ self.up.T).chunk(2, dim=1)
        x = x + (torch.nn.functional.silu(gate) * up) @ self.down.T
        return x @ self.head.T


def loop(setting: Setting) -> Iterator[Line]:
    """A captured draft loop per step, with and without the automaton; goal 5 % more."""
    vocab, length = setting.size(131_072, 600), setting.size(8, 2)
    model = OneLayerHead(setting, setting.size(4096, 32), setting.size(14_336, 64), vocab)
    automaton = synthetic_automaton(vocab, setting.device)
    for batch in (1, setting.size(32, 2)):
        times: dict[str, Timing] = {}
        for what, grammar, limit in (
            ("without automaton", None, 0),
            ("with automaton, table of masks", automaton, 1 << 28),
            ("with automaton, masks walked", automaton, 0),
        ):
            step = DraftStep(
                grammar, batch, length, vocab=vocab, device=setting.device, table_limit=limit,
                backend=setting.backend,
            )  # fmt: skip
            start = torch.full((batch,), 2, dtype=torch.int32, device=setting.device)
            begin = torch.zeros(batch, dtype=torch.int32, device=setting.device)

            def run(step: DraftStep = step, start: Tensor = start, begin: Tensor = begin) -> None:
                step.begin(start)
                tokens = begin
                for place in range(length):
                    tokens = step(model(tokens), place)

            whole = setting.timer.time([run])
            each = Timing(*(t / length for t in (whole.median, whole.p10, whole.p90)))
            times[what] = each
            plain = times["without automaton"]
            over = 100.0 * (each.median / plain.median - 1.0)
            yield Line("draft_step", f"B={batch} V={vocab}, {what}", each, None,
                       None if grammar is None else 5.0, None if grammar is None else over,
                       "% over the plain step")  # fmt: skip


BENCHMARKS: Sequence[tuple[str, Callable[[Setting], Iterator[Line]]]] = (
    ("masked_softmax_stats", stats),
    ("block_verify", block),
    ("automaton_walk", masks),
    ("draft_step", loop),
    ("gather_head", head),
    ("layered_verify", layered),
)
