"""`FewRowsLinear`: layers of a model on the CPU that cost nearly the same for one row or for eight.

Owns the decision when `few_rows.multiply` serves a layer: float32 weights on the CPU, few rows, no
gradients. In every other case, and while torch compiles or exports, the layer is the
`torch.nn.Linear` that it was. `linear` and `product` are for code that calls layers itself.

Invariants
- parameters, `state_dict`, ties, hooks and devices are those of the plain layer: only the class of
  the module differs, nothing is copied;
- the sums are those of a plain product up to rounding.

Cost: none in memory. `python -m structspec.bench.forwards` measures what it saves.

Sibling: `drafting.output_head` computes only the rows of legal tokens.

Example::

    use_few_rows(model.model)            # `structspec.models.load` does it
"""

from __future__ import annotations

import torch
from torch import Tensor

from structspec.few_rows import most_threads, multiply

__all__ = ["MOST_ROWS", "ROWS_AT_ONCE", "FewRowsLinear", "linear", "product", "use_few_rows"]

#: Above this number of rows torch's blocked product is the faster one.
MOST_ROWS = 24
#: So many rows cost little more than one; the next ones as much as the first again.
ROWS_AT_ONCE = 8


class FewRowsLinear(torch.nn.Linear):
    """A linear layer that multiplies few rows by compiled loops of our own."""

    def forward(self, input: Tensor) -> Tensor:
        """As `torch.nn.Linear`."""
        # PERF: two hundred calls a forward; attributes of modules are slow to look up
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        assert weight is not None
        return linear(input, weight, bias)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As `torch.nn.functional.linear`: input [..., k], weight [n, k], bias [n]."""
    shape = input.shape
    width = shape[-1] if len(shape) else 0
    count = input.numel() // width if width else 0
    threads = most_threads()
    if not 1 <= count <= MOST_ROWS or threads < torch.get_num_threads() or not _fits(input, weight):
        return torch.nn.functional.linear(input, weight, bias)
    rows = input if len(shape) == 2 else input.reshape(count, width)
    out = multiply(rows if rows.is_contiguous() else rows.contiguous(), weight, threads)
    if bias is not None:
        out += bias
    return out if len(shape) == 2 else out.view(*shape[:-1], len(weight))


def product(layer: torch.nn.Module, input: Tensor) -> Tensor:
    """`layer(input)`, by our loops also where the layer is a plain `torch.nn.Linear`.

    So models that were not made quick run quickly where their layers are called by us. Layers of
    other classes and layers with hooks are called as they are.
    """
    if type(layer) is not torch.nn.Linear or layer._forward_hooks or layer._forward_pre_hooks:
        out: Tensor = layer(input)
        return out
    return linear(input, layer.weight, layer.bias)


def _fits(input: Tensor, weight: Tensor) -> bool:
    return (
        input.dtype == weight.dtype == torch.float32
        and input.is_cpu
        and weight.is_cpu
        and input.shape[-1] == weight.shape[1]
        and weight.is_contiguous()
        and not (torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad))
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
    )


def use_few_rows(network: torch.nn.Module) -> int:
    """Let the linear layers of a network be `FewRowsLinear`; returns how many are.

    Only plain `torch.nn.Linear` layers with float32 weights on the CPU: layers of quantisation
    libraries and adapters stay as they are.
    """
    count = 0
    for layer in network.modules():
        if type(layer) is torch.nn.Linear and (
            layer.weight.dtype == torch.float32 and layer.weight.device.type == "cpu"
        ):
            layer.__class__ = FewRowsLinear
        count += type(layer) is FewRowsLinear
    return count
