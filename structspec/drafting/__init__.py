"""Drafts: tokens proposed ahead of the target, all legal, none trusted.

`draft` is the interface, `forced` and `lookup` draft without a model, `combined` joins them.
Importing this package imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable

from structspec.drafting.combined import CombinedDraft
from structspec.drafting.draft import Draft, DraftBuilder, Drafter, DraftSource, Request
from structspec.drafting.forced import ForcedDraft
from structspec.drafting.lookup import LookupDraft
from structspec.errors import DraftError

__all__ = [
    "CombinedDraft",
    "Draft",
    "DraftBuilder",
    "DraftSource",
    "Drafter",
    "ForcedDraft",
    "LookupDraft",
    "Request",
    "draft_source",
]

_NAMED: dict[str, Callable[[], DraftSource]] = {
    "auto": CombinedDraft,
    "forced": ForcedDraft,
    "lookup": LookupDraft,
}


def draft_source(draft: DraftSource | str | None) -> DraftSource | None:
    """A draft source from its name ("auto", "forced", "lookup", "none"), or as it is.

    Raises `DraftError` that lists the choices.
    """
    if draft is None or draft == "none":
        return None
    if isinstance(draft, str):
        if draft not in _NAMED:
            choices = ", ".join(sorted([*_NAMED, "none"]))
            raise DraftError(f"there is no draft called {draft!r}; choose one of: {choices}")
        return _NAMED[draft]()
    if not isinstance(draft, DraftSource):
        raise DraftError(
            f"{type(draft).__name__} is not a draft source; pass a name or an object with "
            "begin(request)"
        )
    return draft
