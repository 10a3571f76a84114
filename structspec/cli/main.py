"""The `structspec` command: collects the subcommands and turns typed errors into exit code 2.

Exit codes: 0 success, 2 bad input (one message on standard error, no traceback), 130 interrupted.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import sys

from structspec.errors import MissingExtra, StructspecError

#: Exit code of every typed error and of wrong arguments.
BAD_INPUT = 2


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """What a stream's encoding lacks, as JSON spells it in ASCII."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error("structspec", _escaped)


def _write_anything() -> None:
    """Have the output's encoding cost no text: in Latin-1, 😀 becomes \\ud83d\\ude00."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="structspec")


def _give_up_output() -> None:
    """Let what cannot be written go: Python would try again at its end, and exit with 120."""
    with contextlib.suppress(AttributeError, ValueError):  # no output, or none of the system's
        try:
            sys.stdout.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    _write_anything()
    try:
        try:
            import rich  # noqa: F401
            import typer
        except ImportError as error:
            raise MissingExtra(error.name or "typer", "cli") from error
        from structspec.cli.app import app

        app(args=arguments, prog_name="structspec", standalone_mode=False)
    except StructspecError as error:
        print(f"structspec: error: {error}", file=sys.stderr)
        raise SystemExit(BAD_INPUT) from None
    except KeyboardInterrupt:
        print("structspec: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except (ValueError, OSError) as error:  # arguments out of range; nowhere to write
        _give_up_output()
        print(f"structspec: error: {error}", file=sys.stderr)
        raise SystemExit(BAD_INPUT) from None
    except Exception as error:
        code = getattr(error, "exit_code", None)  # click's and typer's own errors
        if code is None:
            raise
        show = getattr(error, "show", None)
        if show is not None:
            show()
        raise SystemExit(code) from None
    del typer


if __name__ == "__main__":
    main()
