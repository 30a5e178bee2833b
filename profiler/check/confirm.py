"""Whether fresh rounds, with the programs started in the other order and a control beside them, bear a FAIL out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profiler.check.sequential import Edges, bounds

LOOKS: Final = (2, 3, 5, 8)
"""Rounds that confirm after which one looks; the last one decides."""
ALPHA: Final = 0.15
"""Of the rounds that confirm, by themselves: they are a second, independent hurdle behind the first."""

CONTROL_ALPHA: Final = 0.2
"""Of the control: a method that finds the base slower than itself is sooner distrusted than believed."""

Against = tuple[float, float | None]
"""Log slow-down of the candidate, and of the control, in a round; None: the control took too few turns."""


def confirmed(
    suspecting: Sequence[float],
    confirming: Sequence[Against],
    at: Edges,
    *,
    errors: Sequence[float] = (),
    last: bool = False,
) -> bool | None:
    """Whether a suspected FAIL is one; None: another round must say.

    It is where three things hold: the rounds that confirm are above the edge by themselves, all rounds together are,
    and the control is not.

    :param suspecting: values of the rounds that the FAIL is suspected in.
    :param confirming: of the rounds that confirm, in their order.
    :param errors: of single rounds, from what is inside of them (`bounds`).
    :param last: there will be no more: what there is may be looked at once more.
    """
    reached = {look for look in LOOKS if look <= len(confirming)}
    if last and LOOKS[0] < len(confirming) < LOOKS[-1]:
        reached.add(len(confirming))
    for look in sorted(reached):
        if _agree(suspecting, confirming[:look], at, errors):
            return True
    return False if len(confirming) >= LOOKS[-1] else None


def _agree(suspecting: Sequence[float], confirming: Sequence[Against], at: Edges, errors: Sequence[float]) -> bool:
    control = [control for _, control in confirming if control is not None]
    if len(control) < len(confirming) or bounds(control, CONTROL_ALPHA).low > at.fails:
        return False
    alone = bounds([against_both(one) for one in confirming], ALPHA)
    together = bounds([*suspecting, *(candidate for candidate, _ in confirming)], errors=errors)
    return alone.low > at.fails and together.low > at.fails


def against_both(one: Against) -> float:
    """The candidate against the mean of the base and its control: a program less whose luck counts in full."""
    candidate, control = one
    return candidate - (control or 0.0) / 2
