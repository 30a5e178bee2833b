"""Lines at which torch.compile ends one graph and begins another."""

from __future__ import annotations

from profiler.analyse.finding import Confidence
from profiler.diagnose.rule import Rule, RunClaim, StepCosts, largest_sites
from profiler.run.model import Site


def judge(costs: StepCosts) -> RunClaim | None:
    """The graph breaks of compiled code. What they cost is not known: a compiler would fuse across them, and how much
    that saves depends on the device."""
    breaks = costs.fact("graph_breaks") or ()
    if not breaks or not costs.fact("compile"):
        return None
    sites = [Site.from_fact(line) for line in breaks]
    return RunClaim(sites=largest_sites(sites), values={"breaks": len(sites)}, confidence=Confidence.MEDIUM)


PLUGIN = Rule(
    "graph-breaks",
    "torch.compile cannot put the model into one graph",
    (
        "Lines at which it ends a graph: {breaks:count}.",
        "What lies between two graphs runs in Python, and nothing is fused across it.",
    ),
    "Take reads of values, prints and branches on tensors out of the compiled code; fullgraph=True tells the reason.",
    judge,
    code="torch.compile(model, fullgraph=True)",
    threshold_source="One line is told. What it costs is not known.",
)
