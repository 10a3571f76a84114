"""Drafts: tokens proposed ahead of the target, all legal, none trusted.

`draft` is the interface, `forced` and `lookup` draft without a model, `combined` joins them
and `forks` adds the other ways of a fork.
`model` drafts with a smaller model, `early_exit` with the target's own first layers, `eagle` with
trained heads on its states (`eagle_head`, made by `training`, and `medusa_heads`). Importing this
package imports no torch; what needs it is imported when touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from structspec.drafting.combined import CombinedDraft, FirstOf
from structspec.drafting.draft import Draft, DraftBuilder, Drafter, DraftSource, Request
from structspec.drafting.forced import ForcedDraft
from structspec.drafting.forks import ForkDraft
from structspec.drafting.lookup import LookupDraft
from structspec.errors import DraftError
from structspec.extras import names_at

if TYPE_CHECKING:
    from structspec.drafting.eagle import EagleDraft, MedusaDraft
    from structspec.drafting.eagle_head import EagleHead
    from structspec.drafting.early_exit import EarlyExit
    from structspec.drafting.medusa_heads import MedusaHeads
    from structspec.drafting.model import ModelDraft

__all__ = [
    "CombinedDraft",
    "Draft",
    "DraftBuilder",
    "DraftSource",
    "Drafter",
    "EagleDraft",
    "EagleHead",
    "EarlyExit",
    "FirstOf",
    "ForcedDraft",
    "ForkDraft",
    "LookupDraft",
    "MedusaDraft",
    "MedusaHeads",
    "ModelDraft",
    "Request",
    "draft_source",
]

_NAMED: dict[str, Callable[[], DraftSource]] = {
    "auto": CombinedDraft,
    "forced": ForcedDraft,
    "forks": ForkDraft,
    "lookup": LookupDraft,
}
_HOMES = {
    "EagleDraft": "eagle",
    "EagleHead": "eagle_head",
    "EarlyExit": "early_exit",
    "MedusaDraft": "eagle",
    "MedusaHeads": "medusa_heads",
    "ModelDraft": "model",
}

__getattr__ = names_at(__name__, _HOMES)


def draft_source(draft: Any) -> DraftSource | None:
    """A draft source from what a caller gave.

    A name: "auto", "forced", "lookup", "forks", "none", "early-exit:24" (the target's first 24
    layers), "model:small" (a model that `structspec.load` finds), "eagle" (the head that comes with
    the package, for the default model), "eagle:DIR" and "medusa:DIR" (heads in a folder, see
    `head_files`). A `Model`, or a transformers model that was loaded or wrapped
    by one: it drafts. A draft source: itself. None: no draft.

    Raises `DraftError` that lists the choices.
    """
    if draft is None or draft == "none":
        return None
    if isinstance(draft, str):
        return _named(draft)
    if isinstance(draft, DraftSource):
        return draft
    if hasattr(draft, "forward") or hasattr(draft, "logit_width"):
        from structspec.drafting.model import ModelDraft
        from structspec.models import Model

        model = draft if isinstance(draft, Model) else Model.known(draft)
        if model is None:
            raise DraftError(
                f"the tokenizer of this {type(draft).__name__} is not known; pass "
                "structspec.Model.wrap(model, tokenizer)"
            )
        return ModelDraft(model)
    raise DraftError(
        f"{type(draft).__name__} is not a draft source; pass a name, a Model or an object with "
        "begin(request)"
    )


def _named(name: str) -> DraftSource:
    kind, colon, argument = name.partition(":")
    if kind == "early-exit" and argument.isdecimal():
        from structspec.drafting.early_exit import EarlyExit

        return EarlyExit(int(argument))
    if name in ("eagle", "eagle:default"):
        from structspec.drafting.eagle import HeadFiles
        from structspec.drafting.head_files import SHIPPED

        return HeadFiles("eagle", str(SHIPPED))
    if kind in ("eagle", "medusa") and argument:
        from structspec.drafting.eagle import HeadFiles

        return HeadFiles(kind, argument)
    if kind == "model" and argument:
        from structspec.drafting.model import ModelDraft
        from structspec.models import load

        return ModelDraft(load(argument))
    if colon or name not in _NAMED:
        more = ("eagle", "early-exit:LAYERS", "model:NAME", "eagle:DIR", "medusa:DIR")
        choices = ", ".join([*sorted([*_NAMED, "none"]), *more])
        raise DraftError(f"there is no draft called {name!r}; choose one of: {choices}")
    return _NAMED[name]()
