"""The two figures of the error rates, which need no colour: what each rule misses, and the live rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from profiler.check.model import FAIL, PASS
from tests.benchmarks.gate_rules import RULES
from tests.benchmarks.gate_tables import SHOWN, SIZES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, ACCENT = "#1b1f24", "#6a737d", "#e4e7eb", "#0b5cad"
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "gate",
    "svg.fonttype": "path",
    "path.simplify": False,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": INK,
    "ytick.major.size": 0,
    "xtick.major.size": 2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "legend.frameon": False,
}
_SHOWN = [rule for rule in RULES if rule.key != "traceml-5"]
"""TraceML's limit of 5% gives the same as pytest-benchmark's mean:5%: they share a row."""
_NAMES = {"pytest-mean": "pytest-benchmark mean:5%,\nTraceML compare, limit 5%"}
_HEADING: dict[str, Any] = {
    "xy": (0, 1),
    "xycoords": "axes fraction",
    "xytext": (0, 18),
    "textcoords": "offset points",
    "fontsize": 9,
    "fontweight": "bold",
}
_OFFSET = 0.17
MOST_POINTS = 300
"""Dots of an experiment, so that the figure loads at once."""


def rules_figure(found: Mapping[str, Any], path: Path) -> None:
    """Draw false alarms on A/A and misses of 5%: a row for each rule, for both numbers of samples."""
    import matplotlib as mpl

    with mpl.rc_context(_SETTINGS):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.2, 7.6))
        axes = figure.subplots(2, 2, sharey="row", sharex="col")
        for (size, words), line in zip(SIZES.items(), axes, strict=True):
            for panel, name in zip(line, ("same", "slower-5"), strict=True):
                _rules_panel(panel, found, size, name)
            labels = ["this gate", *(_NAMES.get(rule.key, rule.name) for rule in _SHOWN)]
            line[0].set_yticks(range(len(labels)), labels)
            line[0].get_yticklabels()[0].set_fontweight("bold")
            line[0].set_ylim(len(labels) - 0.4, -0.6)
            line[0].set_title(f"Others with {words}", loc="left", fontsize=9, color=MUTED)
        axes[1, 0].set_xlabel("% of cases called slower")
        axes[1, 1].set_xlabel("% of cases not called slower")
        axes[0, 0].annotate("False alarms: the same program twice", **_HEADING)
        axes[0, 1].annotate("Misses: 5% more work", **_HEADING)
        axes[1, 0].set_xlim(left=-1.5)
        axes[1, 1].set_xlim(-3, 103)
        _legend(figure)
        figure.subplots_adjust(left=0.25, right=0.985, top=0.885, bottom=0.065, hspace=0.16, wspace=0.09)
        _save(figure, path)


def _rules_panel(panel: Axes, found: Mapping[str, Any], size: str, name: str) -> None:
    miss = name != "same"
    if ours := found["drawn"].get(name):
        _ours(panel, ours["singly"], miss)
    for place, rule in enumerate(_SHOWN, 1):
        for way, offset in (("same job", -_OFFSET), ("stored", _OFFSET)):
            one = found["peers"].get(name, {}).get(f"{size}, {way}", {}).get(rule.key)
            if one:
                _dot(panel, place + offset, one, miss, marker="o" if way == "same job" else "s", filled=way != "stored")
    panel.grid(axis="x", color=GRID, linewidth=0.7)
    panel.set_axisbelow(True)
    panel.axhspan(-0.6, 0.5, color="#f1f5fa", zorder=0, linewidth=0)


def _ours(panel: Axes, rates: Mapping[str, Mapping[str, float]], miss: bool) -> None:
    """FAIL alone, and FAIL with INCONCLUSIVE, which fails a job too by default."""
    not_passed = {"rate": 1 - rates[PASS]["rate"], "low": 1 - rates[PASS]["high"], "high": 1 - rates[PASS]["low"]}
    for one, filled, y in ((rates[FAIL], True, -_OFFSET), (not_passed, False, _OFFSET)):
        _dot(panel, y, one, miss, marker="D", filled=filled, color=ACCENT)
        value = 100 * (1 - one["rate"] if miss else one["rate"])
        right = 100 * (1 - one["low"] if miss else one["high"])
        panel.annotate(
            f"{value:.2f}%", (max(value, right), y), xytext=(6, 0), textcoords="offset points",
            color=ACCENT, va="center", fontsize=7,
        )  # fmt: skip


def _dot(
    panel: Axes, y: float, one: Mapping[str, float], miss: bool, *, marker: str, filled: bool, color: str = INK
) -> None:
    rate, low, high = (100 * (1 - one[key] if miss else one[key]) for key in ("rate", "low", "high"))
    panel.plot([low, high], [y, y], color=color, linewidth=1, solid_capstyle="butt", zorder=2)
    face = color if filled else "white"
    panel.plot([rate], [y], marker, color=color, markerfacecolor=face, markersize=4.6, markeredgewidth=1, zorder=3)


def _legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    shapes = (
        ("D", ACCENT, ACCENT, "this gate: FAIL"),
        ("D", "white", ACCENT, "this gate: FAIL or INCONCLUSIVE"),
        ("o", INK, INK, "others: same job"),
        ("s", "white", INK, "others: stored baseline"),
    )
    handles = [
        Line2D([], [], marker=shape, color=edge, markerfacecolor=face, linewidth=1, markersize=4.6, label=label)
        for shape, face, edge, label in shapes
    ]
    figure.legend(
        handles=handles, loc="upper left", ncols=4, fontsize=8, bbox_to_anchor=(0.005, 0.985), columnspacing=2
    )


def rounds_figure(found: Mapping[str, Any], path: Path) -> None:
    """Draw both lines of every measuring round, in %, and the edges."""
    import matplotlib as mpl

    values: Mapping[str, Sequence[tuple[float, float]]] = found["round_values"]
    names = [name for name in SHOWN if values.get(name)]
    with mpl.rc_context(_SETTINGS):
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(8.2, 0.95 + 0.62 * max(len(names), 1)))
        panels = figure.subplots(1, 2, sharey=True, sharex=True)
        every = [100 * np.expm1(value) for name in names for pair in values[name] for value in pair]
        low, high = np.quantile(every, [0.002, 0.998]) if every else (-5, 10)
        for line, (panel, title) in enumerate(zip(panels, ("typical step", "all steps"), strict=True)):
            for place, name in enumerate(names):
                _strip(panel, place, [pair[line] for pair in values[name]])
            _edges(panel, found["edges"], len(names), first=line == 0)
            panel.set_title(title, loc="left", fontsize=9, pad=16)
            panel.set_xlabel("slow-down of a round (%)")
            panel.grid(axis="x", color=GRID, linewidth=0.7)
            panel.set_axisbelow(True)
        panels[0].xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        panels[0].set_xlim(min(low, -5) - 1, max(high, 8) + 1)
        panels[0].set_yticks(range(len(names)), [f"{SHOWN[name]}\n{len(values[name])} rounds" for name in names])
        panels[0].set_ylim(len(names) - 0.45, -0.55)
        height = figure.get_figheight()
        figure.subplots_adjust(left=0.29, right=0.985, top=1 - 0.42 / height, bottom=0.44 / height, wspace=0.09)
        _save(figure, path)


def _strip(panel: Axes, place: int, logs: Sequence[float]) -> None:
    rng = np.random.default_rng(place)
    percent = 100 * np.expm1(np.asarray(logs))
    some = percent[:: -(-len(percent) // MOST_POINTS)]
    spread = place + rng.uniform(-0.26, 0.26, len(some))
    # One path of dots (short lines with round caps): a marker each would be ten times the file.
    dots = np.stack([some, some + 1e-3, np.full_like(some, np.nan)], axis=1).ravel()
    panel.plot(dots, np.repeat(spread, 3), color=MUTED, alpha=0.5, linewidth=2.2, solid_capstyle="round", scalex=False)
    low, middle, high = np.quantile(percent, [0.25, 0.5, 0.75])
    panel.plot([low, high], [place, place], color=INK, linewidth=2.4, solid_capstyle="butt")
    panel.plot([middle], [place], "|", color=INK, markersize=15, markeredgewidth=1.6)


def _edges(panel: Axes, edges: Mapping[str, float], rows: int, *, first: bool) -> None:
    for name, style, side in (("fails", (0, (4, 2)), "right"), ("passes", (0, (1, 1.5)), "left")):
        at = round(100 * float(np.expm1(edges[name])), 3)
        panel.axvline(at, color=ACCENT, linewidth=1, linestyle=style, zorder=1)
        words = f"FAIL > {at:g}% " if name == "fails" else f" PASS < {at:g}%"
        if first or rows:
            panel.annotate(
                words, (at, 1), xycoords=("data", "axes fraction"), xytext=(0, 3), textcoords="offset points",
                ha=side, va="bottom", fontsize=7, color=ACCENT,
            )  # fmt: skip


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
