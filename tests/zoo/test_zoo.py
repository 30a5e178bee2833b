"""Training scripts of many styles, unmodified: recording changes nothing of what they do, and finds their steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profiler.report.text import step_text
from tests.zoo.zoo import EXACT, ZOO, Animal, record_beside_bare_run, shapes


@pytest.mark.parametrize(
    "animal",
    [pytest.param(animal, id=animal.name, marks=() if animal.quick else pytest.mark.slow) for animal in (*ZOO, *EXACT)],
)
def test_a_recorded_script_does_what_it_did_and_its_steps_are_found(animal: Animal, tmp_path: Path) -> None:
    result = record_beside_bare_run(animal, animal.few, tmp_path)
    run = result.run

    assert result.bare_exit == animal.exit_code
    assert result.bare
    lines = set(result.bare)
    assert tuple(line for line in result.output if line in lines) == result.bare
    recorded, bare = shapes(result.output), shapes((*result.bare, *result.bare_errors))
    assert (sorted(recorded - bare), sorted(bare - recorded)) == ([], []), "a line of output was added or lost"

    steps = np.unique(run.steps["pid"], return_counts=True)[1].tolist()
    assert steps == [result.steps - animal.short] * animal.sources
    assert animal.source in step_text(run.step)

    assert run.problems == ()
    is_light = animal.level == "light"
    states = {status.name: status.state for status in run.info.collectors}
    assert (states["hooks"], states.get("stacks", "off")) == ("ok", "off" if is_light else "ok"), run.info.collectors
    assert "failed" not in states.values(), run.info.collectors
    assert run.info.facts["device"] == "cpu"
    assert run.info.facts["torch"]
    regions = {run.names[number] for number in run.regions["name"].tolist()}
    assert regions.issuperset(animal.regions), regions
    assert not (is_light and regions)
