"""The counts of a run with virtual CUDA devices, in the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from profiler.analyse.model import SiteCount
from profiler.core.units import significant, size
from profiler.report.table import short_site
from profiler.report.text import plural
from profiler.run.model import RunInfo
from profiler.run.tables import CountKind

_WIDTH: Final = 80
_KINDS: Final = {
    CountKind.SYNC: "waits for the device",
    CountKind.H2D: "copies to the device",
    CountKind.D2H: "copies to the host",
    CountKind.D2D: "copies between devices",
}


def count_lines(info: RunInfo, steps: int, counts: tuple[SiteCount, ...], limit: int = 8) -> Iterator[str]:
    """What the program does with the devices in a step, by line, in at most 80 columns.

    :param steps: number of steps of the run.
    :param limit: lines of each kind.
    """
    devices = plural(int(info.facts.get("virtual_cuda", 1)), "virtual CUDA device")
    yield f"{plural(steps, 'step')} on {devices}: exact counts, no times (there is no GPU)"
    if not steps:
        yield "the program made no step, so there is nothing to count per step"
    waits = sum(count.mean for count in counts if count.waits)
    yield f"the host waits for the device {_number(waits)} times in a step"
    for kind, title in _KINDS.items():
        own = [count for count in counts if count.kind is kind and (count.mean or count.before)]
        if own:
            yield ""
            yield f"{title}: {_number(sum(count.mean for count in own))} in a step"
            yield from map(_line, own[:limit])
        if len(own) > limit:
            yield f"  and {plural(len(own) - limit, 'more line')}"


def _line(count: SiteCount) -> str:
    where = short_site(count.site) if count.site else "no line of the program"
    moved = f" {size(count.bytes_per_step)}" if count.bytes_per_step else ""
    first = f", {count.before:,} until the first step" if count.before and not count.mean else ""
    text = f"  {_number(count.mean):>8}  {where}  {count.name}{moved}{first}"
    source = count.site.source if count.site else ""
    if source and len(text) + 10 < _WIDTH:
        text += f"  {source}"
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _number(mean: float) -> str:
    return f"{round(mean):,}" if mean == round(mean) else significant(mean)


def counts_json(info: RunInfo, steps: int, counts: tuple[SiteCount, ...]) -> dict[str, Any]:
    """The same as data: `steps`, `devices`, `card`, and for each line its kind, call, place and numbers."""
    return {
        "steps": steps,
        "devices": info.facts.get("virtual_cuda"),
        "card": info.facts.get("virtual_card"),
        "waits_per_step": sum(count.mean for count in counts if count.waits),
        "counts": [
            {
                "kind": count.kind.name.lower(),
                "call": count.name,
                "waits": count.waits,
                "file": count.site.file if count.site else None,
                "line": count.site.line if count.site else None,
                "function": count.site.function if count.site else None,
                "source": count.site.source if count.site else None,
                "per_step": count.mean,
                "usual": count.usual[0],
                "before_second_step": count.before,
                "bytes_per_step": count.bytes_per_step,
            }
            for count in counts
        ],
    }


def print_counts(info: RunInfo, steps: int, counts: tuple[SiteCount, ...], *, as_json: bool = False) -> None:
    """Print them on the standard output."""
    if as_json:
        print(json.dumps(counts_json(info, steps, counts), indent=2, allow_nan=False))
    else:
        print("\n".join(count_lines(info, steps, counts)))
