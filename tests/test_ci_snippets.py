"""The files for continuous integration do what docs/ci.md says, as far as a machine without GitHub can tell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
GITLAB = yaml.safe_load((ROOT / "docs" / "gitlab-ci.yml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
REPORTS = {"check.json", "check.md", "check.html", "junit.xml", "check.sarif"}
STUB = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
if sys.argv[1:4] == ["-I", "-m", "pip"]:
    Path(os.environ["PIP"]).write_text(json.dumps(sys.argv[4:]))
    sys.exit(0)
if "importlib.metadata" in sys.argv[-1]:
    sys.exit(os.environ["THERE"] != "yes")
if sys.argv[1:3] != ["-m", "profiler"]:
    os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
Path(os.environ["SEEN"]).write_text(json.dumps(sys.argv[3:]))
code = int(os.environ["CODE"])
words = sys.argv[3:]
out = Path(words[words.index("--out") + 1])
if code in (0, 1, 3):
    out.mkdir(parents=True, exist_ok=True)
    (out / "check.json").write_text(json.dumps({{"state": {{0: "PASS", 1: "FAIL", 3: "INCONCLUSIVE"}}[code]}}))
sys.exit(code)
"""
HOSTILE = (
    "$(touch HACKED)",
    "`touch HACKED`",
    "; touch HACKED;",
    "' && touch HACKED && '",
    '" && touch HACKED && "',
    "a\ntouch HACKED\n",
    "${{ secrets.TOKEN }}",
    "EOF\nstate=PASS\nEOF",
)


