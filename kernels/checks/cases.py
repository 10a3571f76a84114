"""The corpus: named inputs for the kernels, made from seeds.

`row_cases` are rows of logits alone; `verify_cases` are batches of drafts (K >= 1). Both reach the
kernels' branches: vocabularies that no block divides, several splits, masked, forced, all-allowed
and empty rows, -inf and huge logits, ragged drafts, one-hot places, shared prefixes, end tokens.

    >>> case = next(verify_cases(drafts=(1,), lengths=(4,)))
    >>> case.tokens.shape[1:], case.target.vocab
    (torch.Size([1, 4]), 37)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from structspec.kernels.logit_rows import LogitRows

__all__ = ["VerifyCase", "moved", "pack", "row_cases", "verify_case", "verify_cases"]


@dataclass(frozen=True)
class VerifyCase:
    """B requests of K drafts: tokens [B, K, L], lengths [B, K], rows padded or mapped."""

    name: str
    target: LogitRows
    draft: LogitRows | None
    tokens: Tensor
    lengths: Tensor
    target_rows: Tensor | None = None
    draft_rows: Tensor | None = None
    eos_ids: Tensor | None = None


def pack(legal: Tensor) -> Tensor:
    """bool [R, V] as packed int32 [R, ceil(V / 32)]."""
    rows, vocab = legal.shape
    width = -(-vocab // 32)
    bits = torch.zeros(rows, width * 32, dtype=torch.int64)
    bits[:, :vocab] = legal
    words = (bits.view(rows, width, 32) << torch.arange(32)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def moved(rows: LogitRows, device: torch.device) -> LogitRows:
    """The same rows on another device."""
    return replace(
        rows,
        **{
            name: value.to(device)
            for name in ("logits", "masks", "mask_rows", "temperature", "edge", "edge_id")
            if isinstance(value := getattr(rows, name), Tensor)
        },
    )


def row_cases(vocab: int, dtype: torch.dtype, seed: int = 0) -> LogitRows:
    """Nine rows: random, all allowed, single token, all masked, -inf logits, only -inf, huge, NaN,
    and one that shares a mask by `mask_rows`."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(9, vocab, generator=generator) * 3
    legal = torch.rand(9, vocab, generator=generator) < 0.3
    legal[:, 0] = True  # no row is empty by chance
    legal[1] = True
    legal[2] = False
    legal[2, vocab // 2] = True
    legal[3] = False
    x[4, ::3] = -torch.inf
    x[4, 0] = 1.0
    x[5] = -torch.inf
    large = 6e4 if dtype == torch.float16 else 3e38
    x[6, 0], x[6, 1] = large, -large
    x[7, 0] = torch.nan
    x = x.to(dtype)
    x[8, vocab // 2] = x[8, 0]  # a tie
    index = torch.arange(9, dtype=torch.int32)
    index[8] = 1
    temperature = torch.tensor([1.0, 0.7, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 0.3])
    return LogitRows(x, pack(legal), index, temperature)


def verify_case(
    name: str,
    vocab: int,
    drafts: int,
    length: int,
    *,
    batch: int = 3,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    spread: float = 1.0,
    masked: bool = True,
    one_hot: bool = False,
    eos: bool = False,
    mapped: bool = False,
    huge: bool = False,
) -> VerifyCase:
    """A batch whose drafts are drawn from their own rows; the laws of equal prefixes are equal.

    spread: how far the draft's logits are from the target's (0: the same). one_hot: every second
    place of all drafts is deterministic. mapped: rows are shared by equal prefixes and shuffled.
    huge: some rows have one huge logit, and a third of the legal ones are -inf.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    # One law per prefix: nodes are met breadth first and get rows of their own.
    nodes: dict[tuple[int, ...], int] = {}
    p_rows: list[Tensor] = []
    q_rows: list[Tensor] = []
    legal_rows: list[Tensor] = []
    tokens = torch.zeros(batch, drafts, length, dtype=torch.int64)
    lengths = torch.zeros(batch, drafts, dtype=torch.int64)
    p_at = torch.zeros(batch, drafts, length + 1, dtype=torch.int64)
    q_at = torch.full((batch, drafts, length), -1, dtype=torch.int64)
    end = vocab - 1

    def node(prefix: tuple[int, ...]) -> int:
        if prefix not in nodes:
            nodes[prefix] = len(nodes)
            kind = len(nodes) % 5
            legal = torch.rand(vocab, generator=generator) < 0.3
            if not masked or kind == 1:
                legal[:] = True
            if masked and kind == 3:
                legal[:] = False
            legal[int(torch.randint(vocab, (1,), generator=generator))] = True
            base = noise(vocab) * 2
            if huge:
                allowed = legal.nonzero()[:, 0]
                if kind % 2 == 0:
                    base[allowed[0]] = 6e4 if dtype == torch.float16 else 1e30
                if len(allowed) > 2:
                    base[allowed[1::3]] = -torch.inf
            legal_rows.append(legal)
            p_rows.append(base.to(dtype))
            q_rows.append((base + spread * noise(vocab)).to(dtype))
        return nodes[prefix]

    for b in range(batch):
        # A length may depend on the request and the draft's number, not on its tokens.
        for k in range(drafts):
            n = max(0, length - (b + k) % (length + 1)) if b else length
            lengths[b, k] = n
            prefix: tuple[int, ...] = (-b,)
            for i in range(n + 1):
                at = node(prefix)
                p_at[b, k, i] = at
                if i == n:
                    break
                law = q_rows[at].double().masked_fill(~legal_rows[at], -torch.inf).softmax(-1)
                if one_hot and i % 2:
                    token = int(legal_rows[at].nonzero()[0])
                else:
                    token = int(torch.multinomial(law, 1, generator=generator))
                    q_at[b, k, i] = at
                    if eos and i == 1 and k % 2 == 0 and law[end] > 0:
                        token = end
                tokens[b, k, i] = token
                prefix = (*prefix, token)
    logits_p, logits_q = torch.stack(p_rows), torch.stack(q_rows)
    masks = pack(torch.stack(legal_rows))
    p_map: Tensor | None
    q_map: Tensor | None
    if mapped:
        shuffle = torch.randperm(len(nodes), generator=generator)
        place = shuffle.argsort()
        target = LogitRows(logits_p[shuffle], masks, shuffle.to(torch.int32), 0.8)
        draft = LogitRows(logits_q[shuffle], masks, shuffle.to(torch.int32), 0.8)
        p_map = place[p_at].to(torch.int32)
        q_map = torch.where(q_at < 0, -1, place[q_at.clamp(min=0)]).to(torch.int32)
    else:
        flat, q_flat = p_at.flatten(), q_at.clamp(min=0).flatten()
        target = LogitRows(logits_p[flat], masks[flat], temperature=0.8)
        draft = LogitRows(logits_q[q_flat], masks[q_flat], temperature=0.8)
        p_map, q_map = None, None
        if one_hot:
            rows = torch.arange(batch * drafts * length).view(batch, drafts, length)
            q_map = torch.where(q_at < 0, -1, rows).to(torch.int32)
    return VerifyCase(
        name,
        target,
        draft,
        tokens.to(torch.int32),
        lengths.to(torch.int32),
        p_map,
        q_map,
        torch.tensor([end], dtype=torch.int32) if eos else None,
    )


def verify_cases(
    drafts: tuple[int, ...] = (1, 2, 4), lengths: tuple[int, ...] = (1, 4, 8)
) -> Iterator[VerifyCase]:
    """The small corpus: every branch, a second at most each when interpreted."""
    for k in drafts:
        for n in lengths:
            tag = f"K={k} L={n}"
            yield verify_case(f"{tag} V=37", 37, k, n, seed=k + n)
            if n != 4:
                continue
            yield verify_case(f"{tag} V=300 unmasked", 300, k, n, masked=False, seed=1)
            yield verify_case(f"{tag} V=300 one-hot places", 300, k, n, one_hot=True, seed=2)
            yield verify_case(f"{tag} V=37 p = q", 37, k, n, spread=0.0, seed=3)
            yield verify_case(f"{tag} V=37 end tokens", 37, k, n, eos=True, masked=False, seed=4)
            yield verify_case(f"{tag} V=200 mapped bfloat16", 200, k, n, mapped=True, seed=5,
                              dtype=torch.bfloat16)  # fmt: skip
            yield verify_case(f"{tag} V=64 huge float16", 64, k, n, huge=True, seed=6,
                              dtype=torch.float16)  # fmt: skip
            yield verify_case(f"{tag} V=5 far apart", 5, k, n, spread=6.0, seed=7, batch=5)
