"""Workflow commands: at the site, with GitHub's escapes, one command a line whatever the texts contain."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from profiler.check.model import FAIL, Change, CounterLine
from profiler.check.outputs.annotations import MAX_ANNOTATIONS, command, workflow_commands
from profiler.check.outputs.alerts import RepositoryPaths
from tests.check.outputs import results

REPOSITORY = RepositoryPaths("/repo", "/repo")
COMMAND = re.compile(r"^::(error|warning|notice) (?:[a-z]+=[^,:\r\n]*,?)+::[^\r\n]*$")


@pytest.mark.parametrize("name", results.everything())
def test_every_line_is_one_command(name: str) -> None:
    for line in workflow_commands(results.everything()[name], REPOSITORY):
        assert COMMAND.match(line), line
        assert not set(line) & set("\r\n\x1b\x00")
        line.encode()


def test_a_failure_is_an_error_at_its_line() -> None:
    lines = workflow_commands(results.failed(), REPOSITORY)
    assert lines[0] == (
        "::error file=examples/train.py,line=104,title=Syncs%3A FAIL::+1 sync per step (train_step, item)"
    )
    assert [line for line in lines if line.startswith("::error title=Calls that would sync")]
    assert [line for line in lines if line.startswith("::warning title=all steps%3A INCONCLUSIVE")]
    assert [line for line in lines if line.startswith("::warning title=A warning about this check::The load rose")]
    assert lines[-1].startswith("::notice title=H2D copies%3A fewer::")
    last = workflow_commands(replace(results.failed(), mode="baseline"), REPOSITORY)[-1]
    assert last.startswith("::notice title=H2D copies%3A fewer%2C refresh the baseline::")
    assert workflow_commands(results.passed(), REPOSITORY) == ()


def test_only_lines_that_rose_are_errors_and_files_elsewhere_are_named_in_the_message() -> None:
    elsewhere = replace(results.SYNC, file="/usr/lib/python3/torch/_tensor.py")
    fell = Change("syncs", "examples/train.py", 90, "f", "item", 2.0, 1.0)
    line = replace(results.failed().counters[0], changes=(results.SYNC, elsewhere, fell))
    lines = workflow_commands(replace(results.failed(), counters=(line,)), REPOSITORY)
    first, second = (item for item in lines if item.startswith("::error") and "Syncs" in item)
    assert first.startswith("::error file=examples/train.py,line=104,")
    assert second.startswith("::error title=Syncs%3A FAIL::+1 sync per step at /usr/lib/python3/torch/_tensor.py:104")


def test_the_escapes_of_github() -> None:
    line = command("error", "50% of a:b, c", title="50%: a, b", file="a,b:c.py", line=3)
    assert line == "::error file=a%2Cb%3Ac.py,line=3,title=50%25%3A a%2C b::50%25 of a:b, c"


def test_more_than_github_shows_are_counted() -> None:
    counters = tuple(CounterLine(f"counter_{at}", FAIL, (0.0, 0.0), (1.0, 1.0), 0.0) for at in range(25))
    lines = workflow_commands(replace(results.failed(), counters=counters), REPOSITORY)
    errors = [line for line in lines if line.startswith("::error")]
    assert len(errors) == MAX_ANNOTATIONS
    assert errors[-1].startswith("::error title=17 more::17 more are in")
