"""Draw small SVG charts in the light or dark colors of the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH = 560
HEIGHT = 280
LEFT = 54
RIGHT = 128  # room for the names at the ends of lines
TOP = 16
BOTTOM = 44
LINE = 15  # the height of a line of text

INK = "var(--color-foreground-primary)"
MUTED = "var(--color-foreground-muted)"
RULE = "var(--color-background-border)"
COLORS = ("var(--color-brand-primary)", MUTED)
"""Colors of the strategy of the page and of its reference."""

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Curve:
    """Scores by number of labels; ``spread``: their standard deviations."""

    name: str
    labels: Sequence[float]
    scores: Sequence[float]
    spread: Sequence[float]


@dataclass(frozen=True)
class Difference:
    """A difference with its interval."""

    name: str
    value: float
    low: float
    high: float


def draw_curves(curves: Sequence[Curve], score: str, caption: str) -> str:
    """Draw scores over the logarithm of the number of labels, with a band of one standard deviation.

    A screen reader reads ``caption``.
    """
    labels = sorted({label for curve in curves for label in curve.labels})
    lows: list[float] = []
    highs: list[float] = []
    for curve in curves:
        for value, spread in zip(curve.scores, curve.spread, strict=True):
            lows.append(value - spread)
            highs.append(value + spread)
    lowest = min(lows)
    highest = max(highs)
    ticks = nice_ticks(lowest, highest)
    across = _log_scale(labels[0], labels[-1], LEFT, WIDTH - RIGHT)
    bottom = min(ticks[0], lowest)
    top = max(ticks[-1], highest)
    up = _scale(bottom, top, HEIGHT - BOTTOM, TOP)

    parts = [_rule(LEFT, up(tick), WIDTH - RIGHT, up(tick)) for tick in ticks]
    parts += [_text(LEFT - 8, up(tick) + 4, f"{tick:g}", "end") for tick in ticks]
    for label in thin_out(labels, across):
        parts.append(_text(across(label), HEIGHT - BOTTOM + 18, f"{label:,.0f}", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "labels", "middle"))
    parts.append(_text(LEFT, TOP - 4, score, "start"))

    colors = list(zip(curves, COLORS, strict=True))
    for curve, color in reversed(colors):  # what the page is about lies on top
        points = list(zip(curve.labels, curve.scores, curve.spread, strict=True))
        upper = [(across(x), up(y + d)) for x, y, d in points]
        lower = [(across(x), up(y - d)) for x, y, d in reversed(points)]
        line = [(across(x), up(y)) for x, y, _ in points]
        outline = _path(upper + lower)
        parts.append(f'<path d="{outline}Z" fill="{color}" opacity=".16"/>')
        parts.append(
            f'<path d="{_path(line)}" fill="none" stroke="{color}" stroke-width="2"/>'
        )
        for x, y in line:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>')
    ends = spread_apart([up(curve.scores[-1]) for curve in curves], LINE)
    for (curve, color), y in zip(colors, ends, strict=True):
        parts.append(_text(WIDTH - RIGHT + 8, y + 4, curve.name, "start", color))
    return _svg(parts, HEIGHT, caption)


def draw_differences(lines: Sequence[Difference], unit: str, caption: str) -> str:
    """Draw the difference of each setting, its interval and zero."""
    left = 8 + 7 * max(len(line.name) for line in lines)
    height = TOP + 30 * len(lines) + BOTTOM
    lowest = min(line.low for line in lines)
    highest = max(line.high for line in lines)
    ticks = nice_ticks(min(0.0, lowest), max(0.0, highest))
    across = _scale(ticks[0], ticks[-1], left, WIDTH - 20)

    bottom = height - BOTTOM
    parts = [_rule(across(tick), TOP, across(tick), bottom) for tick in ticks]
    parts.append(_rule(across(0), TOP, across(0), bottom, INK))
    for tick in ticks:
        parts.append(_text(across(tick), bottom + 18, f"{tick:+g}", "middle"))
    parts.append(_text((left + WIDTH) / 2, height - 8, unit, "middle"))
    for at, line in enumerate(lines):
        y = TOP + 30 * at + 15
        parts.append(_text(left - 10, y + 4, line.name, "end"))
        parts.append(
            f'<path d="{_path([(across(line.low), y), (across(line.high), y)])}" '
            f'stroke="{COLORS[0]}" stroke-width="2" fill="none"/>'
        )
        parts.append(
            f'<circle cx="{across(line.value):.1f}" cy="{y}" r="4" fill="{COLORS[0]}"/>'
        )
    return _svg(parts, height, caption)


def nice_ticks(low: float, high: float, limit: int = 6) -> list[float]:
    """Return round numbers from below ``low`` to above ``high``, about ``limit`` of them.

    >>> nice_ticks(0.53, 0.98)
    [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    """
    width = max(high - low, 1e-9)
    raw = width / (limit - 1)
    power = 10 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(k * step, 10) for k in range(first, last + 1)]


def thin_out(labels: Sequence[float], across: Scale, least: float = 44) -> list[float]:
    """Return the labels whose ticks have this distance in pixels, and the last one."""
    kept = [labels[-1]]
    for label in reversed(labels[:-1]):
        if across(kept[-1]) - across(label) >= least:
            kept.append(label)
    return kept[::-1]


def spread_apart(heights: Sequence[float], least: float) -> list[float]:
    """Return the heights, moved to a distance of at least ``least``.

    >>> spread_apart([100.0, 104.0], 15)
    [94.5, 109.5]
    """
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved = list(heights)
    for one, other in pairwise(order):
        missing = least - (moved[other] - moved[one])
        if missing > 0:
            moved[one] -= missing / 2
            moved[other] += missing / 2
    return moved


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _log_scale(low: float, high: float, start: float, end: float) -> Scale:
    linear = _scale(math.log(low), math.log(high), start, end)
    return lambda value: linear(math.log(value))


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _rule(x: float, y: float, to_x: float, to_y: float, color: str = RULE) -> str:
    return f'<path d="{_path([(x, y), (to_x, to_y)])}" stroke="{color}" stroke-width="1"/>'


def _text(x: float, y: float, text: str, anchor: str, color: str = INK) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">'
        f"{escape(text)}</text>"
    )


def _svg(parts: Sequence[str], height: float, caption: str) -> str:
    body = "".join(parts)
    return (
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {height}" '
        f'aria-label="{escape(caption, quote=True)}">{body}</svg>'
    )
