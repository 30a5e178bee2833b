"""Estimates which part of the time in which a thread had no core was caused by CPU quotas."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Throttling:
    """The part of a thread's run delay that CPU quotas caused, as a share of the delay with its bounds."""

    share: float = 0.0
    low: float = 0.0
    high: float = 0.0


def estimate_throttling(throttled: float, delay: float, all_delays: float) -> Throttling:
    """Estimate the share of a thread's run delay that quotas caused; all arguments are of one unit of time.

    The kernel counts throttled time for a whole control group, summed over cores. Its threads share it in proportion to
    their delays. What the delays of all threads exceed it by may be any thread's, which gives the bounds.

    :param throttled: of the group.
    :param delay: of the thread.
    :param all_delays: of all threads of the program.
    """
    if not delay or not throttled:
        return Throttling()
    all_delays = max(all_delays, delay)
    high = min(1.0, throttled / delay)
    low = max(0.0, delay - max(0.0, all_delays - throttled)) / delay
    return Throttling(min(1.0, throttled / all_delays), min(low, high), high)
