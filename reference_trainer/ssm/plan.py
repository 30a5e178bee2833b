"""Which way each part of a job and of the sweep is done: a plan is the illness, a fix changes one part of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """The choices; the defaults are as found."""

    device_data: bool = False
    """False: made on the host in fp64 and moved | True: made where it is used, in fp32"""
    recurrence: str = "loop"
    """loop: a Python loop over time, of mixed dtypes | measured: the way that is fastest at these sizes"""
    batched_draws: bool = False
    """False: one guess is drawn and checked at a time | True: many, and one wait for all of them"""
    quiet: bool = False
    """False: every report writes whole tensors | True: first values, at intervals"""
    batched_seeds: bool = False
    """False: a seed at a time | True: all seeds of a combination are one batch dimension"""
    flat: bool = False
    """False: one job after another | True: all of them go into one pool of workers"""
