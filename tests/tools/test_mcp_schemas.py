"""The 94 tools of nine MCP servers: compiled exactly, or refused by name."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import structspec
from structspec import ToolSet
from structspec.tools import find_format, read_reply
from structspec.tools.grammar import reply_grammar


@pytest.fixture(scope="module")
def servers(data_directory):
    path = data_directory / "mcp_tools.json"
    if not path.is_file():
        pytest.skip(f"third-party data is missing: no file {path}")
    return json.loads(path.read_text(encoding="utf-8"))


def outcome(tool, **options):
    try:
        grammar = reply_grammar(
            find_format("hermes"), ToolSet([tool]), choice="required", **options
        )
    except structspec.UnsupportedFeature as error:
        return f"refused: {error.keyword}"
    assert grammar.report.exact
    assert not grammar.is_empty
    return "exact"


def test_every_tool_compiles_exactly_or_is_refused_by_name(servers, capsys):
    counts = Counter()
    for name, listed in servers.items():
        for tool in ToolSet.from_mcp({"tools": listed}):
            counts[outcome(tool)] += 1
            assert tool.description, name
    with capsys.disabled():
        print(f"\nMCP tools: {dict(counts)}")
    assert sum(counts.values()) == 94
    assert counts["exact"] >= 94  # none is refused today


def test_replies_to_all_tools_of_a_server_are_read(servers, draw):
    import random

    rng = random.Random(0)
    form = find_format("hermes")
    for listed in servers.values():
        tools = ToolSet.from_mcp(listed)
        grammar = reply_grammar(form, tools, choice="required", parallel=False)
        for _ in range(2):
            assert len(read_reply(form, draw(grammar, rng, 40), tools).calls) == 1
