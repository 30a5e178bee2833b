"""Sentences for the codes and values of a run: the one place where results become English."""

from __future__ import annotations

from profiler.run.model import StepDefinition, StepKind


def step_text(step: StepDefinition | None) -> str:
    """What a step is in a run, and how that was found; empty where a run has none."""
    if step is None:
        return ""
    if step.kind is StepKind.WHOLE_TRACE:
        return f"{step.label}: it has no ProfilerStep annotations"
    if step.kind is StepKind.WHOLE_RUN:
        asked = "a loader was asked only once" if step.loader_asked else "no loader was asked"
        stepped = _optimizer_steps(step.optimizer_steps or 0)
        return f"{step.label}: {stepped}, {asked}, and the program marks no steps (profiler.step())"
    if step.kind is StepKind.LOADER:
        counted = "" if step.optimizer_steps is None else f": {_optimizer_steps(step.optimizer_steps)}"
        return f"batches of {_phases(step)}{counted}"
    if step.kind is not StepKind.OPTIMIZER:
        return step.label
    text = f"steps of {_phases(step)}"
    if step.skipped:
        text += f", of which GradScaler skipped {step.skipped:,}"
    if step.nested:
        more = f" and {len(step.nested) - 2} more" if len(step.nested) > 2 else ""
        text += f"; within them {', '.join(step.nested[:2])}{more} stepped too"
    return text


def _phases(step: StepDefinition) -> str:
    """`A then B and C in turns`: what ends the steps of each phase; at most three phases are named."""
    texts = [_in_turns(phase) for phase in step.phases]
    return " then ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def _in_turns(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return names[0]
    shown = names if len(names) < 4 else (*names[:3], f"{len(names) - 3} more")
    return f"{', '.join(shown[:-1])} and {shown[-1]} in turns"


def _optimizer_steps(count: int) -> str:
    """How often an optimizer stepped, too seldom to make the steps."""
    return {0: "no optimizer stepped", 1: "an optimizer stepped only once"}.get(
        count, f"an optimizer stepped only {count:,} times"
    )
