"""`draft_together`: the drafters of a round share the forwards that they need.

Owns the meeting point. A drafter that runs a network writes its draft as a *plan*, a generator: it
yields an `Ask` (an engine, and what that engine is to run), is sent the answer, and returns its
drafts. All plans of a round go on side by side: asks to one engine that are open at the same time
become one call of it, whatever depth each plan stands at. A plan that ends early, or that the
grammar spares a forward, just does not ask.

Invariants
- a plan sees its own asks and answers only, so its tokens and its noise are those that it has
  alone, up to the rounding of a product of more rows;
- a call that fails is made again for each ask by itself, so that an error reaches the plan that
  caused it and no other; answers to the others are as before.

Cost: one call per engine and depth of the deepest plan, where plans alone need their sum.

Siblings: `model.ModelDrafter` and `eagle` write plans; `decoding.loop` runs them.

Example::

    plans = [plan_of(drafter, state, context, left, step, count=1) for drafter in drafters]
    outcomes, seconds = draft_together(plans)
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from structspec.drafting.draft import Draft
from structspec.errors import StructspecError

__all__ = ["Ask", "Engine", "Plan", "draft_alone", "draft_together", "plan_of"]


class Engine(Protocol):
    """Runs asks of several plans at once; equal engines (`==`, `hash`) run together."""

    def run(self, asks: Sequence[Any]) -> Sequence[Any]:
        """An answer to each ask, in order."""
        ...


@dataclass(frozen=True)
class Ask:
    """What a plan waits for."""

    engine: Engine
    what: Any


Plan: TypeAlias = Generator[Ask, Any, list[Draft]]


def plan_of(
    drafter: Any, state: int, context: Sequence[int], left: int, step: int, count: int
) -> Plan:
    """The drafts of any `Drafter` as a plan: its tree, its own plan, or what it proposes alone."""
    tree = getattr(drafter, "propose_tree", None)
    if tree is not None:
        drafts: list[Draft] = tree(state, context, left, step)
        return drafts
    plan = getattr(drafter, "plan", None)
    if plan is not None:
        drafts = yield from plan(state, context, left, step, count)
        return drafts
    if count > 1:
        drafts = drafter.propose_several(state, context, left, step, count)
        return drafts
    return [drafter.propose(state, context, left, step)]


def draft_alone(plan: Plan) -> list[Draft]:
    """Run one plan by itself."""
    ((outcome,), _) = draft_together([plan])
    if isinstance(outcome, StructspecError):
        raise outcome
    return outcome


def draft_together(
    plans: Sequence[Plan],
) -> tuple[list[list[Draft] | StructspecError], list[float]]:
    """Run plans side by side; the drafts or the error of each, and the seconds that each took.

    A call that several share counts in equal parts. Errors that are not structspec's own end the
    round.
    """
    outcomes: list[Any] = [None] * len(plans)
    seconds = [0.0] * len(plans)
    answers: dict[int, Any] = dict.fromkeys(range(len(plans)))
    try:
        while answers:
            asks: dict[Engine, list[tuple[int, Any]]] = {}
            for number, answer in answers.items():
                began = time.perf_counter()
                plan = plans[number]
                try:
                    failed = isinstance(answer, StructspecError)
                    ask = plan.throw(answer) if failed else plan.send(answer)
                    asks.setdefault(ask.engine, []).append((number, ask.what))
                except StopIteration as end:
                    outcomes[number] = end.value
                except StructspecError as error:
                    outcomes[number] = error
                seconds[number] += time.perf_counter() - began
            answers = {}
            for engine, members in asks.items():
                began = time.perf_counter()
                found = _answers(engine, [what for _, what in members])
                share = (time.perf_counter() - began) / len(members)
                for (number, _), answer in zip(members, found, strict=True):
                    answers[number] = answer
                    seconds[number] += share
    finally:
        for plan in plans:
            plan.close()
    return outcomes, seconds


def _answers(engine: Engine, asks: list[Any]) -> Sequence[Any]:
    """The answers, errors in the places of asks that fail by themselves."""
    try:
        return engine.run(asks)
    except StructspecError as error:
        if len(asks) == 1:
            return [error]
    return [_answers(engine, [ask])[0] for ask in asks]
