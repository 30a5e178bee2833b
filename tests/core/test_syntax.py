"""Single lines of a program's source are read, and never warn of what the program writes."""

from __future__ import annotations

import ast
import warnings

import pytest

from profiler.core.syntax import Objects, block_of, called_functions, line_nodes, parsed_line, statements


def test_a_line_that_is_a_statement() -> None:
    tree = parsed_line("    x = f(1)  # twice")
    assert tree is not None
    assert ast.unparse(tree) == "x = f(1)"


@pytest.mark.parametrize("source", ["x = f(1,", "x = 'a\0'"])
def test_a_line_that_is_none(source: str) -> None:
    assert parsed_line(source) is None
    assert list(line_nodes(source)) == called_functions(source) == []


def test_the_functions_that_a_line_calls() -> None:
    assert sorted(called_functions("x = torch.cat([f(y), z])")) == ["f", "torch.cat"]


@pytest.mark.parametrize("source", ["with f(x) as y:", "for _ in f(x):  # each", "if f(x) > 1:", "while f(x):"])
def test_a_line_that_begins_a_block(source: str) -> None:
    assert called_functions(source) == ["f"]
    assert parsed_line(source) is None, "it is no whole statement"


def test_escape_sequences_of_the_program_do_not_warn() -> None:
    with warnings.catch_warnings(record=True, action="always") as told:
        assert parsed_line(r"x = re.split('\d', text)") is not None
    assert not told


def test_the_statements_of_a_file_that_compute_something_have_all_their_lines() -> None:
    source = """"A text."
import os
class Model(Base()):
    size: List[int] | None = None
    def forward(self, x=f()):
        "Text (of a method)."
        y = x
        y += 1
        for each in g(
            y,
        ):
            h(
                each
            )
        if y: return h(2)
"""
    lines = sorted((each.start, each.stop) for each in statements(source))
    assert lines == [(8, 9), (9, 12), (12, 15), (15, 16)]
    assert list(statements("x = (")) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "self.head(self.encoder(rows))",
            [("self.head = nn.Linear(2, 1)", "Linear"), ("self.encoder = Encoder(3)", "Encoder")],
        ),
        ("for batch in enumerate(loader):", [("net, loader = launcher.prepare(net, loader)", "prepare")]),
        ("launcher.log(1)", [("launcher = Launcher()", "Launcher")]),
        ("optimizer.step()", [("", "")]),  # one of two, by a condition
        ("given.update()", [("", "")]),  # a parameter
        ("torch.relu(batch)", [("", "")]),  # a module, and a variable of a loop
    ],
)
def test_the_lines_that_make_the_objects_of_a_line(line: str, expected: list[tuple[str, str]]) -> None:
    source = """
import torch
given = Other()
class Net:
    def __init__(self):
        self.encoder = Encoder(3)
        self.head = nn.Linear(2, 1)
    def forward(self, rows):
        return self.head(self.encoder(rows))
def main(given):
    launcher = Launcher()
    loader = DataLoader(rows)
    net, loader = launcher.prepare(net, loader)
    optimizer = SGD(1)
    if fast:
        optimizer = Adam(1)
    for batch in enumerate(loader):
        launcher.log(1)
        optimizer.step()
        given.update()
        torch.relu(batch)
"""
    lines = [text.strip().removeprefix("return ") for text in source.split("\n")]
    made = Objects(source).made(lines.index(line) + 1)
    assert [(lines[number - 1], called) for number, called in made] == expected


def test_the_objects_of_deep_expressions_and_of_damaged_files() -> None:
    assert [*Objects("run = Runner()\n" + "x = " + " + ".join(["run()"] * 500)).made(2)][:1] == [(1, "Runner")]
    assert [*Objects("x = (").made(1)] == []


PROGRAM = """\
def evaluate_and_save():
    loss = evaluate()
    if loss < best:
        state = {}
        with open("a") as file:
            for value in values:
                if not value:
                    continue
            save(state)  # in a block
        print()
    log()


def early(step):
    check()
    if step % 10:
        return
    state = {}
    try:
        save(state)  # after a return
    except OSError:
        save(state)  # in a handler


def whole():
    if verbose:
        print()
    save()  # always
    log()


for step in steps:
    train()
    save(step)  # in each step
"""


@pytest.mark.parametrize(
    ("comment", "lines", "is_whole"),
    [
        ("in a block", range(4, 11), False),
        ("after a return", range(18, 23), False),
        ("in a handler", range(22, 23), False),
        ("always", range(26, 30), True),
        ("in each step", range(33, 35), False),
    ],
)
def test_the_lines_that_run_with_a_line(comment: str, lines: range, is_whole: bool) -> None:
    line = next(number for number, text in enumerate(PROGRAM.splitlines(), 1) if f"# {comment}" in text)
    assert block_of(PROGRAM, line) == (lines, is_whole)


DEEP = "if x:\n    y\n" + "elif x:\n    y\n" * 1199 + "save()\n"


@pytest.mark.parametrize(("source", "line"), [("", 1), ("x = 1\n\ny = 2", 2), ("x = (", 1), (DEEP, 2401)])
def test_where_no_statement_is_there_is_no_block(source: str, line: int) -> None:
    assert block_of(source, line) is None
