"""Skipped statements: which one is chosen for a line, what is refused, and what the changed program computes."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from profiler.knockout.source import ChangedSource, skip_lines, stop_threads_at

LOOP = """
'''A program.'''
from __future__ import annotations
calls = []
def slow(step):
    calls.append(step)
    total = 0
    for number in range(3):
        for other in range(2):
            total += number * other
    return total
class Loss:
    def backward(self):
        calls.append('backward')
for epoch in range(2):
    for step in range(4):
        value = slow(step)
        if step % 2 == 0:
            calls.append('log')
        loss = Loss()
        loss.backward()
        if step > 10:
            break
"""


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def skipped(part: str, source: str = LOOP, *, only_line: bool = False) -> ChangedSource:
    text = dedent(source)
    return skip_lines(text, [line_of(text, part)], "train.py", only_line=only_line)


def run(changed: ChangedSource, **names: Any) -> dict[str, Any]:
    variables: dict[str, Any] = {"__name__": "program", **names}
    exec(compile(changed.text, "train.py", "exec"), variables)
    return variables


def test_a_statement_is_executed_once_and_its_value_stays() -> None:
    changed = skipped("value = slow")
    assert [(line.line, line.source) for line in changed.skipped] == [(17, "value = slow(step)")]
    result = run(changed)
    assert [call for call in result["calls"] if isinstance(call, int)] == [0]
    assert result["value"] == 3
    assert result["calls"].count("backward") == 8, "the rest of the loop goes on"


def test_a_rare_statement_is_skipped_within_its_condition() -> None:
    result = run(skipped("calls.append('log')"))
    assert result["calls"].count("log") == 1
    assert result["calls"].count("backward") == 8


def test_the_outermost_loop_that_does_not_train_is_skipped_as_a_whole() -> None:
    changed = skipped("total += number")
    assert [line.source for line in changed.skipped] == ["for number in range(3):"]
    assert run(changed)["value"] == 0, "the name that is assigned before the loop is not restored"


def test_a_name_that_only_the_skipped_statement_assigns_keeps_its_first_value() -> None:
    source = """
    made = []
    def step(number):
        batch = [number, made.append(number)]
        return batch[0]
    values = [step(number) for number in range(5)]
    """
    result = run(skipped("batch = [", source))
    assert result["values"] == [0] * 5
    assert result["made"] == [0]


def test_the_value_of_a_return_is_made_once() -> None:
    source = """
    made = []
    def item(number):
        return number, made.append(number)
    values = [item(number)[0] for number in range(5)]
    """
    result = run(skipped("return number", source))
    assert (result["values"], result["made"]) == ([0] * 5, [0])


VALUE = """
class Value:
    def __init__(self, grad_fn):
        self.grad_fn = grad_fn
rows = []
def note(value):
    rows.append(value)
    return value
def spread(values, grad_fn=None):
    'Text.'
    total = 0
    for value in values:
        total += note(value)
    if total > 100:
        return None
    return Value(grad_fn)
for step in range(4):
    result = spread([step, step], GRAPH)
