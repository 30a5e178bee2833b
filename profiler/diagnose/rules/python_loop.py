"""Recognizes Python code of the training loop of which no other rule knows what it is for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.core.notice import Notice
from profiler.core.syntax import called_functions
from profiler.diagnose.rule import NOTHING, Claim, Cost, Rule, StepCosts
from profiler.diagnose.rules._frames import frame_costs, lines_in_deep_copies
from profiler.diagnose.rules._input import prepared_costs
from profiler.diagnose.rules._metrics import metric_lines
from profiler.diagnose.rules._operators import called_from, small_operators
from profiler.diagnose.run import hides_waits
from profiler.run.model import Site

_MOST_OF_STEP: Final = 0.5
"""Share of a step at a line from which it may be a library that runs the whole loop there. A choice."""
_ENVIRONMENTS: Final = ("gymnasium/", "gym/", "pettingzoo/", "dm_control/")
"""Folders of libraries that simulate environments."""
_ARRAYS: Final = frozenset(("np", "numpy", "pd", "pandas", "scipy", "cv2", "sklearn"))
"""Names under which programs commonly import libraries that compute with arrays."""
_NEARLY_ALL: Final = 0.9
"""Share of that line's time in one function of a library. A choice: `trainer.fit()` has all of it there."""
_MOSTLY: Final = 0.5
"""Share of a line that is Python from which it is a line of Python, or that is in an environment; of Python that is
another cause. A choice."""


def judge(costs: StepCosts) -> Claim | Notice | None:
    """The Python that other rules leave, but that of lines which call small operators, or make batches, with it."""
    if not costs.has_queue and hides_waits(costs.analysis):
        return Notice("python-or-device-wait")
    python, calling, prepared = costs.cost("python"), small_operators(costs), prepared_costs(costs)
    called = called_from(calling, "python").get("python", NOTHING).seconds
    called += prepared.get("python", NOTHING).seconds
    if python.seconds <= called:
        return None
    sites = costs.sites("python")  # without a line it is spread over libraries, and no loop can be replaced
    preparation = costs.analysis.preparation
    made = preparation.lines if preparation and prepared else ()
    told = {*made, *lines_in_deep_copies(costs), *(line.site for line in metric_lines(costs)[0]), *costs.sites("input")}
    known = {*calling, *told}  # lines of which another rule knows what they do
    others = tuple(site for site in sites if site not in known) or costs.line_sites("python", told)
    claimed = {"python": python.part(1.0 - called / python.seconds)}
    if computing := _computing_of_loops(costs, known):
        claimed["compute"] = computing
    has_gain = any(not _is_of_library(costs, site) for site in sites)
    named = others or sites
    return Claim(claimed, named, {"called": _array_function(named)}, has_gain=has_gain)


def _array_function(sites: Sequence[Site]) -> str | None:
    """The function of a library for arrays that the first line calls, which loops over no elements itself."""
    names = called_functions(sites[0].source) if sites else []
    return next((name for name in names if name.partition(".")[0] in _ARRAYS), None)


def _computing_of_loops(costs: StepCosts, others: Collection[Site]) -> Cost | None:
    """What seems to be computing at lines of Python that call hardly any operator. Whether a sample was Python is known
    only from those of the GIL's holder, for all lines together.

    Nothing where most of Python's time is collecting garbage, at lines that are not known.

    :param others: lines of which another rule knows what they do.
    """
    if costs.has_queue or costs.collecting >= _MOSTLY * costs.cost("python").seconds:
        return None
    lines = [
        replace(line, categories={"compute": line.categories["compute"]})
        for line in costs.analysis.lines
        if line.site not in others
        and "compute" in line.categories
        and line.categories.get("python", 0.0) >= _MOSTLY * line.active
        and line.is_outside_torch
    ]
    return frame_costs(tuple(lines)).get("compute")


def _is_of_library(costs: StepCosts, site: Site) -> bool:
    """Whether a line starts the loop of a library, such as `trainer.fit()`, or steps an environment that a library
    simulates: that Python is not the program's."""
    line = next((line for line in costs.analysis.lines if line.site == site), None)
    if line is None:
        return False
    folders, least = ("", _NEARLY_ALL) if line.share >= _MOST_OF_STEP else (_ENVIRONMENTS, _MOSTLY)
    below = (
        each.below.seconds_per_step
        for each in costs.analysis.library
        if each.below.site == site and each.file.startswith(folders)
    )
    return max(below, default=0.0) >= least * line.seconds_per_step


PLUGIN = Rule(
    "python-loop",
    "Python code of the training loop takes time",
    ("{share:share} of each step is Python, much of it in {site:function}.",),
    "Replace loops over elements by operators on whole tensors, or do the work less often, or outside of the step.",
    judge,
    fixes=("Do {called}() less often, or outside of the step.",),
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
