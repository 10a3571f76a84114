"""`structspec serve` as a user starts it: a process, an address, an answer, an end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request

import pytest
import typer
from typer.testing import CliRunner

from structspec.cli.app import app
from structspec.server import running


@pytest.fixture(scope="module")
def folder(byte_tokenizer, make_llama, tmp_path_factory):
    """A model on disk."""
    path = tmp_path_factory.mktemp("model")
    make_llama(len(byte_tokenizer), window=512, seed=1).save_pretrained(path)
    byte_tokenizer.save_pretrained(path)
    return path


def test_a_server_answers_and_ends_on_ctrl_c(folder):
    command = [sys.executable, "-m", "structspec.cli.main", "serve", "--model", str(folder)]
    command += ["--port", "0", "--name", "mine", "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = None
        timer = threading.Timer(120, process.kill)
        timer.start()
        for line in process.stderr:
            found = re.search(r"running on (http://\S+)", line)
            if found:
                address = found[1]
                break
        timer.cancel()
        assert address is not None
        body = {
            "model": "mine",
            "messages": [{"role": "user", "content": "hi"}],
            "structured_outputs": {"choice": ["yes", "no"]},
        }
        request = urllib.request.Request(
            f"{address}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = json.load(answer)["choices"][0]["message"]["content"]
        assert text in ("yes", "no")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130, -signal.SIGINT)
    finally:
        process.kill()


def test_ctrl_c_ends_a_busy_server_when_its_grace_is_over(folder):
    """A stream that is under way says why it ends."""
    command = [sys.executable, "-m", "structspec.cli.main", "serve", "--model", str(folder)]
    command += ["--port", "0", "--threads", "1", "--grace", "0.5", "--name", "mine"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(120, process.kill)
    timer.start()
    try:
        assert process.stderr is not None
        address = next(
            found[1]
            for line in process.stderr
            if (found := re.search(r"running on (http://\S+)", line))
        )
        reading = threading.Thread(target=process.stderr.read)
        reading.start()
        body = {
            "messages": [{"role": "user", "content": "hi"}],
            "structured_outputs": {"regex": "[a-z]{400}"},
            "temperature": 1.5,
            "stream": True,
        }
        request = urllib.request.Request(
            f"{address}/v1/chat/completions", json.dumps(body).encode()
        )
        answers = [urllib.request.urlopen(request, timeout=60) for _ in range(12)]
        process.send_signal(signal.SIGINT)
        told = [answer.read().decode() for answer in answers]
        process.wait(30)
        assert all("[DONE]" in text or "shutting down" in text for text in told)
        assert any("shutting down" in text for text in told)
        reading.join(10)
    finally:
        timer.cancel()
        process.kill()


def test_options_reach_the_server(folder, monkeypatch):
    seen = {}
    monkeypatch.setattr(running, "run", lambda app, **settings: seen.update(app=app, **settings))
    command = ["serve", "--model", str(folder), "--port", "81", "--draft", "none"]
    command += ["--batch-size", "3", "--api-key", "k", "--allow-origin", "*"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert (seen["host"], seen["port"]) == ("127.0.0.1", 81)
    paths = {route.path for route in seen["app"].routes}
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models", "/health"} <= paths


def test_a_wrong_draft_ends_the_command_before_it_listens(folder):
    result = CliRunner().invoke(app, ["serve", "--model", str(folder), "--verifier", "blok"])
    assert result.exit_code != 0
    assert "blok" in str(result.exception)
    assert not isinstance(result.exception, typer.Exit)