@pytest.fixture
def stub(tmp_path: Path) -> dict[str, str]:
    """A Python of ours that writes down what it was asked, in the place of the profiler."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(STUB)
    python.chmod(0o755)
    (tmp_path / "job").mkdir()
    return {
        **os.environ,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "SEEN": str(tmp_path / "seen.json"),
        "CODE": "0",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_ACTION_PATH": str(ROOT),
        "RUNNER_TEMP": str(tmp_path),
        "PIP": str(tmp_path / "pip.json"),
        "THERE": "no",
    }


(CHECK,) = [step for step in ACTION["runs"]["steps"] if step.get("id") == "check"]
(INSTALL,) = [step for step in ACTION["runs"]["steps"] if step.get("name") == "Install the profiler"]


def run_action(
    stub: Mapping[str, str], tmp_path: Path, *, step: Mapping[str, Any] = CHECK, **inputs: str
) -> subprocess.CompletedProcess[str]:
    """Do what a runner does: put inputs into the variables that the step names, and its script into a file for bash."""
    given = {name: str(about.get("default", "")) for name, about in ACTION["inputs"].items()} | {
        name.replace("_", "-"): value for name, value in inputs.items()
    }
    variables = {}
    for name, expression in step["env"].items():
        match = re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", expression)
        assert match, expression
        variables[name] = given[match[1]]
    script = tmp_path / "step.sh"
    script.write_text(step["run"])
    (tmp_path / "output").write_text("")
    words = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)]
    return subprocess.run(
        words, cwd=tmp_path / "job", env={**stub, **variables}, capture_output=True, text=True, check=False
    )


def outputs(tmp_path: Path) -> dict[str, str]:
    lines = (tmp_path / "output").read_text().splitlines()
    assert all("=" in line for line in lines), lines
    assert len(lines) == 4, lines
    return dict(line.split("=", 1) for line in lines)


def seen(tmp_path: Path) -> list[str]:
    return list(json.loads((tmp_path / "seen.json").read_text()))


# ---------------------------------------------------------------- the action


@pytest.mark.parametrize(
    ("code", "state"), [(0, "PASS"), (1, "FAIL"), (2, "ERROR"), (3, "INCONCLUSIVE"), (130, "ERROR")]
)
def test_exit_codes_pass_through(stub: dict[str, str], tmp_path: Path, code: int, state: str) -> None:
    done = run_action(stub | {"CODE": str(code)}, tmp_path, command="python train.py", out="reports")
    assert done.returncode == code, done.stderr
    said = outputs(tmp_path)
    assert (said["state"], said["exit-code"]) == (state, str(code))
    assert said["report"] == f"{tmp_path}/job/reports/check.html"
    assert said["folder"] == f"{tmp_path}/job/reports"


def test_every_check_has_a_folder_of_its_own(stub: dict[str, str], tmp_path: Path) -> None:
    folders = []
    for _ in range(2):
        assert run_action(stub, tmp_path, command="python train.py").returncode == 0
        folders.append(Path(outputs(tmp_path)["folder"]))
        asked = seen(tmp_path)
        assert asked[asked.index("--out") + 1] == str(folders[-1])
    assert folders[0] != folders[1]
    assert all(folder.parent == tmp_path and (folder / "check.json").exists() for folder in folders)


def test_the_profiler_is_installed_where_there_is_none(stub: dict[str, str], tmp_path: Path) -> None:
    asked = tmp_path / "pip.json"
    done = run_action(stub | {"THERE": "yes"}, tmp_path, step=INSTALL)
    assert done.returncode == 0, done.stderr
    assert not asked.exists(), "the user's own would have been replaced"
    done = run_action(stub, tmp_path, step=INSTALL)
    assert done.returncode == 0, done.stderr
    words = json.loads(asked.read_text())
    assert (words[0], words[-1]) == ("install", str(ROOT))
    steps = ACTION["runs"]["steps"]
    assert steps.index(INSTALL) < steps.index(CHECK)
    assert INSTALL["if"] == "${{ inputs.install == 'true' }}"


def test_arguments_of_the_command(stub: dict[str, str], tmp_path: Path) -> None:
    done = run_action(
        stub,
        tmp_path,
        command="python 'my train.py' --name \"a b\"",
        baseline="base line.json",
        against="origin/main",
        detect="5%",
        inconclusive="pass",
        arguments="--set max_seconds=600 --link 'my data'",
        out="out put",
    )
    assert done.returncode == 0, done.stderr
    asked = ["check", "--out", "out put", "--baseline=base line.json", "--against=origin/main", "--set=detect=5%"]
    asked += ["--set=inconclusive=pass", "--set", "max_seconds=600", "--link", "my data"]
    assert seen(tmp_path) == [*asked, "--", "python", "my train.py", "--name", "a b"]
    run_action(stub, tmp_path, command="python train.py", out="bare")
    assert seen(tmp_path) == ["check", "--out", "bare", "--", "python", "train.py"]


@pytest.mark.parametrize("first", range(0, len(HOSTILE), 2))
def test_nothing_in_an_option_is_run(stub: dict[str, str], tmp_path: Path, first: int) -> None:
    """Each text comes to several of them."""
    texts = [HOSTILE[(first + k) % len(HOSTILE)] for k in range(5)]
    options = dict(zip(("baseline", "against", "detect", "inconclusive"), texts, strict=False))
    done = run_action(stub, tmp_path, command="python train.py", out=texts[4], **options)
    assert not list(tmp_path.rglob("HACKED")), done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    assert outputs(tmp_path)["state"] == "PASS"
    expected = ["check", "--out", texts[4], *(f"--{name}={options[name]}" for name in ("baseline", "against"))]
    expected += [f"--set={name}={options[name]}" for name in ("detect", "inconclusive")]
    assert seen(tmp_path) == [*expected, "--", "python", "train.py"]


@pytest.mark.parametrize("first", range(0, len(HOSTILE), 2))
def test_no_shell_runs_the_command(stub: dict[str, str], tmp_path: Path, first: int) -> None:
    done = run_action(stub, tmp_path, command=f"python {HOSTILE[first]}", arguments=HOSTILE[first + 1])
    assert not list(tmp_path.rglob("HACKED")), done.stdout + done.stderr
    assert outputs(tmp_path)["state"] == "PASS", done.stdout + done.stderr
    assert done.returncode == 0


def test_words_that_are_none_are_an_error(stub: dict[str, str], tmp_path: Path) -> None:
    done = run_action(stub, tmp_path, command="python 'train.py")
    assert done.returncode == 2
    assert "::error::" in done.stdout
    assert outputs(tmp_path)["state"] == "ERROR"
    assert not (tmp_path / "seen.json").exists()


def test_a_python_that_is_not_there_is_an_error(stub: dict[str, str], tmp_path: Path) -> None:
    done = run_action(stub, tmp_path, command="python train.py", python="no-such-python")
    assert done.returncode == 127
    assert (tmp_path / "output").read_text() == "state=ERROR\nexit-code=127\n"


def test_a_report_with_an_unknown_state_is_an_error(stub: dict[str, str], tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.write_text(STUB.replace('"PASS"', '"PASS\\nexit-code=0"'))
    run_action(stub, tmp_path, command="python train.py")
    assert outputs(tmp_path)["state"] == "ERROR"


def test_no_input_is_text_of_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", ""), "an input within a script is run as a part of it"
    assert ACTION["runs"]["using"] == "composite"
    assert all("description" in about for about in (*ACTION["inputs"].values(), *ACTION["outputs"].values()))
    assert all(f"`{name}`" in PAGE for name in (*ACTION["inputs"], *ACTION["outputs"])), "the page leaves one out"


def test_reports_are_uploaded_after_a_failure_too() -> None:
    (upload,) = [step for step in ACTION["runs"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert "always()" in upload["if"]
    folder = "${{ steps.check.outputs.folder }}"
    *reports, runs = upload["with"]["path"].splitlines()
    assert reports == [f"{folder}/check.*", f"{folder}/junit.xml"]
    assert runs == "${{ inputs.runs == 'true' && steps.check.outputs.folder || '' }}"
    assert ACTION["inputs"]["runs"]["default"] == "false", "runs name files and commands of the job"
    for about in ACTION["outputs"].values():
        name = re.fullmatch(r"\$\{\{ steps\.check\.outputs\.([a-z-]+) \}\}", about["value"])
        assert name
        assert f'f"{name[1]}={{' in CHECK["run"]


# ---------------------------------------------------------------- GitLab


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("job", [name for name in GITLAB if not name.startswith(".")])
def test_the_script_of_gitlab(stub: dict[str, str], tmp_path: Path, job: str, code: int) -> None:
    script = tmp_path / "job.sh"
    script.write_text("\n".join(line for line in GITLAB[job]["script"] if not line.startswith("git fetch")))
    variables = {str(name): str(value) for name, value in GITLAB[job].get("variables", {}).items()}
    given = {**stub, **variables, "CODE": str(code), "CI_MERGE_REQUEST_DIFF_BASE_SHA": "1" * 40}
    done = subprocess.run(["bash", "-e", str(script)], cwd=tmp_path / "job", env=given, check=False)
    assert done.returncode == code
    words = seen(tmp_path)
    assert words[0] == "check"
    assert "--" in words
    assert Path(words[words.index("--out") + 1]) in Path(GITLAB[job]["artifacts"]["reports"]["junit"]).parents


@pytest.mark.parametrize("job", [name for name in GITLAB if not name.startswith(".")])
def test_artifacts_of_gitlab(job: str) -> None:
    artifacts = GITLAB[job]["artifacts"]
    assert artifacts["when"] == "always"
    reports = artifacts["reports"]
    assert Path(reports["junit"]).name in REPORTS
    assert all(any(Path(path).match(kept) for kept in artifacts["paths"]) for path in reports.values())
    assert all("CI_JOB_NAME" in GITLAB[job]["cache"]["key"] for job in GITLAB if "cache" in GITLAB[job])
    depth = str(GITLAB[job]["variables"].get("GIT_DEPTH", ""))
    assert "--against" not in " ".join(GITLAB[job]["script"]) or depth == "0", "a shallow clone has no base"
    before = "\n".join(GITLAB[job]["before_script"])
    assert re.search(r"pip install .*requirements\.txt", before)
    assert re.search(r"pip install .*training-profiler", before), "the runner has no profiler"
    (out,) = {Path(path).parent for path in reports.values()}
    assert f"rm -rf {out}" in before, "a folder that is taken is refused"


# ---------------------------------------------------------------- the page


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_examples_of_the_page_are_valid() -> None:
    examples = [yaml.safe_load(text) for text in blocks("yaml")]
    workflows = [one for one in examples if isinstance(one, dict)]
    assert workflows
    upload, cache = (step for one in examples if isinstance(one, list) for step in one)
    assert "steps.check.outputs.folder" in upload["with"]["sarif_file"]
    assert "always()" in upload["if"], "a FAIL would upload nothing"
    assert "head.repo.full_name == github.repository" in cache["if"], "a fork would fill the cache of other jobs"
    assert all("${{ github.job }}" in cache["with"][name] for name in ("key", "restore-keys"))
    steps = [step for flow in workflows for job in flow.get("jobs", {}).values() for step in job["steps"]]
    ours = [step for step in steps if "training" in step.get("uses", "") or step.get("uses", "") == "./"]
    assert ours, "no example uses the action"
    for step in ours:
        assert set(step["with"]) <= set(ACTION["inputs"]), step
    for flow in workflows:
        for job in flow.get("jobs", {}).values():
            against = any("against" in step.get("with", {}) for step in job["steps"])
            checkout = [step for step in job["steps"] if "actions/checkout" in step.get("uses", "")]
            if against:
                assert checkout[0]["with"]["fetch-depth"] == 0, "a shallow clone has no base"
            used = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
            if not any(used):  # it runs no code of the pull request
                continue
            assert used.index("actions/setup-python") < used.index("your-organisation/training-profiler")
            assert any("requirements.txt" in step.get("run", "") for step in job["steps"])


GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case "$1 $2" in
  "run download") test -n "$REPORT" && mkdir report && printf '%b' "$REPORT" > report/check.md;;
  "api "*) printf '%b' "$PULLS";;
esac
"""


