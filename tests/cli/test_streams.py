"""Whatever encoding the terminal has: no text is lost, no pipe is misread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCHEMA = json.dumps({"enum": ["été", "😀"]}, ensure_ascii=False)


def structspec(
    *arguments: str,
    encoding: str = "utf-8",
    given: str = "",
    unbuffered: str = "",
    **options: object,
) -> subprocess.CompletedProcess[bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONIOENCODING": encoding,
        "PYTHONUNBUFFERED": unbuffered,
    }
    command = [sys.executable, "-m", "structspec.cli.main", *arguments]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(
        command,
        env=environment,
        input=given.encode(),
        check=False,
        **output,  # type: ignore
    )


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_texts_in_any_encoding(encoding: str) -> None:
    done = structspec("sample", "-", "-n", "12", "--seed", "1", encoding=encoding, given=SCHEMA)
    assert done.returncode == 0, done.stderr
    # An ASCII terminal is taken for one whose settings are missing, and gets UTF-8.
    told = done.stdout.decode("utf-8" if encoding == "ascii" else encoding)
    found = {json.loads(line) for line in told.splitlines()}
    assert found == {"été", "😀"}  # what the encoding lacks is spelled as JSON spells it


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_cannot_be_written_is_one_message(unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = structspec(
            "sample", "-", "-n", "1", given=SCHEMA, stdout=full, unbuffered=unbuffered
        )
    assert done.returncode == 2
    *_, message = done.stderr.splitlines()  # before it perhaps that kernels are compiled
    assert message.startswith(b"structspec: error:") and b"No space left" in message
    assert done.stderr.count(b"No space left") == 1 and b"Traceback" not in done.stderr
