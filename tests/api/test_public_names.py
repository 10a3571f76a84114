"""The public names are one sorted list, and the core imports without torch."""

import subprocess
import sys

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