@pytest.mark.parametrize(
    ("report", "pulls", "comments"),
    [
        ("## FAIL\\n@everyone $(touch HACKED)\\n", "7\\n", ["7"]),
        ("## FAIL\\n", "7\\n12\\n", ["7", "12"]),
        ("## FAIL\\n", "", []),
        ("", "7\\n", []),
    ],
)
def test_the_comment_of_a_workflow_that_failed(tmp_path: Path, report: str, pulls: str, comments: list[str]) -> None:
    (flow,) = [
        one for text in blocks("yaml") if isinstance(one := yaml.safe_load(text), dict) and "comment" in one["jobs"]
    ]
    (job,) = flow["jobs"].values()
    assert flow[True] == {"workflow_run": {"workflows": ["performance"], "types": ["completed"]}}, (
        "YAML reads on as True"
    )
    assert "conclusion == 'failure'" in job["if"]
    assert job["permissions"] == {"actions": "read", "pull-requests": "write"}
    (step,) = job["steps"]
    assert "${{" not in step["run"], "an input within a script is run as a part of it"
    stub = tmp_path / "bin" / "gh"
    stub.parent.mkdir()
    stub.write_text(GH)
    stub.chmod(0o755)
    given = {
        "PATH": f"{stub.parent}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "REPORT": report,
        "PULLS": pulls,
    }
    given |= {"GH_REPO": "a/b", "RUN": "5", "HEAD": "c0ffee"}
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=given, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == "run download 5 --name profiler-check --dir report"
    assert [call for call in calls if call.startswith("pr")] == [
        f"pr comment {number} --body-file comment.md" for number in comments
    ]
    assert not list(tmp_path.rglob("HACKED"))
    if comments:
        assert calls[1].startswith("api repos/a/b/commits/c0ffee/pulls ")
        text = (tmp_path / "comment.md").read_text()
        assert text.startswith("## FAIL\n")
        assert not re.search(r"@\w", text), "nobody is notified"


