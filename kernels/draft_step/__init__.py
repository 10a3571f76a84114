"""One step of a draft loop on the device: mask, sample, advance, without asking the host.

For every row n with state s, logits l and uniform u::

    q     = law of l under mask(s), temperature and edges            (`logit_rows`)
    token = the id where the running sum of q, in id order, passes u · Σ q
    s     = advance(s, token);  where the mask is empty (finished or dead rows): token -1, s stays

`DraftStep` keeps states, tokens and masks in buffers of its own, so that its launches have the
same addresses in every step and the loop around it can be captured in a CUDA graph. `tokens`,
`lengths` and `mask_rows` are what verification takes afterwards.

Without an automaton (`None`) nothing is masked and states stay: drafts without a grammar.

Randomness: purpose DRAFT of `verification.randomness`, index = the place in the draft, row = which
of a request's drafts; request, step and row numbers are buffers to be filled between steps. With
`given`, `uniforms` [N, L] is such a buffer instead: a captured loop then serves any seed.

Masks may come from elsewhere (`MaskPool`): pass them to a step without an automaton.

Cost in Triton: 2 launches per step with the table of all masks, 4 without; the logits are read
once, and one split of 8192 again.

    >>> import torch
    >>> from structspec.kernels.automaton_walk import DeviceAutomaton
    >>> automaton = DeviceAutomaton.from_table(
    ...     [[1, 1], [1, 1], [1, 3], [1, 1]], [0, 0, 0, 1], [0, 0, 1, 0],
    ...     [int(b == ord("a")) for b in range(256)], [b"a", b"b", b"aa", None], [3])
    >>> step = DraftStep(automaton, rows=2, length=3, backend="torch")
    >>> step.begin(torch.tensor([2, 2], dtype=torch.int32))
    >>> for place in range(3):
    ...     tokens = step(torch.zeros(2, 4), place)
    >>> step.tokens.tolist(), step.lengths.tolist(), step.states.tolist()
    ([[0, 3, -1], [0, 3, -1]], [2, 2], [0, 0])
"""

from __future__ import annotations

import torch
from torch import Tensor

from structspec.errors import KernelError
from structspec.kernels.automaton_walk import DeviceAutomaton
from structspec.kernels.backend import choose
from structspec.kernels.logit_rows import LogitRows
from structspec.kernels.philox import Noise

__all__ = ["DraftStep"]


class DraftStep:
    """State of N draft rows (requests × drafts) of up to L tokens; see the module.

    tokens: int32 [N, L]; lengths: int32 [N]; states: int32 [N] (now); path_states: int32 [N, L],
    the state each token was drawn in, which is its mask row in `table`; status: int32 [N], flags of
    `logit_rows.Status.NOT_FINITE` (an empty mask is the end of a row, not a fault).
    """

    def __init__(
        self,
        automaton: DeviceAutomaton | None,
        rows: int,
        length: int,
        *,
        vocab: int | None = None,
        device: torch.device | str | None = None,
        seed: int = 0,
        temperature: float = 1.0,
        given: bool = False,
        table_limit: int = 1 << 28,
        backend: str | None = None,
    ) -> None:
        if rows < 1 or length < 1:
            raise KernelError(f"a draft loop needs rows and places, got {rows} and {length}")
        if not temperature > 0.0:
            raise KernelError(
                f"temperature={temperature}: must be > 0; for greedy drafts take 1e-6"
            )
        if automaton is None and (vocab is None or device is None):
            raise KernelError("without an automaton pass the vocabulary's size and the device")
        device = torch.device(device or "cpu") if automaton is None else automaton.device
        self.automaton = automaton
        self.vocab = automaton.vocab if automaton is not None else int(vocab or 0)
        self.temperature = temperature
        self.backend = choose(device, backend)

        def numbers(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self.states, self.requests, self.steps = numbers(rows), numbers(rows), numbers(rows)
        self.rows, self.lengths, self.status = numbers(rows), numbers(rows), numbers(rows)
        self.tokens = numbers(rows, length)
        self.path_states = numbers(rows, length)
        self.noise = Noise(seed, self.requests, self.steps)
        self.uniforms: Tensor | None = None
        if given:
            self.uniforms = torch.zeros((rows, length), dtype=torch.float64, device=device)
        self.table: Tensor | None = None
        self.masks: Tensor | None = None
        if automaton is not None:
            self.table = automaton.row_table(limit=table_limit, backend=self.backend)
            self.masks = None if self.table is not None else numbers(rows, automaton.words)
        self._scratch: Tensor | None = None

    def begin(self, states: Tensor) -> None:
        """Start new drafts from states int32 [N]."""
        self.states.copy_(states)
        self.lengths.zero_()
        self.tokens.fill_(-1)
        self.status.zero_()

    def __call__(
        self,
        logits: Tensor,
        place: int,
        masks: Tensor | None = None,
        mask_rows: Tensor | None = None,
    ) -> Tensor:
        """Draw the tokens of one place from logits [N, V]; returns int32 [N], -1 for ended rows.

        `masks` and `mask_rows`, as in `LogitRows`, are for steps without an automaton. Raises
        `KernelError` for shapes and dtypes that do not fit.
        """
        count, length = self.tokens.shape
        if tuple(logits.shape) != (count, self.vocab):
            raise KernelError(f"logits must be {(count, self.vocab)}, got {tuple(logits.shape)}")
        if not 0 <= place < length:
            raise KernelError(f"place={place} is outside the draft of {length} places")
        if self.automaton is not None:
            if masks is not None:
                raise KernelError("a step with an automaton has its own masks; pass none")
            masks, mask_rows = self.table, self.states if self.table is not None else None
            if masks is None:
                masks = self.automaton.masks(self.states, out=self.masks, backend=self.backend)
        rows = LogitRows(logits, masks, mask_rows, self.temperature)
        if self.backend == "triton":
            from structspec.kernels.draft_step.in_triton import triton_step

            self._scratch = triton_step(self, rows, place, self._scratch)
        elif self.backend == "torch":
            from structspec.kernels.draft_step.in_torch import torch_step

            torch_step(self, rows, place)
        else:
            from structspec.kernels.draft_step.reference import reference_step

            reference_step(self, rows, place)
        return self.tokens[:, place]
