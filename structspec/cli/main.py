"""The `structspec` command: collects the subcommands and turns typed errors into exit code 2.

Exit codes: 0 success, 2 bad input (one message on standard error, no traceback), 130 interrupted.
"""

from __future__ import annotations

import codecs
import json
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
