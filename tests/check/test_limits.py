"""`[tool.profiler.check]`: what it may say, and one line for everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.check.limits import Settings, parse_share, read
from profiler.check.model import Limit, Limits
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
links = ["data", ".env"]

[tool.profiler.check.limits]
"*" = 0
syncs = 1
h2d_bytes = "1%"
d2h_bytes = { absolute = 64, relative = "2%" }
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "pyproject.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_everything_that_it_may_say(tmp_path: Path) -> None:
    file = written(tmp_path, WHOLE)
    assert read(file, {}) == Settings(
        Limits(
            detect=0.1,
            counters={"*": Limit(), "syncs": Limit(1), "h2d_bytes": Limit(0, 0.01), "d2h_bytes": Limit(64, 0.02)},
            ignore=("crossings",),
            inconclusive="pass",
            max_rounds=10,
            max_seconds=90.5,
        ),
        baseline=tmp_path / "ci" / "counters.json",
        steps=40,
        warmup=0,
        processes=3,
        links=("data", ".env"),
        file=file,
    )


def test_the_command_line_stands_above_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, WHOLE)
    said = read(file, {"detect": "3%", "steps": 5, "baseline": "b.json", "limits": {"syncs": "2"}, "warmup": None})
    assert (said.limits.detect, said.steps, said.warmup) == (0.03, 5, 0)
    assert said.baseline == Path("b.json"), "from the working directory"
    assert said.limits.counters["syncs"] == Limit(2)
    assert said.limits.counters["h2d_bytes"] == Limit(0, 0.01), "the others stay"


def test_the_nearest_file_with_such_a_table_counts(tmp_path: Path) -> None:
    inner = tmp_path / "packages" / "mine"
    inner.mkdir(parents=True)
    file = written(tmp_path, "[tool.profiler.check]\nsteps = 7\n")
    assert read(None, {}, cwd=inner) == Settings(steps=7, file=file)
    written(inner, "[project]\nname = 'mine'\n")
    assert read(None, {}, cwd=inner).file == file, "a pyproject.toml without the table is none of ours"
    nearer = written(inner, "[tool.profiler.check]\nsteps = 8\n")
    assert read(None, {}, cwd=inner) == Settings(steps=8, file=nearer)


def test_without_a_file_the_tool_chooses(tmp_path: Path) -> None:
    assert read(None, {}, cwd=tmp_path) == Settings()


def test_the_working_directory_is_where_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "[tool.profiler.check]\nsteps = 7\n")
    monkeypatch.chdir(tmp_path)
    assert read(None, {}).file == file


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), (" 2.5 % ", 0.025), ("0.05", 0.05), (0.05, 0.05), (0, 0.0)])
def test_shares(text: str | float, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize(
    "text", ["5", "100%", "-1%", "nan%", "inf", "five", "", "%", "5%%", 1, True, None, [], "1e400"]
)
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(ProfilerError) as caught:
        parse_share(text)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("detect = 5", "] detect: 5 is no share below 1: write 5% or 0.05"),
        ("detect = 0", "cannot be detected"),
        ("detect = 'much'", "'much' is neither a number nor a share such as 5%"),
        ("detct = 0.1", "] has no key detct: did you mean detect?"),
        ('"a\\nb" = 1', r"has no key 'a\nb': there are"),
        ("colour = 1", "] has no key colour: there are detect, limits, ignore"),
        ("inconclusive = 'maybe'", "'maybe' is neither fail nor pass"),
        ("ignore = 'syncs'", "'syncs' is no list of texts"),
        ("ignore = [1]", "1 is no text"),
        ("steps = 0", "0 is no whole number from 1 on"),
        ("steps = 2.0", "2.0 is no whole number"),
        ("steps = true", "True is no whole number"),
        ("warmup = -1", "-1 is no whole number from 0 on"),
        ("max_seconds = 0", "0 seconds are too few"),
        ("max_seconds = inf", "inf is no number from 0 on"),
        ("max_rounds = 'ten'", "'ten' is no whole number"),
        ("baseline = ''", "'' is no text"),
        ("limits = 1", "1 is no table of limits"),
        ("limits.syncs = -1", "] limits: syncs: -1 is no number from 0 on"),
        ("limits.syncs = nan", "limits: syncs: nan is no number"),
        ("limits.syncs = true", "limits: syncs: True is no number"),
        ("limits.syncs = '1 % %'", "limits: syncs: '1 % %' is no share such as 5%"),
        ("limits.syncs = { least = 1 }", "limits: syncs: 'least' is no part of a limit"),
        ("limits.syncs = { relative = 3 }", "3 is no share below 1"),
        ("limits.syncs = 2020-01-01", "is no number from 0 on"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_file_and_key(tmp_path: Path, line: str, words: str) -> None:
    file = written(tmp_path, f"[tool.profiler.check]\n{line}\n")
    with pytest.raises(ProfilerError) as caught:
        read(file, {})
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{file}: [tool.profiler.check]")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == Exit.USAGE


def test_a_flag_is_named_as_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match=r"^--max-rounds: 0 is no whole number from 1 on"):
        read(None, {"max_rounds": 0}, cwd=tmp_path)
    with pytest.raises(ProfilerError, match=r"^--detect: '7' is no share below 1"):
        read(None, {"detect": "7"}, cwd=tmp_path)
    with pytest.raises(ProfilerError, match=r"^the command line has no key detec"):
        read(None, {"detec": "7"}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[tool\n", "is no TOML: Expected"),
        (b"\xff\xfe", "is no TOML: 'utf-8' codec"),
        (b"a = " + b"1" * 5000, "is no TOML: Exceeds the limit"),
        (b"a = " + b"[" * 5000, "is no TOML: maximum recursion depth"),
        (b"[tool.profiler.check.limits]\nsyncs = 1" + b"0" * 400, "limits: syncs: 1000"),
        (b"tool = 1", "tool is no table"),
        (b"[tool]\nprofiler = []", "tool.profiler is no table"),
        (b"[[tool.profiler.check]]", "tool.profiler.check is no table"),
    ],
)
def test_a_file_that_is_damaged_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    with pytest.raises(ProfilerError) as caught:
        read(None, {}, cwd=tmp_path)
    assert words in str(caught.value)
    assert str(tmp_path / "pyproject.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_was_named_must_be_there_and_have_the_table(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match=r"cannot read .*: No such file"):
        read(tmp_path / "pyproject.toml", {})
    with pytest.raises(ProfilerError, match=r"has no table \[tool.profiler.check\]"):
        read(written(tmp_path, ""), {})
