"""Reading a plain folder of schemas, with or without instances beside them.

Convention, at any depth::

    person.schema.json           a schema, or  person/schema.json
    person.valid.json            instances:    person/valid.json
    person.valid-short.json                    person/valid/short.json
    person.invalid.negative.txt                person/invalid/negative.txt

A name that continues with ``valid`` or ``invalid`` (or lies in such a folder) is an instance;
``.json`` files are written compactly as JSON, ``.txt`` files are taken as they are, so that broken
JSON can be tried too. If nothing in the folder is named ``schema.json`` or ``*.schema.json``, every
``.json`` file is a schema without instances: then the run says which ones compile.

Example: ``load_folder(Path("my-schemas")).groups[0].topic``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from structspec.errors import SchemaError
from structspec.suites.case import Group, Suite, Test
from structspec.suites.exact import read, write

__all__ = ["load_folder"]

_VERDICT = re.compile(r"(in)?valid(?![A-Za-z])")


def load_folder(path: Path) -> Suite:
    """Load a folder by the convention above, or one schema file with what lies beside it.

    A file that cannot be read becomes a group with a `fault`, and the others are run. Raises
    SchemaError if there is no schema at all.
    """
    if path.is_file():
        schemas, root = [path], path.parent
    else:
        root = path
        files = sorted(path.rglob("*.json"))
        schemas = [f for f in files if f.name == "schema.json" or f.name.endswith(".schema.json")]
        schemas = schemas or files
    if not schemas:
        raise SchemaError(f"no .json file in '{path}'")
    return Suite(f"folder-{path.stem}", tuple(g for f in schemas for g in _groups(f, root)))


def _groups(schema: Path, root: Path) -> Iterator[Group]:
    """The group of a schema, then one for each instance that cannot be read."""
    name = schema.relative_to(root).as_posix()
    tests = []
    unread = []
    for file, valid in _instances(schema):
        own = file.relative_to(root).as_posix()
        try:
            tests.append(Test(own, _instance(file), valid))
        except SchemaError as error:
            unread.append(_unreadable(own, error))
    try:
        yield Group(name, name, _json(schema), tuple(tests))
    except SchemaError as error:
        yield _unreadable(name, error, tests)
    yield from unread


def _unreadable(name: str, error: SchemaError, tests: Sequence[Test] = ()) -> Group:
    """A group of what cannot be judged; by itself it counts as one test, so that tables show it."""
    alone = (Test(name, "", True, "the file itself"),)
    return Group(name, name, "", tuple(tests) or alone, fault=str(error))


def _instances(schema: Path) -> Iterator[tuple[Path, bool]]:
    """The instance files of a schema, with the verdict that their names promise."""
    if schema.name == "schema.json":
        prefix = ""
        inside = [schema.parent / "valid", schema.parent / "invalid"]
    else:
        prefix = schema.name.removesuffix(".json").removesuffix(".schema") + "."
        inside = []
    beside = [f for f in schema.parent.iterdir() if f.is_file() and f.name.startswith(prefix)]
    for file in sorted(beside):
        match = _VERDICT.match(file.name.removeprefix(prefix))
        if match and file.suffix in (".json", ".txt"):
            yield file, match[1] is None
    for folder in inside:
        for file in sorted(folder.glob("*")) if folder.is_dir() else ():
            if file.suffix in (".json", ".txt"):
                yield file, folder.name == "valid"


def _instance(file: Path) -> str:
    return _text(file) if file.suffix == ".txt" else _json(file)


def _json(file: Path) -> str:
    return write(read(_text(file), f"the file '{file}'"))


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"cannot read '{file}': {error}") from error
