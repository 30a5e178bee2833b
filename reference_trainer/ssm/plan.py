"""The choices of a job and of the sweep, and the fixes that change them: the defaults are the slow program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reference_trainer.fixes import Fix, FixSet


@dataclass(frozen=True, slots=True)
class Plan:
    """The choices; the defaults are the as-found program."""

    device_data: bool = False
    """False: data is made on the host in fp64 and copied | True: data is made where it is used, in fp32"""
    recurrence: str = "loop"
    """loop: a Python loop over time with mixed dtypes | scan: one kernel in fp32"""
    batched_draws: bool = False
    """False: one guess is drawn and checked at a time | True: many are drawn and checked together, with one wait"""
    quiet: bool = False
    """False: every report writes whole tensors | True: fewer and fewer reports write the first values of tensors"""
    batched_seeds: bool = False
    """False: one seed is fitted at a time | True: all seeds of a combination form a batch dimension"""
    flat: bool = False
    """False: jobs run one after another | True: all jobs go into one pool of workers"""


# In the order of the ladder.
FIXES: Final = (
    Fix(
        name="device-data",
        code=("ssm/draws.py", "ssm/kernels/fill.py"),
        removes="measurements and first parameters that are drawn on the host in fp64 and copied",
        rule="inline-input",
        changes={"device_data": True},
    ),
    Fix(
        name="fused-recurrence",
        code=("ssm/forward.py", "ssm/kernels/scan.py"),
        removes="a Python loop over time: several launches, and new tensors of mixed dtypes, per time step",
        rule="many-small-operators",
        changes={"recurrence": "scan"},
    ),
    Fix(
        name="batched-draws",
        code=("ssm/guess_and_check.py",),
        removes="a draw, a forward pass and a wait for every single guess",
        rule="per-element-reads",
        changes={"batched_draws": True},
        rule_left_out="python-loop",
    ),
    Fix(
        name="quiet-logging",
        code=("ssm/report_log.py",),
        removes="whole tensors that are fetched and written at every report",
        rule="logging-in-loop",
        changes={"quiet": True},
    ),
    Fix(
        name="batched-seeds",
        code=("ssm/group_work.py", "ssm/gradient_descent.py"),
        removes="a separate fit for every seed: small operations, each with the cost of a launch",
        rule="many-small-operators",
        changes={"batched_seeds": True},
    ),
    Fix(
        name="flat-sweep",
        code=("ssm/sweep.py",),
        removes="jobs that wait for each other: one process does one after another, whatever else is idle",
        rule="",
        changes={"flat": True},
    ),
)
_FIX_SET: Final = FixSet(FIXES, Plan())
fixes, plan, variant_fixes, listing = _FIX_SET.fixes, _FIX_SET.plan, _FIX_SET.variant_fixes, _FIX_SET.listing
