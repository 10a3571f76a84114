"""Adapters for other engines answer, refuse, and say what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from structspec.errors import MissingExtra, StructspecError
from structspec.suites.engines import ENGINES, make_engine

PEERS = [name for name in ENGINES if name != "structspec"]
OBJECT = """{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "é"]}},
  "required": ["a", "b"], "additionalProperties": false}"""


@pytest.fixture(params=PEERS)
def engine(request: Any) -> Any:
    """Each peer that is installed."""
    try:
        return make_engine(request.param)
    except MissingExtra as error:
        pytest.skip(str(error))


def test_a_peer_judges_whole_texts(engine: Any) -> None:
    judge = engine.compile(OBJECT, {"key_order": "declared"})
    assert judge('{"a": 12, "b": "é"}') and judge('{"a": -1, "b": "x"}')
    for text in ('{"a": 12', '{"a": 12, "b": "y"}', '{"a": "x", "b": "x"}', '{"a": 1, "b": "x"}}'):
        assert not judge(text), text
    assert judge('{"a": 12, "b": "é"}'), "a judge keeps no state between texts"
    assert engine.version and isinstance(engine.notes, tuple)


def test_a_peer_refuses_what_is_no_type(engine: Any) -> None:
    with pytest.raises(StructspecError):
        engine.compile('{"type": "nonsense"}', {})


def test_a_missing_peer_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingExtra, match=r"'llguidance'.*pip install 'structspec\[peers\]'"):
        make_engine("llguidance")
