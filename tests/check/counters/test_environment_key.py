"""What must be equal for counters to be comparable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler.check.counters.environment_key import (
    environment_key,
    key_differences,
    nearest_key,
    other_work,
    per_sample,
    work_of_a_step,
)
from profiler.check.outputs.text import sentence
from profiler.run.model import Run, StepDefinition, StepKind
from profiler.run.tables import BoundaryKind
from tests.fakes.counting import two
from tests.recorded.builders import RunBuilder

SGD_STEPS = StepDefinition(StepKind.OPTIMIZER, (("SGD (train.py:13)",),))
HOOKED: dict[str, Any] = {"package": "/opt/profiler", "torch": "2.13.0+cpu", "device": "cpu"}


def run(
    definition: StepDefinition | None = None, argv: tuple[str, ...] = ("python", "/srv/me/train.py"), **facts: Any
) -> Run:
    made = RunBuilder(**facts).build()
    return replace(made, step=definition, info=replace(made.info, argv=argv))


def test_the_key_of_a_hooked_and_of_a_marked_program() -> None:
    assert environment_key(run(SGD_STEPS, **HOOKED, world_size=2, autocast="bfloat16")) == {
        "autocast": "bfloat16",
        "device": "cpu",
        "hooks": "in",
        "program": "train.py",
        "step": "optimizer steps",
        "torch": "2.13",
        "world_size": "2",
    }
    marked = run(StepDefinition(StepKind.MARKED), ("python", "-m", "mine.train"), preset="tiny", step="chunk", seed=0)
    told = {"hooks": "out", "preset": "tiny", "program": "mine.train", "seed": "0", "step": "chunk"}
    assert environment_key(marked) == told, "what a program says of itself"


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
    assert environment_key(run(step)).get("step") == expected


def test_nothing_of_the_machine_is_in_a_key() -> None:
    one, other = (run(SGD_STEPS, ("/a/python", f"{folder}/train.py"), **HOOKED) for folder in ("/srv/me", "/ci"))
    assert environment_key(one) == environment_key(other)
    assert not any("/" in value for value in environment_key(one).values())


def test_each_difference_is_a_notice_with_both_values_and_the_reason() -> None:
    base = environment_key(run(**HOOKED))
    other = environment_key(run(**{**HOOKED, "torch": "2.11.0+cu130", "device": "cuda"}, compile="inductor"))
    found = key_differences(base, other, "key-differs", "baseline")
    assert {notice.code for notice in found} == {"key-differs"}
    assert [tuple(notice.values[name] for name in ("part", "base", "candidate")) for notice in found] == [
        ("compile", None, "inductor"),
        ("device", "cpu", "cuda"),
        ("torch", "2.13", "2.11"),
    ]
    assert all(notice.values["why"] and notice.values["where"] == "baseline" for notice in found)
    assert key_differences(base, dict(reversed(base.items())), "key-differs") == ()


def test_long_and_odd_values_stay_on_their_line() -> None:
    key = environment_key(run(corpus="a\nb" + "x" * 100, preset="\udcff"))
    assert key["corpus"].startswith("a bxxx")
    assert key["preset"] == "?"
    (notice,) = key_differences({**key, "corpus": "other"}, key, "key-differs")
    assert len(sentence(notice)) < 200


def test_the_nearest_key_differs_in_the_fewest_parts() -> None:
    keys = [{"device": "cuda", "torch": "2.11"}, {"device": "cpu", "torch": "2.11"}, {"device": "cpu", "torch": "2.13"}]
    assert nearest_key(keys, {"device": "cpu", "torch": "2.12"}) == 1
    assert nearest_key(keys, {"device": "cuda", "torch": "2.12"}) == 0
    assert nearest_key(keys, keys[2]) == 2


def trained(batches: int, elements: int = 100, batch_size: int = 32, *, by_turns: bool = False) -> Run:
    """A run with so many batches in each of three steps, or in every second one, and with a validation in a fourth."""
    facts = {"loaders": {"L": {"batch_size": batch_size}}, "optimizers": [{"elements": elements}]}
    builder = RunBuilder(**HOOKED, **facts)
    for step in range(4):
        builder.step(step * 100, step * 100 + 100)
        number = 0 if by_turns and step % 2 else batches
        for batch in range(number if step < 3 else 40):
            builder.boundary(step * 100 + 1 + batch, BoundaryKind.LOADER, name="L")
        builder.boundary(step * 100 + 100)
    return replace(builder.build(), step=SGD_STEPS)


def test_the_work_of_a_step_is_its_batches_their_size_and_the_model() -> None:
    assert work_of_a_step(trained(2)) == {"batch_size": "32", "accumulation": "2", "parameters": "100"}
    assert "accumulation" not in work_of_a_step(trained(1, by_turns=True)), "it would depend on where the window begins"
    assert work_of_a_step(run(SGD_STEPS)) == {}


def test_work_differs_only_in_what_both_sides_know() -> None:
    base = work_of_a_step(trained(1))
    assert other_work(base, base) == ()
    assert other_work(base, {}) == other_work({}, base) == ()
    found = other_work(base, work_of_a_step(trained(2, 109, 64)), "baseline")
    assert [(notice.code, notice.values["part"], notice.values["where"]) for notice in found] == [
        ("work-differs", part, "baseline") for part in ("batch_size", "accumulation", "parameters")
    ]
    assert other_work({"torch": "2.12"}, {"torch": "2.13"}) == (), "that is another environment"


def test_counts_per_sample_where_loaders_tell_the_batch() -> None:
    (notice,) = per_sample(two(syncs=20.0, batch_items=640.0), two(syncs=20.0, batch_items=1280.0))
    assert sentence(notice) == "Per sample, before and now: 0.0312 and 0.0156 syncs."
    assert per_sample(two(syncs=20.0), two(syncs=20.0)) == ()
    with_evaluation = two(syncs=20.0, batch_items=640.0, evaluation_number=1.0)
    assert per_sample(with_evaluation, two(syncs=20.0, batch_items=1280.0)) == (), "its samples are no step's"
