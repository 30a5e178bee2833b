"""One sentence about a comparison: how much faster or slower, how sure, and what in the recordings explains it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from profiler.analyse.model import Comparison, Measure, Ratio, Side
from profiler.core.units import count, ratio, seconds, share, significant
from profiler.diagnose.change import largest_change
from profiler.diagnose.words import device_of, sampled
from profiler.run.model import RunInfo

_SPEEDS: Final = ("tokens_per_s", "steps_per_s")
_COUNTERS: Final = {
    "syncs_per_step": "syncs",
    "would_sync_per_step": "reads that would sync on a GPU",
    "h2d_per_step": "H2D copies",
    "d2h_per_step": "D2H copies",
    "allocations_per_step": "allocations",
    "launches_per_step": "launches",
}
_SLOWED: Final = 1.5
"""A breakdown pass that was slower than its light runs by more tells of its recording too: it gives no cause."""
_MOST_COUNTERS: Final = 2
_FACTOR: Final = 1.5
"""A counter that changed by less is not named."""
_SAME_SIZE: Final = 1.1
"""Steps of which one has more of the other's tokens than this are other steps: what is counted in one says nothing."""


def compare_verdict(comparison: Comparison) -> str:
    """Faster, slower, or no difference seen, with the interval; then what was seen to change with it.

    Then, where programs say how long they took to start, that this is not in it; then what extensions say.
    """
    reasons = "; ".join(comparison.reasons)
    if not comparison.comparable and not comparison.forced:
        return f"Not comparable: {reasons}."
    said = "; ".join(_about(comparison, side) for side in comparison.sides[1:])
    if comparison.forced:
        said = f"Not comparable ({reasons}), compared all the same: {said}"
    extensions = (extension.verdict_sentence() for extension in comparison.extensions.values())
    return " ".join(sentence for sentence in (f"{said}.", _starts(comparison), *extensions) if sentence)


def _starts(comparison: Comparison) -> str:
    """What programs state as `start_s`, in seconds: of a short run the start can be most of what a user waits for."""
    known = [f"{seconds(start)} of {side.label}" for side in comparison.sides if (start := _start(side)) is not None]
    if not known:
        return ""
    *before, last = known
    named = f"{', '.join(before)} and {last}" if before else last
    return f"The start before the first step, {named}, is not in it."


def _start(side: Side) -> float | None:
    stated = [run.info.facts.get("start_s") for run in side.runs]
    numbers = [float(one) for one in stated if isinstance(one, int | float) and not isinstance(one, bool)]
    return median(numbers) if numbers else None


def _about(comparison: Comparison, side: Side) -> str:
    base, found = comparison.sides[0], comparison.ratios.get(side.label, {})
    where = _device(base, side)
    known = [(found[name], _unit(base, side, name)) for name in _SPEEDS if name in found]
    speed, unit = next((pair for pair in known if pair[0].value is not None), (None, ""))
    if speed is None or speed.value is None:
        reason = known[0][0].reason if known else "no pair of runs"
        return f"how fast {side.label} is beside {base.label} is not known: {reason}"
    sure = _interval(speed)
    if speed.n > 1 and not speed.different:
        return f"no difference seen between {side.label} and {base.label} in {unit}{where}: {ratio(speed.value)}{sure}"
    head = f"{side.label} runs {ratio(speed.value)}{sure} the {unit} of {base.label}{where}"
    return head + (_moved(base, side) or _along(base, side, faster=speed.value > 1, may_be_cause=speed.n > 1))


def _unit(base: Side, side: Side, name: str) -> str:
    """As the programs say it: tokens/s, or another."""
    return next((unit for one in (base, side) if (found := one.measures.get(name)) and (unit := found.unit)), name)


def _interval(speed: Ratio) -> str:
    if speed.low is None or speed.high is None:
        return f" ({speed.reason})" if speed.reason else ""
    return f" (95% {significant(speed.low)} to {significant(speed.high)})"