"""


def test_a_function_that_only_computes_a_value_is_called_once() -> None:
    changed = skipped("total += note", VALUE)
    assert [line.source for line in changed.skipped] == ["def spread(values, grad_fn=None):", "for value in values:"]
    result = run(changed, GRAPH=None)
    assert result["rows"] == [0, 0]
    assert isinstance(result["result"], result["Value"])
    assert result["spread"].__doc__ == "Text."


def test_gradients_through_the_value_of_a_function_leave_only_the_statement_out() -> None:
    result = run(skipped("total += note", VALUE), GRAPH="graph")
    assert result["rows"] == [0, 0], "the loop is executed once, and a new value is made in each step"
    assert result["result"].grad_fn == "graph"


def test_a_function_that_does_other_things_is_not_skipped_as_a_whole() -> None:
    changed = skipped("total += note", VALUE.replace("    total = 0\n", "    total = 0\n    print()\n"))
    assert [line.source for line in changed.skipped] == ["for value in values:"]


@pytest.mark.parametrize(
    "effect", ["self.count += 1", "values[0] = 1", "del values[0]", "for _ in values: print()", "global last"]
)
def test_a_function_that_changes_something_is_not_skipped_as_a_whole(effect: str) -> None:
    source = f"""
    def step(self, values):
        {effect}
        reward = values[0].item()
        return reward
    """
    assert [line.source for line in skipped("reward =", source).skipped] == ["reward = values[0].item()"]


def test_the_variables_of_a_comprehension_are_not_assigned_by_the_statement() -> None:
    source = """
    number = 7
    def step(count):
        last = [number for number in range(count)]
        return last, number
    values = [step(count) for count in (1, 2)]
    """
    assert run(skipped("last =", source, only_line=True))["values"] == [([0], 7), ([0], 7)]


def test_a_form_feed_does_not_end_a_line() -> None:
    changed = skip_lines("x = 0\n\f\nfor step in range(2):\n    x = step\n", [4], "train.py", only_line=True)
    assert [(line.line, line.end, line.source) for line in changed.skipped] == [(4, 4, "x = step")]


def test_of_a_line_only_the_innermost_statement_is_skipped() -> None:
    source = """
    calls = []
    def play(number):
        for turn in range(3):
            calls.append('policy')
            calls.append('read')
        return number
    for step in range(2):
        play(step)
    """
    assert [line.source for line in skipped("'read'", source).skipped] == ["for turn in range(3):"]
    changed = skipped("'read'", source, only_line=True)
    assert run(changed)["calls"] == ["policy", "read", *["policy"] * 5]
    value = skipped("reward =", "def step(x):\n    reward = x.item()\n    return reward\n", only_line=True)
    assert [line.source for line in value.skipped] == ["reward = x.item()"]


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("loss.backward()", "training"),
        ("for step in range(4)", "training"),
        ("break", "leaves"),
        ("def slow", "definition"),
        ("from __future__", "definition"),
        ("calls = []", "no-loop"),
        ("if step > 10", "leaves"),
    ],
)
def test_what_cannot_be_skipped_is_refused(part: str, code: str) -> None:
    changed = skipped(part)
    assert [(reason.code, reason.values["file"]) for reason in changed.refusals] == [(code, "train.py")]
    assert not changed.skipped


def test_generators_and_functions_that_train_are_refused() -> None:
    source = """
    def batches():
        while True:
            yield 1
    def fit(loss):
        loss.backward()
    def train(loss):
        for epoch in range(3):
            fit(loss)
    """
    assert skipped("yield 1", source).refusals[0].code == "leaves"
    assert skipped("fit(loss)\n".strip(), source.replace("def fit(loss)", "def fit(a)")).refusals[0].code == "training"
    assert skipped("for epoch", source).refusals[0].code == "training"


def test_several_lines_and_files_have_numbers_of_their_own() -> None:
    text = dedent(LOOP)
    lines = [line_of(text, "value = slow"), line_of(text, "calls.append('log')"), line_of(text, "value = slow")]
    changed = skip_lines(text, lines, "train.py", first=3)
    assert len(changed.skipped) == 2
    assert "begin(3)" in changed.text
    assert "begin(4)" in changed.text


def test_a_statement_in_which_an_optimizer_steps_is_never_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: list[Any] = []
    module = SimpleNamespace(register_optimizer_step_post_hook=hooks.append)
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", module)  # type: ignore[arg-type]
    source = "for step in range(4):\n    update(step)\n    loss.backward()\n"
    calls: list[int] = []

    def update(step: int) -> None:
        calls.append(step)
        for hook in hooks:
            hook()

    run(skipped("update(step)", source), update=update, loss=SimpleNamespace(backward=lambda: None))
    assert calls == [0, 1, 2, 3]


def test_a_value_through_which_gradients_flow_is_never_stale() -> None:
    source = """
    class Value:
        def __init__(self, grad_fn):
            self.grad_fn = grad_fn
        def backward(self):
            pass
    def forward(step):
        calls.append(step)
        return Value('graph')
    calls = []
    for step in range(4):
        output = forward(step)
        output.backward()
    """
    assert run(skipped("output = forward", source))["calls"] == [0, 1, 2, 3]
    without = source.replace("'graph'", "None")
    assert run(skipped("output = forward", without))["calls"] == [0]


def test_names_that_only_the_statement_reads_do_not_matter() -> None:
    source = """
    class Value:
        grad_fn = 'graph'
        def backward(self):
            pass
    count = []
    for step in range(4):
        for part in [Value(), Value()]:
            count.append(part.grad_fn)
        Value().backward()
    """
    assert run(skipped("count.append", source))["count"] == ["graph", "graph"]


def test_a_thread_stops_and_the_main_one_goes_on() -> None:
    source = """
    count = [0]
    def poll():
        while count[0] < 50:
            count[0] += 1
    """
    text = dedent(source)
    changed = stop_threads_at(text, [line_of(text, "count[0] += 1")], "train.py")
    result = run(changed)
    thread = threading.Thread(target=result["poll"], daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert result["count"] == [1]
    result["poll"]()
    assert result["count"] == [50]


def test_objects_of_other_types_than_dict_stay_as_they_are() -> None:
    class Output(dict[str, int]):
        logits = 1

    source = "for step in range(3):\n    output = forward(step)\n    loss = output.logits\n"
    assert run(skipped("output =", source, only_line=True), forward=lambda step: Output(a=step))["loss"] == 1


def test_text_that_is_not_python_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        skip_lines("for x in", [1], "train.py")


def test_what_a_skipped_statement_executes_is_left_out_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
calls = []
def save(step):
    with open(__import__('os').devnull) as file:
        calls.append(step)
        file.read()
def report(step):
    calls.append('report')
def backward():
    calls.append('backward')
for step in range(3):
    save(step)
    report(step)
    backward()
"""
    monkeypatch.setenv("PROFILER_RUN_DIR", str(tmp_path))
    parts = ("calls.append(step)", "    save(step)", "calls.append('report')")
    result = run(skip_lines(source, [line_of(source, part) for part in parts], "train.py"))
    assert result["calls"] == [0, "report", "backward", "backward", "backward"]
    reports = [json.loads(line) for line in (tmp_path / "trial.jsonl").read_text().splitlines()]
    assert sorted(number for report in reports for number in report.values()) == [0, 1, 2]
