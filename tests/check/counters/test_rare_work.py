"""What evaluations, checkpoints and work that occurs once count is no part of the counts of steps."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from profiler.check.counters.baseline import as_processes, read, section_from, write
from profiler.check.counters.compare import compare, overall
from profiler.check.counters.counted import counted
from profiler.check.model import FAIL, PASS, Counted, CountedLine, CounterLine, Limits
from profiler.run.model import Run
from profiler.run.tables import CallKind, CountKind, StageKind
from tests.fakes.planted import Gate, count_on_cpu
from tests.recorded.builders import MS, RunBuilder

SAVING = """\
import io
import torch

SEED = 0
torch.manual_seed(SEED)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
held_out = torch.randn(16, 8)
best = 1e9


def save(loss):
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    norm = sum(value.square().sum() for value in state.values())
    torch.save([state, norm], io.BytesIO())


def evaluate():
    global best
    model.eval()
    with torch.no_grad():
        loss = model(held_out).square().mean()
        value = loss.item()
    if value < best:
        best = value
        save(loss)
    model.train()


def step(number):
    loss = (model(torch.randn(4, 8)) - torch.randn(4, 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number % 2 == 0:
        evaluate()
    if number % 5 == 0:
        loss.item()
"""
STEPS = 20
SEEDS = range(5)


def count_seed(seed: int, folder: Path, text: str = SAVING) -> Counted:
    return count_on_cpu(text.replace("SEED = 0", f"SEED = {seed}"), "train.py", folder, steps=STEPS)


def judged(base: Counted, candidate: Counted) -> dict[str, CounterLine]:
    return {line.counter: line for line in compare([base], [candidate], Limits())}


def test_a_trainer_that_saves_when_its_loss_improves_counts_the_same_with_each_seed(tmp_path: Path) -> None:
    found = [count_seed(seed, tmp_path) for seed in SEEDS]
    numbers = {each.totals["checkpoint_number"] for each in found}
    assert len(numbers) > 1, "the losses decide how many checkpoints there are"
    apart = {"checkpoint_number"}
    for base in found:
        for candidate in found:
            assert overall(compare([base], [candidate], Limits())) == PASS
        assert {name: base.totals[name] for name in base.totals if name not in apart} == {
            name: amount for name, amount in found[0].totals.items() if name not in apart
        }
    totals = {name: amount / STEPS for name, amount in found[0].totals.items()}
    assert totals["syncs"] == 4 / STEPS, "steps 5, 10, 15 and 20 read their loss"
    assert totals["evaluation_syncs"] == 1
    assert totals["evaluation_number"] == 0.5
    assert totals["checkpoint_operators"] == 4 + 4 + 4 + 4, "a clone, a square and two sums for each parameter"


@pytest.mark.parametrize(
    ("line", "counter"),
    [
        ("    torch.save(", "checkpoint_syncs"),
        ("    state = {", "checkpoint_syncs"),
        ("        value = loss.item()", "evaluation_syncs"),
        ("    loss.backward()", "syncs"),
    ],
)
def test_a_read_that_is_planted_into_them_fails_whatever_the_seed(tmp_path: Path, line: str, counter: str) -> None:
    gate = Gate(tmp_path, SAVING, partial(count_on_cpu, steps=STEPS))
    at = next(number for number, text in enumerate(SAVING.splitlines()) if text.startswith(line))
    lines = SAVING.replace("SEED = 0", "SEED = 3").splitlines()
    indent = len(line) - len(line.lstrip())
    lines.insert(at, " " * indent + "loss.sum().item()")
    found = {each.counter: each for each in gate.judge("\n".join(lines) + "\n")}
    assert found[counter].state == FAIL
    assert [change.line for change in found[counter].changes] == [at + 1]
    assert {name for name, each in found.items() if each.state == FAIL and name.endswith("syncs")} == {counter}


def test_a_checkpoint_that_only_one_side_makes_does_not_fail_but_one_in_each_step_does(tmp_path: Path) -> None:
    saving = count_seed(0, tmp_path)
    without = count_seed(0, tmp_path, SAVING.replace("if value < best", "if value < 0"))
    assert {state for line in judged(without, saving).values() if (state := line.state) != PASS} == set()
    each = count_seed(0, tmp_path, SAVING.replace("        evaluate()", "        evaluate()\n    save(loss)"))
    assert judged(without, each)["checkpoint_number"].state == FAIL
    assert judged(each, each)["checkpoint_number"].state == PASS


def test_checkpoints_at_other_lines_are_not_compared(tmp_path: Path) -> None:
    gate = Gate(tmp_path, SAVING, partial(count_on_cpu, steps=STEPS))
    twice = SAVING.replace(
        "if number % 5", "if number == 7:\n        torch.save(model, io.BytesIO())\n    if number % 5"
    )
    lines = {each.counter: each for each in gate.judge(twice)}
    assert lines["checkpoint_operators"].reasons[0].code == "other-checkpoints"
    assert overall(tuple(lines.values())) == PASS


def test_a_function_that_runs_a_model_before_it_saves_evaluates_whatever_else_it_reads(tmp_path: Path) -> None:
    """What its lines count belongs to the evaluation, also where none of them counts in other steps any more."""
    reported = """\
def predict(data):
    return model(data)


def report(number, loss):
    if number % 2 == 0:
        loss.item()
    if number % 5 == 0:
        model.eval()
        with torch.no_grad():
            sizes = held_out.abs()
            value = predict(sizes).mean()
            print(value.item())
        torch.save(model.state_dict(), io.BytesIO())
        model.train()


def step("""
    calls = "    optimizer.step()\n    report(number, loss)\n"
    text = (
        SAVING.partition("    if number % 2")[0].replace("def step(", reported).replace("    optimizer.step()\n", calls)
    )
    read = "    if number % 2 == 0:\n        loss.item()\n"
    gate = Gate(tmp_path, text, partial(count_on_cpu, steps=STEPS))
    lines = {each.counter: each for each in gate.judge(text.replace(read, "").replace(calls, f"{calls}{read}"))}
    assert overall(line for name, line in lines.items() if name.startswith(("evaluation", "checkpoint"))) == PASS
    assert lines["evaluation_syncs"].after == (1.0, 1.0)


EVALUATING = """\
def evaluate():
    model.eval()
    with torch.no_grad():
        loss = model(held_out).square().mean()
    model.train()
    return loss


def evaluate_and_save():
    global best
    loss = evaluate()
    if loss >= best:
        return
    best = loss
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    with io.BytesIO() as file:
        torch.save(state, file)


def step("""


@pytest.mark.parametrize("every", [1, 7])
def test_a_function_that_evaluates_and_then_saves_counts_the_same_with_each_seed(every: int, tmp_path: Path) -> None:
    """With a call in every 7th step all calls save with some seeds, and none with others."""
    head, _, tail = SAVING.partition("def save")
    text = head + EVALUATING + tail.partition("def step(")[2].replace("% 2 == 0", f"% {every} == 0")
    found = [
        count_seed(seed, tmp_path, text.replace("        evaluate()", "        evaluate_and_save()")) for seed in SEEDS
    ]
    assert len({each.totals.get("checkpoint_number", 0) for each in found}) > 1
    for base in found:
        for candidate in found:
            assert overall(compare([base], [candidate], Limits())) == PASS
        for name in ("operators", "syncs", "allocated_bytes", "evaluation_operators", "evaluation_number"):
            assert base.totals[name] == found[0].totals[name]
    saved = next(each for each in found if each.totals.get("checkpoint_number"))
    assert saved.totals["checkpoint_operators"] == 4 * STEPS, "a clone for each parameter"


def test_a_file_keeps_what_is_counted_apart(tmp_path: Path) -> None:
    found, path = count_seed(1, tmp_path), tmp_path / "b.json"
    write(path, section_from([found], RunBuilder(argv=["train.py"]).build(), "python train.py"))
    (base, _) = as_processes(read(path))
    other = judged(base, count_seed(2, tmp_path))
    assert {line.state for line in other.values()} == {PASS}
    assert {"evaluation_number", "checkpoint_operators", "checkpoint_number"} <= set(other)
    assert other["checkpoint_number"].reasons[0].code == "how-many"


# ---------------------------------------------------------------- made-up runs


def stepped(**facts: object) -> RunBuilder:
    builder = RunBuilder(package="/profiler", device="cuda", **facts)  # type: ignore[arg-type]
    builder.steps(10, 10 * MS)
    for number in range(10):
        builder.counter("syncs", 1, step=number)
        at = number * 10 * MS + MS
        builder.named_call(CallKind.SYNC, "item", at, at, site="train.py:5:main")
    return builder


def with_evaluation(builder: RunBuilder, begin: int) -> Run:
    """One wait more in the fourth step, 2 ms after `begin`, in which a module is in evaluation mode for 4 ms."""
    builder.stage(StageKind.EVAL_MODE, begin, object_id=7)
    builder.stage(StageKind.TRAIN_MODE, begin + 4 * MS, object_id=7)
    builder.counter("syncs", 1, step=3)
    builder.named_call(CallKind.SYNC, "item", begin + 2 * MS, begin + 2 * MS, site="train.py:9:evaluate")
    return builder.build()


def test_so_it_is_where_only_waits_are_counted() -> None:
    found = counted(with_evaluation(stepped(), 33 * MS), None)
    assert (found.totals["syncs"], found.totals["evaluation_syncs"] / 10) == (10.0, 1.0)
    assert found.lines[CountedLine("evaluation_syncs", "train.py", 9, "evaluate", "item")] == 10.0
    trained = stepped()
    trained.region("backward", 34 * MS, 35 * MS)
    found = counted(with_evaluation(trained, 33 * MS), None)
    assert found.totals["syncs"] == 11.0, "a part of a model that is not trained now"
    assert "evaluation_number" not in found.totals


def test_work_without_gradients_is_an_evaluation_unless_most_steps_do_it() -> None:
    for steps, syncs in ((range(0, 10, 5), 10.0), (range(10), 20.0)):
        builder = stepped(counted=True)
        for number in range(10) if syncs == 20 else steps:
            begin = number * 10 * MS + 4 * MS
            builder.stage(StageKind.NO_GRAD, begin, begin + 2 * MS, object_id=number)
            builder.count(begin + MS, CountKind.FLOPS, "aten::mm", 64, site="train.py:8:main")
            builder.counter("syncs", 1, step=number)
            builder.named_call(CallKind.SYNC, "item", begin + MS, begin + MS, site="train.py:8:main")
        totals = counted(builder.build(), None).totals
        assert (totals["syncs"], totals.get("evaluation_number", 0.0)) == (syncs, 20.0 - syncs and 2.0)


def test_what_an_import_counts_occurs_once() -> None:
    builder = stepped(counted=True)
    for number in range(10):
        builder.count(number * 10 * MS + MS, CountKind.OPERATOR, "aten::mm", 2, site="train.py:6:<module>")
    builder.count(42 * MS, CountKind.OPERATOR, "aten::arange", 5, site="plots.py:3:<module>")
    run = builder.build()
    found = counted(run, None)
    assert (found.totals["operators"], found.totals["once_operators"] / 10) == (20.0, 5.0)
    source = tuple(replace(site, source="import plots") if site.line == 6 else site for site in run.sites)
    found = counted(replace(run, sites=source), None)
    assert (found.totals["operators"], found.totals["once_operators"] / 10) == (0.0, 25.0)
