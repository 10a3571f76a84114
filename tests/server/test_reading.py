"""Readers: the pieces of an answer do not depend on how its tokens were portioned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.decoding.output import Output
from structspec.server.engine import Written
from structspec.server.reading import StopCut, TextReader

stops = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


def portions(data, whole):
    """A random split of a text or of bytes."""
    parts = []
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        parts.append(whole[:size])
        whole = whole[size:]
    return parts


@given(st.text("abc", max_size=30), stops, st.data())
def test_text_ends_before_the_first_stop_string(text, strings, data):
    cut = StopCut(strings)
    told = "".join(cut.feed(part) for part in portions(data, text)) + cut.rest()
    found = [(at + len(stop), at) for stop in strings if (at := text.find(stop)) >= 0]
    assert told == (text[: min(found)[1]] if found else text)
    assert cut.done == bool(found)


@given(st.text("abc", max_size=30), stops, st.data())
def test_text_is_told_as_soon_as_no_stop_string_can_begin_in_it(text, strings, data):
    cut, told, read = StopCut(strings), "", ""
    for part in portions(data, text):
        told += cut.feed(part)
        read += part
        if cut.done:
            break
        held = read[len(told) :]
        assert not held or any(stop.startswith(held) for stop in strings)


@given(st.text(max_size=12), st.data())
def test_characters_are_never_split(text, data):
    reader, told = TextReader(), ""
    for part in portions(
        data, text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
    ):
        for piece in reader.feed([Written(0, part)]):
            told += piece.text
    told += "".join(p.text for p in reader.finish(Output((), b"", "stop")))
    assert told == text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def test_an_unfinished_stop_string_is_told_at_the_end():
    cut = StopCut(("END",))
    assert cut.feed("the E") == "the "
    assert cut.feed("N") == ""
    assert cut.rest() == "EN"


@pytest.mark.parametrize("first", ["ab", "b"])
def test_the_first_of_two_overlapping_stops_decides(first):
    cut = StopCut(("bc", first))
    assert cut.feed("xabc") == ("x" if first == "ab" else "xa")
