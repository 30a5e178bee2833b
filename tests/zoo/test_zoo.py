"""Training scripts that know nothing of us run as ever, and their runs say what their steps are."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.report.text import step_text
from tests.zoo.zoo import ZOO, Animal, Recorded, recorded, shapes


@pytest.fixture(
    scope="module",
    params=[pytest.param(one, id=one.name, marks=() if one.quick else pytest.mark.slow) for one in ZOO],
)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    animal: Animal = request.param
    return recorded(animal, animal.few, tmp_path_factory.mktemp(animal.name))


def test_the_program_does_what_it_did(kept: Recorded) -> None:
    assert kept.bare_exit == kept.animal.exit_code
    assert kept.bare
    known = set(kept.bare)
    assert tuple(line for line in kept.with_us if line in known) == kept.bare


def test_it_says_nothing_more_and_nothing_less(kept: Recorded) -> None:
    """On both of its outputs: no warning of ours or about us, and none of its own is lost."""
    with_us, bare = shapes(kept.with_us), shapes((*kept.bare, *kept.bare_errors))
    assert (sorted(with_us - bare), sorted(bare - with_us)) == ([], [])


def test_its_steps_are_found_and_named(kept: Recorded) -> None:
    found = np.unique(kept.run.steps["pid"], return_counts=True)[1].tolist()
    assert found == [kept.steps - kept.animal.short] * kept.animal.sources
    assert kept.animal.source in step_text(kept.run.step)


def test_the_run_is_whole(kept: Recorded) -> None:
    run = kept.run
    assert run.problems == ()
    states = [(status.name, status.state) for status in run.info.collectors]
    assert {("hooks", "ok"), ("stacks", "ok")} <= set(states), run.info.collectors
    assert "failed" not in dict(map(reversed, states)), run.info.collectors
    names = {run.names[number] for number in run.regions["name"].tolist()}
    assert names.issuperset(kept.animal.regions), names
