"""What others have put on a network's modules that changes what it computes: hooks, new forwards.

transformers leaves hooks of its own on a model whose hidden states or attentions somebody has asked
for once; they only note what passes, and stay. Whoever asks whether a network is as it was made, or
may be run without its modules, must not count those.

Cost: a look at three dictionaries per module.
"""

from __future__ import annotations

from typing import Any

__all__ = ["alterations"]

_NOTING = "transformers.utils.output_capturing"


def alterations(module: Any) -> tuple[object, ...]:
    """What tells the alterations of one module from others; empty if there are none.

    Hooks by their numbers, which torch gives once, those before the forward first; a forward that
    the module has instead of its class's.
    """
    before, behind = module._forward_pre_hooks, module._forward_hooks
    own = module.__dict__.get("forward")
    if not before and not behind and own is None:
        return ()
    changing = [k for k, hook in behind.items() if getattr(hook, "__module__", None) != _NOTING]
    return (*before, None, *changing, own) if before or changing or own is not None else ()
