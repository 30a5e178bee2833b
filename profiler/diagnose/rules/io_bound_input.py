"""Batches whose making mostly waits for files or for the network."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.input import diagnose_input
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._input import SLOW, input_sites, input_wait, loader_values, made_parts
from profiler.diagnose.rules._workers import quota_step_time


def judge(costs: StepCosts) -> Claim | None:
    """The part of the loader's time that waits for files and sockets."""
    found = diagnose_input(costs.analysis)
    waits = input_wait(costs)
    if found is None or found.advice not in SLOW or not waits:
        return None
    parts, made = made_parts(costs, found)
    values = {
        **loader_values(costs),
        "made": found.made_seconds,
        "files": found.use.file_wait or None,
        "sockets": found.use.socket_wait or None,
    }
    cost = made.part(waits)
    remaining = max(0.0, quota_step_time(costs) - costs.active + cost.seconds)
    # the rest of a read, which copies the data, is not known
    return Claim({"input": cost}, input_sites(costs, parts), values, remaining, is_least=True)


PLUGIN = Rule(
    "io-bound-input",
    "Making batches mostly waits for files or for the network",
    (
        "Making a batch takes {made:time}.",
        "Of that time, {files:share} is a wait for files.",
        "Of that time, {sockets:share} is a wait for data from a socket.",
    ),
    "Keep the data in memory or on a local disk, read it in fewer and larger pieces, or let more workers read beside "
    "each other: those that wait need no core.",
    judge,
    threshold_source="Half of the time of a batch, as for slow items. Sampled in the system calls of the threads that "
    "make batches.",
    is_alternative=True,
    knock_out=KnockOut.SETTINGS,
    settings={"replay": True},
)
