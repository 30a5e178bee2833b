"""Predicts what changes of a step give: by a replay where a device's activities were recorded, else by the bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import COMMUNICATING, COPYING, FILLING
from profiler.analyse.model.finding import Cure, Gain, GainMethod, Prediction
from profiler.analyse.model.measures import HOST_CATEGORIES, WAIT_CATEGORIES
from profiler.core.errors import ProfilerError
from profiler.diagnose.model import MOST_UNEXPLAINED
from profiler.diagnose.rule import Claim, StepCosts

WORDS: Final[Mapping[str, tuple[str, ...]]] = {"copies": ("pinned", "overlapped"), "kernels": ("fused",)}
"""Changes that are words, with those that there are. All others are factors."""
DEVICE_ONLY: Final = ("copies", "kernels", "communication")
"""Changes of what a device does."""
_MOST_NAMES: Final = 10
_WHOLE: Final = 0.95
"""Share of a category's cost from which a claim is taken to be about all of it."""


# ---------------------------------------------------------------- the gain of a finding


def replayed_gain(claim: Claim, costs: StepCosts) -> Iterator[Gain]:
    """Yield the gain of a claim by replay; none where the run cannot be replayed, or nothing of the claim was
    recorded."""
    replay = costs.analysis.replay
    cures = _cures(claim, costs)
    if replay is None or not costs.has_queue or not cures:
        return
    prediction = replay.predict(cures, claim.remaining)
    if prediction is not None and prediction.unexplained <= MOST_UNEXPLAINED:
        yield Gain(GainMethod.REPLAY, *(prediction.factor,) * 3)


def _cures(claim: Claim, costs: StepCosts) -> tuple[Cure, ...]:
    """Return the changes of a step that a claim is about; none where one of its categories is no work of the
    program."""
    cures = []
    for name, cost in claim.costs.items():
        whole = costs.cost(name).seconds
        if name in (*WAIT_CATEGORIES, FILLING) or whole <= 0:
            return ()
        part = min(1.0, cost.seconds / whole)
        if name == COMMUNICATING:
            cures.append(Cure("communication", 1.0 - part))
        elif name == COPYING:
            cures.append(Cure("copies", word="overlapped"))
        elif name == "sync":
            cures.append(Cure("sync", sites=() if part >= _WHOLE else claim.sites))
        elif name == "launch":
            cures += [Cure("launch", 1.0 - part), Cure("allocation", 1.0 - part)]
        else:  # in a trace, launches are among the framework's calls
            cures.append(Cure("launch" if name == "framework" and costs.analysis.is_trace else name, 1.0 - part))
    return tuple(cures)


# ---------------------------------------------------------------- by hand


def parse_cures(text: str) -> tuple[Cure, ...]:
    """Return changes as they are written on the command line: `sync=0,input=0.5,copies=pinned`.

    :raises ProfilerError: one of them is no change.
    """
    return tuple(_parse(part.strip()) for part in text.split(",") if part.strip())


def _parse(text: str) -> Cure:
    name, equals, value = (part.strip() for part in text.rpartition("="))
    if not equals or not name:
        raise ProfilerError(f"--what-if: {text!r} is no change: write NAME=FACTOR, such as sync=0 or input=0.5")
    if name in WORDS:
        if value not in WORDS[name]:
            raise ProfilerError(f"--what-if: {text!r}: {name} can be {' or '.join(WORDS[name])}")
        return Cure(name, word=value)
    try:
        factor = float(value)
    except ValueError:
        factor = -1.0
    if not 0 <= factor <= _MOST_FACTOR:
        raise ProfilerError(f"--what-if: {text!r}: {value!r} is no factor from 0 to {_MOST_FACTOR:g}")
    if name == "sync" and factor:
        raise ProfilerError("--what-if: waits end when the device is done, so sync can only be 0")
    return Cure(name, factor)


_MOST_FACTOR: Final = 1000.0


def what_if(analysis: Analysis, cures: Sequence[Cure]) -> Prediction:
    """Return what these changes give.

    :raises ProfilerError: a change names nothing in the run, or nothing of it was recorded.
    """
    step = analysis.value("step_time")
    if not step:
        raise ProfilerError("--what-if: the run has no measured step")
    names = [cure.name for cure in cures]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ProfilerError(f"--what-if: {twice} is named twice")
    if analysis.replay is not None:
        replay = analysis.replay
        assert replay is not None
        try:
            prediction = replay.predict(cures)
        except KeyError as error:
            raise _unknown(str(error.args[0]), replay.names()) from error
        if prediction is None:
            raise ProfilerError(
                f"--what-if: nothing of {', '.join(map(str, cures))} was recorded in the measured steps"
            )
        return prediction
    phases = [name for name in names if any(phase.name == name for phase in analysis.phases)]
    if phases and len(phases) < len(names):  # both divide the same time
        raise ProfilerError(
            f"--what-if: {phases[0]} is a part of a step that holds several kinds of work: name one or the other"
        )
    after = step - sum((1.0 - cure.factor) * _recorded(analysis, cure) for cure in cures)
    if after <= 0.0:
        raise ProfilerError("--what-if: nothing of the step would be left")
    return Prediction(GainMethod.BOUND, step, after, step)


def _recorded(analysis: Analysis, cure: Cure) -> float:
    """Return the seconds per step of a host category or a phase in a run without a queue."""
    if cure.name in DEVICE_ONLY:
        raise ProfilerError(f"--what-if: {cure}: the activities of a device were not recorded in this run")
    phases = {phase.name: phase.seconds_per_step for phase in analysis.phases}
    if cure.name in phases:
        return phases[cure.name]
    names = ("launch", "framework") if cure.name == "launch" else (cure.name,)
    measures = [analysis.breakdown[name] for name in names if name in analysis.breakdown]
    if not measures and cure.name not in HOST_CATEGORIES:
        raise _unknown(cure.name, [*analysis.breakdown, *phases])
    values = [measure.value for measure in measures if measure.value is not None]
    if not values:
        raise ProfilerError(f"--what-if: {cure}: how long it takes was not recorded in this run")
    return sum(values)


def _unknown(name: str, names: Sequence[str]) -> ProfilerError:
    most = ", ".join(dict.fromkeys(names[:_MOST_NAMES]))
    return ProfilerError(f"--what-if: nothing is named {name!r} in the measured steps; there are, for example: {most}")
