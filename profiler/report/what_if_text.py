"""Words what changes of a step are predicted to give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from profiler.analyse.finding import Cure, GainMethod, Prediction
from profiler.core.terminal import called_as
from profiler.core.units import ratio, seconds, share
from profiler.diagnose.model import MOST_UNEXPLAINED, WORTH_LEADING
from profiler.report.blocks import Action
from profiler.report.next_step import next_step
from profiler.report.text import listed

WHAT_IF_SCHEMA: Final = "what-if/1"
_NEAR: Final = 0.03
"""Deviation of the unchanged replay from which it is not trusted."""


def what_if_text(cures: Sequence[Cure], prediction: Prediction) -> str:
    """`With sync=0, a step takes about 118 ms instead of 153 ms: 1.29× as fast, by a replay of the recorded steps.`"""
    changes = listed([str(cure) for cure in cures])
    times = f"{seconds(prediction.after)} instead of {seconds(prediction.before)}: {ratio(prediction.factor)} as fast"
    if prediction.method is GainMethod.BOUND:
        return (
            f"With {changes}, a step takes about {times}. No queue of a device was recorded, so this is the step "
            "without these parts of it: nothing else can run beside them."
        )
    sentences = [f"With {changes}, a step takes about {times}, by a replay of the recorded steps."]
    replayed = prediction.replayed or prediction.measured
    if abs(replayed / prediction.measured - 1) > _NEAR:
        sentences.append(
            f"Without any change, the replay of a step takes {seconds(replayed)} instead of the measured "
            f"{seconds(prediction.measured)}, so do not rely on it."
        )
    if prediction.unexplained > MOST_UNEXPLAINED:
        sentences.append(
            f"In {share(prediction.unexplained)} of the time, the device began later than the recording explains, "
            "so do not rely on it."
        )
    if prediction.before > (1 + _NEAR) * replayed:
        sentences.append(
            f"The host's own steps took {seconds(prediction.measured)}, because it was ahead of the device."
        )
    return " ".join(sentences)


def what_if_json(cures: Sequence[Cure], prediction: Prediction, run: str = "RUN") -> Mapping[str, Any]:
    """The document of `diagnose --what-if --format json`.

    :param run: the run directory, as a shell reads it.
    """
    return {
        "schema": WHAT_IF_SCHEMA,
        "changes": {cure.name: cure.word or cure.factor for cure in cures},
        "method": prediction.method.value,
        "step_seconds": prediction.before,
        "predicted_step_seconds": prediction.after,
        "factor": prediction.factor if prediction.after > 0 else None,
        "measured_step_seconds": prediction.measured,
        "replayed_step_seconds": prediction.replayed,
        "unexplained": prediction.unexplained,
        "text": what_if_text(cures, prediction),
        "next_step": _next_step(cures, prediction, run),
    }


def _next_step(cures: Sequence[Cure], prediction: Prediction, run: str) -> str:
    names = listed([cure.name for cure in cures])
    if prediction.factor < WORTH_LEADING:
        return next_step((Action(f"Leave {names} as it is: the change gives too little"),))
    return next_step((Action(f"Find the lines of {names}, and change them", command=f"{called_as()} diagnose {run}"),))
