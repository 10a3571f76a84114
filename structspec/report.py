"""What a compile did with every keyword of a schema.

`Report` owns one `Entry` per keyword occurrence. The four statuses:

- ``exact``: the grammar accepts precisely what the keyword accepts;
- ``annotation``: the keyword asserts nothing, so it has no effect on the grammar;
- ``narrowed``: every value stays writable, but not in every spelling or order, and the note says
  which is left out;
- ``widened``: the keyword was dropped because the caller asked for ``on_unsupported="widen"``.

Cost: one small object per keyword, made when the report is first read. A compile never ends with a
keyword missing from the report.

Example::

    >>> from structspec.report import Entry, Report
    >>> report = Report((Entry("", "type", "exact"), Entry("/items", "title", "annotation")))
    >>> [entry.keyword for entry in report.with_status("annotation")]
    ['title']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["Entry", "Report", "Status"]

Status: TypeAlias = Literal["exact", "annotation", "narrowed", "widened"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One keyword occurrence: the pointer of the schema object it stands in, and its fate."""

    pointer: str
    keyword: str
    status: Status
    note: str = ""


class Report:
    """All entries of one compile, in document order.

    `entries`: the entries, or a function that makes them on first use. Immutable otherwise.
    """

    __slots__ = ("_entries", "_make")

    def __init__(self, entries: Iterable[Entry] | Callable[[], Iterable[Entry]] = ()) -> None:
        self._make = entries if callable(entries) else None
        self._entries = () if callable(entries) else tuple(entries)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries."""
        make = self._make
        if make is not None:
            # Two threads may both make them, and find the same.
            self._entries = tuple(make())
            self._make = None
        return self._entries

    def __reduce__(self) -> tuple[Any, ...]:
        return Report, (self.entries,)

    def __eq__(self, other: object) -> bool:
        return self.entries == other.entries if isinstance(other, Report) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"Report({self.entries!r})"

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def with_status(self, *statuses: Status) -> tuple[Entry, ...]:
        """The entries that have one of `statuses`, in document order."""
        return tuple(entry for entry in self.entries if entry.status in statuses)

    def at(self, pointer: str) -> tuple[Entry, ...]:
        """The entries of the schema object at `pointer`."""
        return tuple(entry for entry in self.entries if entry.pointer == pointer)

    def for_keyword(self, keyword: str) -> tuple[Entry, ...]:
        """All occurrences of `keyword`."""
        return tuple(entry for entry in self.entries if entry.keyword == keyword)

    @property
    def exact(self) -> bool:
        """Whether nothing was widened: the grammar accepts no text that the schema forbids."""
        return not self.with_status("widened")

    @property
    def widened(self) -> tuple[Entry, ...]:
        """The keywords that were dropped; values have to be validated against them afterwards."""
        return self.with_status("widened")

    def counts(self) -> dict[Status, int]:
        """How many entries each status has (statuses without entries are left out)."""
        result: dict[Status, int] = {}
        for entry in self.entries:
            result[entry.status] = result.get(entry.status, 0) + 1
        return result

    def __str__(self) -> str:
        header = ("status", "keyword", "pointer", "note")
        rows = [(e.status, e.keyword, e.pointer or "(root)", e.note) for e in self.entries]
        return _table([header, *rows])


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    listed = list(rows)
    widths = [max(len(row[column]) for row in listed) for column in range(len(listed[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in listed
    )
