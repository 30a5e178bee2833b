"""`[tool.profiler.check]`: what it may say, and one line for everything else."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from profiler.check.model import Budget, Limit, Limits
from profiler.check.settings import SettingsTable, options_of, read_table, share
from profiler.core.errors import Exit, ProfilerError

WHOLE = """
[tool.profiler.check]
detect = "10%"
inconclusive = "pass"
ignore = ["crossings"]
baseline = "ci/counters.json"
steps = 40
warmup = 0
processes = 3
max_rounds = 10
max_seconds = 90.5
patience = 20.0
links = ["data", ".env"]
environment = "same"
explain = false
history = "ci/checks.jsonl"
source = false
shared = true
max_size = "20 GB"

[tool.profiler.check.limits]
"*" = 0
syncs = 1
h2d_bytes = "1%"
d2h_bytes = { absolute = 64, relative = "2%" }

[tool.profiler.check.budgets]
peak_bytes = "2 GB"
growth_bytes = { warn = 0, fail = "1.5MB" }
syncs = "warn:3"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "pyproject.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_key(tmp_path: Path) -> None:
    file = written(tmp_path, WHOLE)
    table, path = read_table({})
    assert path == file
    assert table.gate_limits == Limits(
        detect=0.1,
        counters={"*": Limit(), "syncs": Limit(1), "h2d_bytes": Limit(0, 0.01), "d2h_bytes": Limit(64, 0.02)},
        ignore=("crossings",),
        budgets={
            "peak_bytes": Budget(fail=2e9),
            "growth_bytes": Budget(warn=0, fail=1.5e6),
            "syncs": Budget(warn=3),
        },
        inconclusive="pass",
        max_rounds=10,
        max_seconds=90.5,
    )
    assert table.baseline == str(tmp_path / "ci" / "counters.json")
    assert (table.steps, table.warmup, table.processes, table.links) == (40, 0, 3, ["data", ".env"])
    assert (table.patience, table.environment, table.explain, table.max_size) == (20.0, "same", False, 2e10)
    assert (table.history, table.source, table.shared) == (str(tmp_path / "ci" / "checks.jsonl"), False, True)


def test_options_override_the_file(tmp_path: Path) -> None:
    written(tmp_path, WHOLE)
    options = {"detect": "3%", "steps": 5, "baseline": "b.json", "limits": {"syncs": "2"}}
    table, _ = read_table(options)
    assert (table.detect, table.steps, table.warmup) == (0.03, 5, 0)
    assert table.baseline == "b.json", "relative to the working directory"
    assert table.limits["syncs"] == Limit(2)
    assert table.limits["h2d_bytes"] == Limit(0, 0.01), "the others stay"


def test_the_nearest_file_with_such_a_table_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "packages" / "mine"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert read_table({})[0] == SettingsTable()
    file = written(tmp_path, "[tool.profiler.check]\nsteps = 7\n")
    written(inner, "[project]\nname = 'mine'\n")
    table, path = read_table({})
    assert (table.steps, path) == (7, file), "a pyproject.toml without the table is passed over"
    written(inner, "[tool.profiler.check]\nsteps = 8\n")
    assert read_table({})[0].steps == 8


