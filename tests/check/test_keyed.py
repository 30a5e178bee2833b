"""What must be equal for counters to be comparable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler.check.keyed import key_of, mismatch, nearest
from profiler.run.model import Run, StepDefinition, StepKind
from tests.recorded.builders import RunBuilder

SGD_STEPS = StepDefinition(StepKind.OPTIMIZER, (("SGD (train.py:13)",),))
HOOKED: dict[str, Any] = {"package": "/opt/profiler", "torch": "2.13.0+cpu", "device": "cpu"}


def run(
    definition: StepDefinition | None = None, argv: tuple[str, ...] = ("python", "/srv/me/train.py"), **facts: Any
) -> Run:
    made = RunBuilder(**facts).build()
    return replace(made, step=definition, info=replace(made.info, argv=argv))


def test_a_hooked_program() -> None:
    assert key_of(run(SGD_STEPS, **HOOKED, world_size=2, autocast="bfloat16")) == {
        "autocast": "bfloat16",
        "device": "cpu",
        "hooks": "in",
        "program": "train.py",
        "step": "optimizer steps",
        "torch": "2.13.0",
        "world_size": "2",
    }


def test_a_program_that_says_what_it_is() -> None:
    found = key_of(
        run(StepDefinition(StepKind.MARKED), ("python", "-m", "mine.train"), preset="tiny", step="chunk", seed=0)
    )
    assert found == {"hooks": "out", "preset": "tiny", "program": "mine.train", "seed": "0", "step": "chunk"}


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (StepDefinition(StepKind.MARKED), "marked"),
        (SGD_STEPS, "optimizer steps"),
        (StepDefinition(StepKind.LOADER, (("DataLoader (train.py:9)",),), optimizer_steps=0), "batches"),
        (StepDefinition(StepKind.WHOLE_RUN, optimizer_steps=0), "the whole run as one step"),
        (None, None),
    ],
)
def test_what_a_step_is_without_its_place(step: StepDefinition | None, expected: str | None) -> None:
    assert key_of(run(step)).get("step") == expected


def test_nothing_of_the_machine_is_in_a_key() -> None:
    one, other = (run(SGD_STEPS, ("/a/python", f"{folder}/train.py"), **HOOKED) for folder in ("/srv/me", "/ci"))
    assert key_of(one) == key_of(other)
    assert not any("/" in value for value in key_of(one).values())


def test_equal_keys_match() -> None:
    key = key_of(run(**HOOKED))
    assert mismatch(key, dict(reversed(key.items()))) == ()


def test_each_difference_is_a_line_with_both_values_and_what_to_do() -> None:
    base, other = (
        key_of(run(**HOOKED)),
        key_of(run(**{**HOOKED, "torch": "2.11.0+cu130", "device": "cuda"}, compile="inductor")),
    )
    found = mismatch(base, other)
    assert [line.partition(" (")[0] for line in found] == [
        "compile: not stated in the baseline against inductor",
        "device: cpu in the baseline against cuda",
        "torch: 2.13.0 in the baseline against 2.11.0",
    ]
    assert all("--update" in line and "\n" not in line for line in found)


def test_long_and_odd_values_stay_on_their_line() -> None:
    key = key_of(run(corpus="a\nb" + "x" * 100, preset="\udcff"))
    assert key["corpus"].startswith("a bxxx")
    assert key["preset"] == "?"
    (line,) = mismatch({**key, "corpus": "other"}, key)
    assert len(line) < 200


def test_the_nearest_key_differs_in_the_fewest_parts() -> None:
    keys = [{"device": "cuda", "torch": "2.11"}, {"device": "cpu", "torch": "2.11"}, {"device": "cpu", "torch": "2.13"}]
    assert nearest(keys, {"device": "cpu", "torch": "2.12"}) == 1
    assert nearest(keys, {"device": "cuda", "torch": "2.12"}) == 0
    assert nearest(keys, keys[2]) == 2