def test_every_option_of_the_page_is_one_of_the_command() -> None:
    import argparse

    from profiler.commands.check import PLUGIN

    parser = argparse.ArgumentParser()
    PLUGIN.prepare_parser(parser)
    known = {option for action in parser._actions for option in action.option_strings}
    text = "\n".join([PAGE, (ROOT / "docs" / "gitlab-ci.yml").read_text(), CHECK["run"]])
    lines = [line for line in text.splitlines() if "profiler check" in line]
    asked = {option for line in lines for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", line.split(" -- ")[0])}
    assert asked
    assert asked <= known, sorted(asked - known)


def test_the_page_names_every_report_and_exit_code() -> None:
    assert all(name in PAGE for name in REPORTS)
    assert all(re.search(rf"^\| {code} ", PAGE, re.MULTILINE) for code in (0, 1, 2, 3, 130))


# ---------------------------------------------------------------- the baseline


def test_the_baseline_of_the_page_is_one(tmp_path: Path) -> None:
    """Its checksum fits, and it has no counter that a run without a device has not."""
    from profiler.check.counters.baseline import read_sections

    text = (ROOT / "docs" / "baseline.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^    \{\n(?:    .*\n|\n)*?    \}\n", text, re.MULTILINE)
    file = tmp_path / "counters.json"
    file.write_text("\n".join(line.removeprefix("    ") for line in shown.splitlines()), encoding="utf-8")
    (section,) = read_sections(file)
    assert section.key["device"] == "cpu"
    assert set(section.counters) == {"recompilations", "might_sync"}