@pytest.mark.parametrize(
    ("text", "expected"), [("5%", 0.05), (" 2.5 % ", 0.025), ("0.05", 0.05), (0.05, 0.05), (0, 0.0)]
)
def test_shares(text: str | float, expected: float) -> None:
    assert share(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["5", "100%", "-1%", "nan%", "inf", "five", "", "%", "5%%", 1, True, None, [], "1e400"]
)
def test_what_is_not_a_share(text: object) -> None:
    with pytest.raises(ValueError, match="such as 5%"):
        share(text)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("detect = 5", "] detect: 5 is not a share below 1"),
        ("detect = 0", "cannot be detected"),
        ("detect = 'much'", "] detect: 'much' is neither a number"),
        ("detct = 0.1", "] has no key detct: did you mean detect?"),
        ('"a\\nb" = 1', r"has no key 'a\nb': there are"),
        ("colour = 1", "] has no key colour: there are detect, limits, ignore"),
        ("inconclusive = 'maybe'", "] inconclusive: Input should be 'fail' or 'pass' ('maybe')"),
        ("ignore = 'syncs'", "] ignore: Input should be a valid list ('syncs')"),
        ("ignore = [1]", "] ignore: 0: Input should be a valid string (1)"),
        ("steps = 0", "] steps: Input should be greater than or equal to 1 (0)"),
        ("steps = true", "] steps: Input should be a valid integer (True)"),
        ("warmup = -1", "] warmup: Input should be greater than or equal to 0 (-1)"),
        ("max_seconds = 0", "] max_seconds: Input should be greater than 0 (0)"),
        ("max_rounds = 'ten'", "] max_rounds: Input should be a valid integer ('ten')"),
        ("baseline = ''", "] baseline: String should have at least 1 character ('')"),
        ("limits = 1", "] limits: Input should be a valid dictionary (1)"),
        ("limits.syncs = -1", "] limits: syncs: -1 is neither a number"),
        ("limits.syncs = '1 % %'", "limits: syncs: '1 % ' is neither a number"),
        ("limits.syncs = { least = 1 }", "limits: syncs: 'least' is not part of a limit"),
        ("limits.syncs = { relative = 3 }", "3 is not a share below 1"),
        ("limits.syncs = 2020-01-01", "is neither a number of 0 or more"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_file_and_key(tmp_path: Path, line: str, words: str) -> None:
    file = written(tmp_path, f"[tool.profiler.check]\n{line}\n")
    with pytest.raises(ProfilerError) as caught:
        read_table({})
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{file}: [tool.profiler.check]")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == Exit.USAGE


def test_an_option_is_named_as_it_is_written() -> None:
    for options, words in (
        ({"max_rounds": 0}, r"^--set max_rounds: Input should be greater than or equal to 1"),
        ({"detect": "7"}, r"^--set detect: '7' is not a share below 1"),
    ):
        with pytest.raises(ProfilerError, match=words):
            read_table(options)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[tool\n", "is not TOML: Expected"),
        (b"\xff\xfe", "is not TOML: 'utf-8' codec"),
        (b"a = " + b"1" * 5000, "is not TOML: Exceeds the limit"),
        (b"a = " + b"[" * 5000, "is not TOML: maximum recursion depth"),
        (b"[tool.profiler.check.limits]\nsyncs = 1" + b"0" * 400, "limits: syncs: 1000"),
        (b"tool = 1", "tool is not a table"),
        (b"[tool]\nprofiler = []", "tool.profiler is not a table"),
        (b"[[tool.profiler.check]]", "tool.profiler.check is not a table"),
    ],
)
def test_a_file_that_is_damaged_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    with pytest.raises(ProfilerError) as caught:
        read_table({})
    assert words in str(caught.value)
    assert str(tmp_path / "pyproject.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("budget", ["2 XB", "GB", "warn:", "-1", {"warn": 1, "least": 2}, "nan"])
def test_what_is_no_budget(tmp_path: Path, budget: object) -> None:
    with pytest.raises(ProfilerError, match="--set budgets: peak_bytes: "):
        read_table({"budgets": {"peak_bytes": budget}})


def test_a_wrong_budget_is_told_what_a_budget_is() -> None:
    for value in ("2 GiB", "5%"):
        with pytest.raises(ProfilerError, match=f"'{value}' is no number of 0 or more, alone or with a unit: B"):
            read_table({"budgets": {"peak_bytes": value}})
    with pytest.raises(ProfilerError, match="an empty table limits nothing"):
        read_table({"budgets": {"peak_bytes": {}}})
    with pytest.raises(ProfilerError, match="the budget for peak_bytes warns above 5 and fails above 1, so it would"):
        read_table({"budgets": {"peak_bytes": {"warn": 5, "fail": 1}}})


def test_a_budget_of_the_command_line_replaces_that_of_the_file_part_by_part(tmp_path: Path) -> None:
    written(tmp_path, WHOLE)
    table, _ = read_table({"budgets": {"growth_bytes": {"warn": "8 kB"}, "flops": {"fail": "3e12"}}})
    assert table.budgets["growth_bytes"] == Budget(warn=8e3, fail=1.5e6)
    assert (table.budgets["flops"], table.budgets["peak_bytes"]) == (Budget(fail=3e12), Budget(fail=2e9))


def test_settings_of_the_command_line_are_toml_or_text() -> None:
    words = ["max_rounds=3", "detect=3%", "limits.syncs=1", "limits.h2d=1%", 'ignore=["d2h"]', "baseline=a=b.json"]
    args = argparse.Namespace(set=words, baseline=None, link=["data"])
    table, _ = read_table(options_of(args))
    assert (table.max_rounds, table.detect, table.ignore, table.links) == (3, 0.03, ["d2h"], ["data"])
    assert table.limits == {"syncs": Limit(1), "h2d": Limit(relative=0.01)}
    assert table.baseline == "a=b.json"
