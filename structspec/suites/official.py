"""Reading the official JSON Schema test suite (json-schema-org/JSON-Schema-Test-Suite).

The draft of a file is that of its directory (``draft4`` … ``draft2020-12``) and becomes the
default dialect of its schemas. The documents of ``remotes/`` are resources under
``http://localhost:1234/``; nothing is fetched. The suite separates required tests, ``optional``
ones and ``optional/format``; so does `load_official`.

In required and optional tests `format` is an annotation, as the specification's default says; in
the format tests it is asserted.

Example: ``load_official(Path("JSON-Schema-Test-Suite"), part="required").n_tests``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from structspec.errors import SchemaError
from structspec.suites.case import Group, Suite, Test
from structspec.suites.exact import read, write

__all__ = ["DIALECTS", "PARTS", "load_official"]

DIALECTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
#: Which tests to load; "all" is the three together.
PARTS = ("required", "optional", "format", "all")

_HOST = "http://localhost:1234/"


def load_official(path: Path, part: str = "required") -> Suite:
    """Load the suite's root, its ``tests``, one draft's directory, or a single file.

    `part` (see `PARTS`) chooses within directories; a file is loaded as it is. Raises SchemaError
    if there is nothing to load or a file does not have the suite's form.
    """
    if part not in PARTS:
        raise SchemaError(f"part={part!r} is not one of {', '.join(PARTS)}")
    path = path.resolve()
    drafts = [path] if path.is_file() or _draft(path) else _drafts_in(path)
    files = [file for place in drafts for file in _files(place, part)]
    if not files:
        raise SchemaError(
            f"no tests of the official suite in '{path}': expected tests/draft*/*.json there, "
            f"or one of the directories {', '.join(DIALECTS)}"
        )
    several = len(drafts) > 1
    groups = tuple(group for file in files for group in _groups(file, several))
    named = _draft(drafts[0]) if not several else "all-drafts"
    kind = _inner(files[0]) if path.is_file() else part
    return Suite(
        f"official-{named}-{kind}".replace("/", "-"),
        groups,
        {"key_order": "any"},
        _remotes(path),
    )


def _draft(path: Path) -> str | None:
    """The draft's directory name above (or at) a path."""
    return next((name for name in reversed(path.parts) if name in DIALECTS), None)


def _drafts_in(path: Path) -> list[Path]:
    for base in (path / "tests", path):
        found = [base / name for name in DIALECTS if (base / name).is_dir()]
        if found:
            return found
    return []


def _files(place: Path, part: str) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    folders = {
        "required": (place,),
        "optional": (place / "optional",),
        "format": (place / "optional" / "format",),
        "all": (place, place / "optional", place / "optional" / "format"),
    }[part]
    # A path inside the draft (draft7/optional, say) is meant as it stands.
    for folder in folders if place.name in DIALECTS else (place,):
        yield from sorted(folder.glob("*.json"))


def _inner(file: Path) -> str:
    """The file's place below the draft's directory, without suffix: ``optional/format/date``."""
    parts = file.with_suffix("").parts
    last = max((i for i, name in enumerate(parts) if name in DIALECTS), default=len(parts) - 2)
    return "/".join(parts[last + 1 :])


def _groups(file: Path, several: bool) -> Iterator[Group]:
    draft = _draft(file)
    inner = _inner(file)
    name = f"{draft or 'undated'}/{inner}"
    options: dict[str, Any] = {"assert_formats": inner.startswith("optional/format/")}
    if draft is not None:
        options["default_dialect"] = DIALECTS[draft]
    content = read(file.read_text("utf-8"), f"the file '{file}'")
    if not isinstance(content, list):
        raise SchemaError(f"'{file}' is not a file of the official suite: its root is no array")
    for i, group in enumerate(content):
        if not isinstance(group, dict) or not {"schema", "tests"} <= set(group):
            raise SchemaError(
                f"'{file}' is not a file of the official suite: entry {i} has no schema and tests"
            )
        yield Group(
            f"{name}/{i}",
            name if several else inner,
            write(group["schema"]),
            tuple(
                Test(f"{name}/{i}/{j}", write(t["data"]), t["valid"], t.get("description", ""))
                for j, t in enumerate(group["tests"])
            ),
            options,
            group.get("description", ""),
        )


def _remotes(path: Path) -> dict[str, str]:
    """The documents under the nearest ``remotes`` at or above a path."""
    for base in (path, *path.parents):
        folder = base / "remotes"
        if folder.is_dir():
            return {
                _HOST + file.relative_to(folder).as_posix(): file.read_text("utf-8")
                for file in sorted(folder.rglob("*.json"))
            }
    return {}
