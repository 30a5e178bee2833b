"""Hooks of modules that compute statistics in each pass, such as those of activations that someone has left on."""

from __future__ import annotations

from profiler.analyse.finding import Confidence, KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._frames import frame_costs, frame_sites
from profiler.run.model import Site


def judge(costs: StepCosts) -> Claim | None:
    """The time at lines of hooks that leave the graph of gradients: others may compute a part of the loss. None beside
    a device with a queue: samples do not tell what of it leaves the device idle."""
    facts = () if costs.has_queue else costs.fact("module_hooks") or ()
    hooks = {Site.from_fact(each) for each in facts if each.get("is_outside")}
    lines = tuple(line for line in costs.analysis.lines if any(_is_within(line.site, hook) for hook in hooks))
    claimed = frame_costs(lines)
    if not claimed:
        return None
    running = {hook for hook in hooks if any(_is_within(line.site, hook) for line in lines)}
    values = {"hooks": len(running)}
    return Claim(claimed, frame_sites(lines), values, is_most=True, confidence=Confidence.MEDIUM)


def _is_within(line: Site, hook: Site) -> bool:
    """Whether a line is one of a hook, or of a function or comprehension within it. All lambdas of a function have one
    name: only the line tells them apart."""
    is_inner = line.function.startswith(f"{hook.function}.<locals>.")
    if hook.function.endswith("<lambda>") and line.line != hook.line:
        return False
    return hook.is_in_file_of(line) and (line.function == hook.function or is_inner)


PLUGIN = Rule(
    "module-hooks",
    "Hooks of modules take time in each step",
    (
        "{share:share} of each step is in functions that the program registered as hooks of modules.",
        "Number of such functions, which use values without their gradients: {hooks:count}.",
    ),
    "Remove the hooks with handle.remove() when they are no longer needed, or return from them early in most steps.",
    judge,
    knock_out=KnockOut.STATEMENT,
)
