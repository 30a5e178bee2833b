"""Costs that are divided among the categories of a step, and the templates of rules."""

from __future__ import annotations

from pathlib import Path
from string import Formatter

import pytest

from profiler.core.plugins import discover
from profiler.diagnose import rules
from profiler.diagnose.rule import NOTHING, Cost, Rule, exactly, spread


def test_a_cost_is_spread_over_the_room_of_categories() -> None:
    room = {"python": 1.0, "compute": 3.0, "framework": -1.0}
    assert spread(Cost(2.0, 1.0, 4.0), room) == {"python": Cost(0.5, 0.25, 1.0), "compute": Cost(1.5, 0.75, 3.0)}
    assert spread(exactly(8.0), room) == {"python": exactly(1.0), "compute": exactly(3.0)}
    assert spread(NOTHING, room) == {}
    assert spread(exactly(1.0), {"python": 0.0}) == {}


@pytest.mark.parametrize("rule", discover("profiler.diagnose.rules"), ids=lambda rule: rule.name)
def test_each_value_of_a_template_is_given_by_a_rule(rule: Rule) -> None:
    """A sentence with a value that is not known is left out, so that a mistyped name would hide it for good."""
    sources = "".join(path.read_text() for path in Path(rules.__file__).parent.glob("*.py"))
    texts = " ".join((rule.title, *rule.evidence, rule.fix, *rule.fixes, rule.code))
    names = {name for _, name, _, _ in Formatter().parse(texts) if name} - {"seconds", "share", "site"}
    assert not {name for name in names if f'"{name}"' not in sources}
