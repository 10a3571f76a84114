"""Curves of a training run: its points, and a picture of them.

Invariant: values that are not finite are left out, so that a picture can always be drawn.

Cost: a line of SVG per depth; no plotting package is needed.

Sibling: `training`, which makes the points.

Example::

    >>> from structspec.drafting.curves import Point, draw_curves
    >>> draw_curves([Point(1, 0.9, (0.5,)), Point(2, 0.6, (0.7,))]).count("<polyline")
    2
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Point", "draw_curves"]


@dataclass(frozen=True)
class Point:
    """One point of the curves: mean loss, and mean Σ min(p', q') of free places at each depth.

    Training points measure within the draft's vocabulary, held-out ones against the whole law.
    """

    step: int
    loss: float
    acceptance: tuple[float, ...]
    held_out: bool = False


def draw_curves(curve: Sequence[Point], width: int = 720, height: int = 360) -> str:
    """Loss and acceptance over steps as an SVG picture; dots are held-out points."""
    if not curve:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>\n'
    last = max(point.step for point in curve) or 1
    losses = [point.loss for point in curve if math.isfinite(point.loss)]
    top = max(losses, default=1.0) or 1.0
    inner_width, inner_height = width - 80, height - 60

    def x(step: int) -> float:
        return 50 + inner_width * step / last

    def y(share: float) -> float:
        return 20 + inner_height * (1 - min(1.0, max(0.0, share)))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for tick in range(6):
        share = tick / 5
        parts.append(
            f'<line x1="50" x2="{50 + inner_width}" y1="{y(share):.1f}" y2="{y(share):.1f}" '
            f'stroke="#ddd"/><text x="8" y="{y(share) + 4:.1f}">{share:.1f}</text>'
        )
    colours = ("#1b6ca8", "#2a9d8f", "#e9a23b", "#c8553d", "#7d5ba6", "#555555")
    names = ["loss / first", *(f"acceptance {d + 1}" for d in range(len(curve[0].acceptance)))]
    for index, name in enumerate(names):
        colour = colours[index % len(colours)]
        for held_out in (False, True):
            dots = [
                (point.step, point.loss / top if index == 0 else point.acceptance[index - 1])
                for point in curve
                if point.held_out == held_out
            ]
            shown = [(x(s), y(v)) for s, v in dots if math.isfinite(v)]
            if held_out:
                parts += [
                    f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in shown
                ]
            elif shown:
                line = " ".join(f"{a:.1f},{b:.1f}" for a, b in shown)
                parts.append(
                    f'<polyline points="{line}" fill="none" stroke="{colour}" opacity="0.8"/>'
                )
        parts.append(f'<text x="{60 + 120 * index}" y="{height - 8}" fill="{colour}">{name}</text>')
    parts.append(f'<text x="{inner_width}" y="{height - 26}">step {last}</text></svg>')
    return "\n".join(parts) + "\n"
