"""The tools of an agent: short answers, one next step in each, one line for bad input, and no program without leave."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from profiler.check.outputs.json import render, result_json
from profiler.core.errors import ProfilerError
from profiler.mcp import tools as module
from profiler.mcp.answers import MOST_TOKENS, limited, text_of, tokens
from profiler.mcp.tools import Tools
from tests.approval.cases import RUNS
from tests.check.outputs import results
from tests.clinic.agent import MOST_CALLS, follow, true_lines
from tests.clinic.case import select
from tests.clinic.keep import ARCHIVES, archive_path

SLOW = RUNS / "slow-input.zip"
PROGRAM = """
from profiler import marks
for step in range(200):
    sum(number * number for number in range(10_000))
    marks.step()
print("it must not reach the agent")
"""


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Tools that start nothing."""
    return Tools(allow_runs=False, folder=tmp_path / "runs")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The words of each command of the profiler that would have been started."""
    calls: list[list[str]] = []

    def exit_code(argv: list[str], *_: Any) -> int:
        calls.append(argv[5:])
        return 2

    monkeypatch.setattr(module, "_exit_code", exit_code)
    return calls


def test_a_command_that_takes_too_long_is_asked_to_end(tmp_path: Path) -> None:
    program = "import signal; signal.pause()"
    with (tmp_path / "out").open("w+") as out, (tmp_path / "err").open("w+") as errors:
        code = module._exit_code([sys.executable, "-c", program], out, errors, 0.1)
    assert code == -signal.SIGTERM


def test_an_empty_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match="the command is empty"):
        Tools(allow_runs=True, folder=tmp_path).why(command="  ")


# ---------------------------------------------------------------- the size of answers


def test_a_long_answer_is_cut_and_tells_how_much_is_gone() -> None:
    rows = [{"line": f"train.py:{number}", "source": "x" * 200} for number in range(100)]
    answer = limited({"head": "y" * 5_000, "rows": rows, "few": ["a", "b"], "next_step": "Edit train.py:0: do less."})
    assert tokens(answer) <= MOST_TOKENS
    assert answer["left_out"] == {"rows": 100 - len(answer["rows"])}
    assert answer["rows"] == rows[: len(answer["rows"])], "the ends of lists are cut"
    assert (answer["few"], answer["next_step"]) == (["a", "b"], "Edit train.py:0: do less.")


def test_texts_of_many_bytes_and_large_objects_are_cut_too() -> None:
    texts = {str(number): "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 400 for number in range(9)}
    numbers = {str(number): number for number in range(5_000)}
    answer = limited({**texts, "numbers": numbers, "next_step": "z" * 9_000})
    assert tokens(answer) <= MOST_TOKENS
    assert answer["left_out"]["numbers"] == 1


def test_a_short_answer_stays_as_it_is() -> None:
    answer = {"a": 1.5, "b": [None, float("inf")], "next_step": "Call why {}"}
    assert json.loads(text_of(limited(answer))) == {"a": 1.5, "b": [None, None], "next_step": "Call why {}"}


NAMES = ("slow-input", "crashed", "crashed-at-start", "attached", "no-python", "plain-light", "ranks")


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_about_a_run_is_short_and_has_a_next_step(tools: Tools, name: str) -> None:
    run = str(RUNS / f"{name}.zip")
    for tool in (tools.why, tools.lines, tools.what_if):
        answer = limited(tool(run))
        assert tokens(answer) <= MOST_TOKENS
        assert answer["next_step"]


# ---------------------------------------------------------------- what each tool tells


def test_why(tools: Tools) -> None:
    answer = tools.why(str(SLOW))
    first = answer["findings"][0]
    assert (first["rule"], first["gain"] > 1.1) == ("slow-dataset-item", True)
    assert answer["next_step"].startswith(f"Edit {first['lines'][0]}")
    assert "waits for data" in answer["headline"]


def test_lines_lead_to_the_edit_of_the_costliest_one(tools: Tools) -> None:
    answer = tools.lines(str(ARCHIVES / "behavior_threads-quiet.zip"))
    shares = [row["share"] for row in answer["lines"]]
    assert shares == sorted(shares, reverse=True)
    assert answer["next_step"].startswith(f"Edit {answer['lines'][0]['line']}: ")


def test_the_ledger_tells_of_all_time_or_of_a_line(tools: Tools) -> None:
    everything = tools.ledger(str(SLOW))
    line = json.loads(everything["next_step"].removeprefix("Call ledger "))["line"]
    one = tools.ledger(str(SLOW), line)
    assert len(everything["rows"]) > len(one["rows"]) > 0
    assert any("belongs to slow-dataset-item" in text for text in one["text"])
    assert one["next_step"].startswith(f"Edit {line}: ")
    assert tools.ledger(str(SLOW), "train.py:99999")["next_step"].startswith("Call lines ")


def test_what_if(tools: Tools) -> None:
    answer = tools.what_if(str(SLOW))
    assert "input" in answer["names_of_changes"]
    assert answer["gains"][0]["finding"] == "slow-dataset-item"
    changed = tools.what_if(str(SLOW), "input=0")
    assert changed["factor"] > 1.1
    assert changed["next_step"].startswith("Call lines ")


def test_lint_of_a_counted_run_reads_no_file_that_the_run_names(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any) -> None:
        raise AssertionError("a recording of somebody else may name any file")

    monkeypatch.setattr("linecache.getline", read)
    run = str(ARCHIVES / "chunked_tokens-quiet.zip")
    assert tools.why(run)["next_step"].startswith("Call lint ")
    answer = tools.lint(run)
    first = answer["findings"][0]
    assert answer["next_step"].startswith(f"Edit {first['file']}:{first['line']}: ")


@pytest.mark.parametrize("name", sorted(results.everything()))
def test_a_stored_check(tools: Tools, tmp_path: Path, name: str) -> None:
    document = result_json(results.everything()[name])
    (tmp_path / "check.json").write_text(render(document))
    answer = limited(tools.check(str(tmp_path)))
    assert tokens(answer) <= MOST_TOKENS
    assert (answer["state"], answer["next_step"]) == (document["state"], document["next_step"])


def test_a_stored_comparison(tools: Tools, tmp_path: Path) -> None:
    file = tmp_path / "compare.json"
    ratios = {"after": {"tokens_per_s": {"value": 1.2, "low": 0.9, "high": 1.5}}}
    file.write_text(json.dumps({"schema": "comparison/2", "verdict": "It is not sure.", "ratios": ratios, "pairs": 5}))
    answer = tools.check(str(file))
    (row,) = answer["ratios"]
    assert (row["side"], row["measure"], row["low"], row["high"]) == ("after", "tokens_per_s", 0.9, 1.5)
    assert (answer["verdict"], answer["pairs"]) == ("It is not sure.", 5)
    assert "an earlier version wrote it" in answer["next_step"]


def test_two_recorded_runs_are_compared(tools: Tools) -> None:
    answer = tools.check(before=str(RUNS / "lm-as-found-light.zip"), after=str(RUNS / "lm-fixed-light.zip"))
    row = next(each for each in answer["ratios"] if each["measure"] == "tokens_per_s")
    assert (row["side"], row["n"], "low" in row) == ("after", 1, False), "one pair has no interval"
    assert answer["next_step"]


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("why", {}, "give `run`"),
        ("why", {"run": "no/run"}, "there is no run at no/run"),
        ("lines", {"run": str(ARCHIVES / "chunked_tokens-quiet.zip")}, "Call lint"),
        ("ledger", {"run": str(SLOW), "line": "train.py"}, "is no line: write FILE:LINE"),
        ("what_if", {"run": str(SLOW), "changes": "faster"}, "is no change"),
        ("lint", {"run": str(SLOW)}, "was not counted"),
        ("check", {}, "give `result`"),
        ("check", {"result": "no/where"}, "there is no check.json or compare.json"),
        ("check", {"result": str(SLOW)}, "is no result of check or compare"),
        ("why", {"command": "python 'train.py"}, "No closing quotation"),
    ],
)
def test_bad_input_is_one_line(tools: Tools, tool: str, arguments: dict[str, str], said: str) -> None:
    with pytest.raises(ProfilerError) as refusal:
        getattr(tools, tool)(**arguments)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


# ---------------------------------------------------------------- programs


@pytest.mark.parametrize("tool", Tools.STARTING)
def test_no_program_starts_without_leave(tools: Tools, started: list[list[str]], tool: str) -> None:
    with pytest.raises(ProfilerError, match="starts no programs"):
        getattr(tools, tool)(command="python train.py")
    assert started == []


def test_commands_are_those_of_the_profiler(tmp_path: Path, started: list[list[str]]) -> None:
    tools = Tools(allow_runs=True, folder=tmp_path)
    for tool, command in (("lint", "train.py --device cuda"), ("check", "--against main -- python 'a b.py'")):
        with pytest.raises(ProfilerError, match=f"{tool} ended with exit code 2"):
            getattr(tools, tool)(command=command)
    lint, check = started
    assert lint == ["lint", "--format", "json", "train.py", "--device", "cuda"]
    assert (check[:2], check[3:]) == (["check", "--out"], ["--against", "main", "--", "python", "a b.py"])


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match="no_such_program"):
        Tools(allow_runs=True, folder=tmp_path).why(command="no_such_program train.py")


def test_a_program_is_recorded_where_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    answer = Tools(allow_runs=True, folder=tmp_path / "runs").why(command=f"{sys.executable} train.py")
    assert Path(answer["run"]).parent == tmp_path / "runs"
    assert answer["next_step"]
    assert capfd.readouterr().out == "", "standard output belongs to the protocol"


# ---------------------------------------------------------------- an agent that only does what it is told


@pytest.mark.parametrize("name", ["episode_moments", "chunked_tokens", "packed_dialogues", "grouped_colours"])
def test_next_steps_lead_to_the_right_line(name: str) -> None:
    (case,) = select([name])
    end = follow(archive_path(case, "quiet"))
    assert end.calls <= MOST_CALLS
    assert end.places[0] in true_lines(case), end.step


def test_a_healthy_program_gets_no_edit() -> None:
    (case,) = select(["force_field"])
    assert "check --baseline" in follow(archive_path(case, "quiet")).step
