"""The public names are one sorted list, and the core imports without torch."""

import importlib
import subprocess
import sys
import tomllib

import pytest

import structspec


def test_all_is_sorted_and_every_name_resolves():
    assert structspec.__all__ == sorted(structspec.__all__)
    for name in structspec.__all__:
        assert getattr(structspec, name) is not None


def test_every_error_is_a_structspec_error_and_public():
    from structspec import errors

    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.StructspecError)
        assert name in structspec.__all__


def test_an_unknown_name_is_an_attribute_error():
    try:
        structspec.no_such_name  # noqa: B018
    except AttributeError as error:
        assert "no_such_name" in str(error)
    else:
        raise AssertionError("no error")


@pytest.mark.parametrize("room", ["decoding", "drafting", "verification"])
def test_rooms_import_their_names_when_they_are_touched(room):
    package = importlib.import_module(f"structspec.{room}")
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match=f"module 'structspec.{room}' has no attribute 'nil'"):
        package.nil  # noqa: B018


CORE = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None   # importing it now raises ImportError
import structspec
grammar = structspec.compile({{"type": "integer"}})
assert grammar.accepts("12")
vocab = structspec.Vocabulary([bytes([b]) for b in range(256)] + [None], eos_ids=[256])
constraint = grammar.bind(vocab)
assert constraint.allowed(constraint.start).size
try:
    structspec.generate("default", "x", int)
except structspec.MissingExtra as error:
    assert "pip install 'structspec[models]'" in str(error), error
else:
    raise AssertionError("generate worked without torch")
"""


def test_the_core_works_without_torch_and_the_missing_extra_names_its_command():
    blocked = ["torch", "transformers", "typer", "rich", "triton", "tokenizers"]
    code = CORE.format(blocked=blocked)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


BARE = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
from structspec import *
assert Sampling(temperature=0.5).temperature == 0.5 and ToolSet([]) is not None
import structspec.decoding, structspec.drafting, structspec.verification
for room, name in (("decoding", "Loop"), ("drafting", "EagleDraft"), ("verification", "verifier"),
                   ("decoding", "GrammarLogitsProcessor")):
    try:
        getattr(getattr(structspec, room), name)
    except structspec.MissingExtra as error:
        assert "pip install 'structspec[models]'" in str(error), error
    else:
        raise AssertionError(name)
"""


def test_all_names_are_there_without_torch_and_rooms_name_their_extra():
    code = BARE.format(blocked=["torch", "transformers", "typer", "rich", "triton", "tokenizers"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_packages_that_no_extra_brings_are_not_taken_for_one(monkeypatch):
    from structspec import extras

    def missing(name):
        raise ModuleNotFoundError("No module named 'other'", name="other")

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(ModuleNotFoundError, match="other") as caught:
        extras.import_room("structspec.decoding")
    assert not isinstance(caught.value, structspec.MissingExtra)


def test_the_extras_are_those_of_the_package(request):
    project = tomllib.loads((request.config.rootpath / "pyproject.toml").read_text("utf-8"))
    known = project["project"]["optional-dependencies"]
    from structspec.extras import EXTRAS

    for package, extra in EXTRAS.items():
        assert any(p.replace("-", "_").startswith(package) for p in known[extra]), package


def test_every_package_of_the_tree_is_installed(request):
    """The list of packages is written by hand; what it lacks is lacking in the wheel."""
    root = request.config.rootpath
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {
        ".".join(("structspec", *path.parent.relative_to(root).parts)).removeprefix("structspec.")
        for folder in ("structspec", "kernels", "grammars")
        for path in (root / folder).rglob("*.py")
    }
    found = {n if n.startswith("structspec") else f"structspec.{n}" for n in found}
    assert found == listed


def test_the_command_line_names_its_extra_when_typer_is_missing():
    code = (
        "import sys; sys.modules['typer'] = None\n"
        "from structspec.cli.main import main\n"
        "main(['--version'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "structspec[cli]" in done.stderr and "Traceback" not in done.stderr


def test_transformers_imports_from_the_repository_root(request):
    root = request.config.rootpath
    done = subprocess.run(
        [sys.executable, "-c", "import transformers, structspec.kernels, structspec.grammars"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
