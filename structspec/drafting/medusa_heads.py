"""`MedusaHeads`: one small network for each of the next tokens, on the target's last state.

Head k is a few residual blocks x + silu(W x) and a projection, for the token k + 2 ahead: the
target itself says the first one. The heads do not read each other's tokens.

Invariants: a file whose tensors do not fit the layout or the target's sizes is refused by name.

Cost: a head on SmolLM2-135M has 28 million parameters, nearly all in its projection.

Siblings: `eagle.MedusaDraft` drafts with them; `eagle_head` reads its own tokens.

Paper: Medusa (arXiv 2401.10774).

Example::

    heads = MedusaHeads.load("medusa", model.model)
    heads.logits(state, 0)  # of the token behind the one that the target says
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from structspec.drafting.head_files import fill, read_head
from structspec.errors import DraftError

__all__ = ["MedusaHeads"]


class MedusaHeads(nn.Module):
    """Medusa's heads: residual blocks and a projection each, for the tokens 2, 3, … ahead."""

    def __init__(self, size: int, vocab: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            nn.ModuleList(
                [*(_Block(size) for _ in range(blocks)), nn.Linear(size, vocab, bias=False)]
            )
            for _ in range(heads)
        )

    def logits(self, state: Tensor, head: int) -> Tensor:
        """Logits [1, V] of one head behind the target's last state [1, size]."""
        layers = list(self.heads[head].children())
        for block in layers[:-1]:
            state = block(state)
        out: Tensor = layers[-1](state)
        return out if out.dtype == torch.float64 else out.float()

    @classmethod
    def load(cls, folder: str | Path, network: Any) -> MedusaHeads:
        """Read published Medusa weights (`k.block.linear.weight`, `k.blocks.weight`)."""
        tensors, _ = read_head(folder)
        tensors = {name.removeprefix("medusa_head."): t for name, t in tensors.items()}
        numbers = {tuple(map(int, name.split(".")[:2])) for name in tensors if name[:1].isdigit()}
        if not numbers:
            raise DraftError(f"{folder} holds no Medusa heads (tensors such as 0.0.linear.weight)")
        output = network.get_output_embeddings().weight
        heads, blocks = 1 + max(k for k, _ in numbers), max(b for _, b in numbers)
        made = cls(output.shape[1], output.shape[0], heads, blocks)
        fill(made, {f"heads.{name}": t for name, t in tensors.items()}, f"{folder}")
        return made.to(network.get_input_embeddings().weight.device, network.dtype)


class _Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.silu(self.linear(x))
