"""Calls told from portions of a reply: what several tokens accepted in one step look like."""

import random

import pytest

from structspec.tools.formats import find_format
from structspec.tools.grammar import reply_grammar
from structspec.tools.reader import read_prefix, read_reply
from structspec.tools.streaming import ArgumentsDelta, CallStarted, Differences

NAMES = ("hermes", "llama3", "pythonic", "command_r", "deepseek")


@pytest.mark.parametrize("name", NAMES)
def test_a_call_is_told_whole_before_the_next_one_in_portions_of_any_size(tools, draw, name):
    """sp-two-calls-in-one-step, sp-end-marker-leaks-into-arguments,
    sp-arguments-cut-inside-a-character: portions of bytes, cut anywhere."""
    form = find_format(name)
    grammar = reply_grammar(form, tools, choice="required")
    rng = random.Random(name)
    several = 0
    for _ in range(12):
        whole = b"".join(draw(grammar, rng, 150))
        final = read_reply(form, [whole], tools)
        several += len(final.calls) > 1
        for most in (1, 7, len(whole)):
            differences, events, end = Differences(), [], 0
            while end < len(whole):
                end = min(len(whole), end + rng.randint(1, most))
                events += differences.feed(read_prefix(form, [whole[:end]], tools))
            events += differences.feed(final)
            calls = [e for e in events if isinstance(e, CallStarted | ArgumentsDelta)]
            order = [e.index for e in calls]
            assert order == sorted(order)  # nothing of a call behind the start of the next
            assert [e.name for e in calls if isinstance(e, CallStarted)] == [
                call.name for call in final.calls
            ]
            for index, call in enumerate(final.calls):
                mine = [e for e in calls if e.index == index]
                assert isinstance(mine[0], CallStarted)
                assert "".join(e.text for e in mine[1:]) == call.raw
                assert "\ufffd" not in call.raw
    assert several or form.name not in ("hermes", "pythonic", "command_r", "deepseek")