def _device(base: Side, side: Side) -> str:
    infos = [info for one in (base, side) if (info := _info(one)) is not None]
    names = list(dict.fromkeys(device_of(info) for info in infos if info.facts.get("device")))
    return f" on the {' and the '.join(names)}" if names else ""


def _info(side: Side) -> RunInfo | None:
    run = side.runs[0] if side.runs else side.detail
    return run.info if run else None


def _moved(base: Side, side: Side) -> str:
    """That the work of a side is done in other processes: what its stepping process does then explains nothing."""
    before, after = (info.facts if (info := _info(one)) else {} for one in (base, side))
    if before.get("engine") == after.get("engine"):
        return ""
    workers = after.get("workers")
    many = f"{workers} workers" if isinstance(workers, int) and workers != 1 else "one worker"
    return f", with its work done by {many} (engine {after.get('engine', 'none')})"


def _along(base: Side, side: Side, *, faster: bool, may_be_cause: bool) -> str:
    """What changed along with the speed; a cause only where the recordings show time that explains most of it."""
    change = largest_change(base.detail, side.detail, faster=faster) if base.detail and side.detail else None
    counted = list(_counted(base, side, faster=faster))[:_MOST_COUNTERS]
    if counted:
        counted[-1] += " a step"
    slowed = _slowed(base, side) if change and (change.is_cause or change.several) else ""
    more = f", with {' and '.join(counted)}" if counted else ""
    if change and change.is_cause and may_be_cause and not slowed:
        return f", because {change.what} {change.verb} {change.amounts}{more}"
    if change and change.several:
        return f", and {change.what} {change.verb} {change.amounts}{more}{slowed}"
    first = f"{change.what} {change.amounts}" if change else _busy(base, side)
    *before, last = [part for part in (first, *counted) if part] or [""]
    return f", with {', '.join(before)}{' and ' * bool(before)}{last}{slowed}" if last else ""


def _slowed(base: Side, side: Side) -> str:
    """The breakdown pass that its recording slowed down most, where that is too much to take it for the light runs."""
    found = [(one.recording_slowdown.value or 0.0, one.label) for one in (base, side)]
    most, label = max(found, key=lambda pair: pair[0])
    return f" (the breakdown pass of {label} took {ratio(most)} the time of its light runs)" if most > _SLOWED else ""


def _busy(base: Side, side: Side) -> str:
    """Of the light runs, where the device itself counted it."""
    pair = [one.measures.get("device_utilization") for one in (base, side)]
    known = [share(busy.value) for busy in pair if busy and busy.value is not None and not sampled(busy)]
    return f"busy from {known[0]} to {known[1]} of the time" if len(known) == len(pair) else ""


def _counted(base: Side, side: Side, *, faster: bool) -> Iterator[str]:
    """Counters that changed in the direction of the step time, syncs and copies first."""
    if not _alike(base, side):
        return
    for name, words in _COUNTERS.items():
        before, after = (_measure(one, name) for one in (base, side))
        if before is None or after is None:
            continue
        many, few = (before, after) if faster else (after, before)
        if many > few * _FACTOR:
            yield f"{words} from {count(before)} to {count(after)}"


def _alike(base: Side, side: Side) -> bool:
    """Whether steps of both are of about the same size, as far as they say it."""
    sizes = []
    for one in (base, side):
        tokens, steps = (one.measures.get(name, Measure(name, None, "")).value for name in _SPEEDS)
        sizes.append(tokens / steps if tokens and steps else None)
    before, after = sizes
    return not before or not after or max(before, after) < _SAME_SIZE * min(before, after)


def _measure(side: Side, name: str) -> float | None:
    """Of the light runs; where they cannot see it, of the breakdown pass."""
    empty = Measure(name, None, "")
    light = side.measures.get(name, empty).value
    return light if light is not None or side.detail is None else side.detail.measures.get(name, empty).value
