"""Which runs are told from what hooks saw."""

from __future__ import annotations

from profiler.analyse.sampling.strata import has_hooked_steps
from profiler.run.steps import add_steps
from tests.recorded.builders import MS, RunBuilder


def test_one_boundary_before_the_first_mark_leaves_a_program_marked() -> None:
    builder = RunBuilder()
    builder.boundary(1 * MS)
    assert has_hooked_steps(builder.build())
    builder.step(2 * MS, 10 * MS)
    assert not has_hooked_steps(add_steps(builder.build()))


def test_a_program_with_hooks_in_may_mark_its_steps_itself() -> None:
    builder = RunBuilder(package="/somewhere/profiler")
    builder.step(2 * MS, 10 * MS)
    assert has_hooked_steps(add_steps(builder.build()))
