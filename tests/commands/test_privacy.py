"""No secret of a command comes into a file or a message, and only its owner may read a run."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.run.load import load
from tests.fakes.programs import MARKED, finished, script

SECRETS = tuple(f"hunter{number}" for number in range(1, 9))
_ARGUMENTS = (
    "--api-key=hunter1", "--wandb-key", "hunter2", "-password", "hunter3", "logger.token=hunter4",
    "https://me:hunter5@host/x?token=hunter6", "--header=Authorization: Bearer hunter7",
)  # fmt: skip
_READABLE = ("--max-tokens=4096", "--tokenizer", "bpe")
SHELL = "export TOKEN=hunter4; exec {python} {script} 40 --password hunter3"


@pytest.fixture(autouse=True)
def _environment(importable: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "hunter8")
    script(tmp_path, MARKED)


def command(rounds: int = 40) -> tuple[str, ...]:
    program = (sys.executable, "train.py", str(rounds))
    return ("env", "WANDB_API_KEY=hunter1", *program, *_ARGUMENTS, *_READABLE)


def leaks(folder: Path, *printed: str) -> set[str]:
    """The files with a secret, except for scripts, and what was printed with one."""
    found = {text for text in printed if any(secret in text for secret in SECRETS)}
    for file in folder.rglob("*"):
        if file.is_file():
            data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            found |= {str(file) for secret in SECRETS if secret.encode() in data}
    return found


def outputs(run: str, capfd: pytest.CaptureFixture[str]) -> str:
    """What the reports and exports of a run print; their files lie in it."""
    for form in ("html", "md", "json", "text"):
        assert main(["report", run, "--format", form]) == 0
    for form in ("perfetto", "speedscope", "collapsed") if load(Path(run)).stack_frames else ("perfetto",):
        assert main(["export", run, "--format", form]) == 0
    main(["diagnose", run])
    return "".join(capfd.readouterr())


@pytest.mark.parametrize("level", [pytest.param("light", marks=pytest.mark.slow), "standard"])
def test_a_run_and_its_reports_have_no_secret(tmp_path: Path, capfd: pytest.CaptureFixture[str], level: str) -> None:
    assert main(["run", "--out", "run", "--level", level, "--", *command()]) == 0
    printed = outputs("run", capfd)
    assert leaks(tmp_path, printed) == set()
    argv = load(Path("run")).info.argv
    assert argv[1:5] == ("WANDB_API_KEY=***", sys.executable, "train.py", "40")
    assert argv[-len(_READABLE) :] == _READABLE
    assert "--header=Authorization: ***" in Path("run/report.html").read_text()


def test_a_shell_and_its_children_have_no_secret(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = SHELL.format(python=shlex.quote(sys.executable), script="train.py")
    assert main(["run", "--out", "run", "--", "sh", "-c", text]) == 0
    assert leaks(tmp_path, outputs("run", capfd)) == set()
    assert "export TOKEN=***;" in load(Path("run")).info.argv[2]


@pytest.fixture
def job() -> Iterator[subprocess.Popen[str]]:
    """A program that waits, with secrets in its command."""
    code = "import sys; print(1, flush=True); sys.stdin.readline()"
    words = [sys.executable, "-c", code, *_ARGUMENTS]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.mark.parametrize("option", [(), ("--no-arguments",)])
def test_an_attached_run_has_no_secret(
    job: subprocess.Popen[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    main(["attach", str(job.pid), "--seconds", "0.3", "--out", "run", *option])
    assert leaks(tmp_path, outputs("run", capfd)) == set()
    manifest = Path("run/run.json").read_text()
    assert ("--api-key=***" in manifest) == (not option)
    assert ("sys.stdin" in manifest) == (not option)


def test_a_comparison_has_no_secret(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sides = ("--before", shlex.join(command(30)), "--after", shlex.join(command(31)))
    assert main(["compare", *sides, "--pairs", "1", "--anyway", "--out", "compared"]) == 0
    assert leaks(tmp_path, *capfd.readouterr()) == set()
    assert "--api-key=***" in Path("compared/compare.json").read_text()
    runs = [str(path.parent) for path in Path("compared").glob("*/run.json")]
    assert main(["compare", *runs[:2], "--anyway", "--out", "again", "--shared"]) == 0
    assert leaks(tmp_path, *capfd.readouterr()) == set()


@pytest.mark.slow
def test_a_comparison_without_arguments(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sides = ("--before", shlex.join(command(30)), "--after", shlex.join(command(31)))
    assert main(["compare", *sides, "--pairs", "1", "--anyway", "--out", "less", "--no-arguments"]) == 0
    assert leaks(tmp_path, *capfd.readouterr()) == set()
    assert "--tokenizer" not in Path("less/compare.json").read_text()


def test_a_check_has_no_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    script(tmp_path, MARKED.replace("range(int(sys.argv[1]))", "range(10**9)"))
    counted = ("--baseline", "counters.json", "--set", "history=history.jsonl")
    assert main(["check", *counted[:2], "--update", "--", *command()]) == 0
    script(tmp_path, MARKED.replace("range(int(sys.argv[1]))", "range(10**9)").replace('"syncs", 2', '"syncs", 3'))
    assert main(["check", *counted, "--out", "checked", "--", *command()]) == 1
    assert leaks(tmp_path, *capfd.readouterr()) == set()
    assert "--api-key '***'" in json.loads(Path("counters.json").read_text())["sections"][0]["key"]["arguments"]
    assert main(["check", "--out", "/dev/null/x", f"none {shlex.join(command())} '", "none of it"]) == 2
    assert leaks(tmp_path, *capfd.readouterr()) == set()


# ---------------------------------------------------------------- modes


def mode(path: str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def files_of_git() -> str:
    return finished(["git", "status", "--porcelain", "--untracked-files=all"], cwd=Path.cwd()).stdout


def test_only_the_owner_reads_a_run_unless_it_is_shared(capfd: pytest.CaptureFixture[str]) -> None:
    finished(["git", "init", "-q"], cwd=Path.cwd())
    before, umask = files_of_git(), os.umask(0o022)
    try:
        for option, expected in (((), 0o700), (("--shared",), 0o755)):
            name = f"of{expected:o}"
            assert main(["run", "--out", f"new/{name}", *option, "--", "true"]) == 0
            assert main(["report", f"new/{name}"]) == 0
            assert mode(f"new/{name}") == expected
        sides = ("--before", shlex.join(command(8)), "--after", shlex.join(command(9)))
        assert main(["compare", *sides, "--pairs", "1", "--anyway", "--out", "sides"]) == 0
        assert mode("sides") == mode("sides/01-before") == 0o700
        assert mode("new") == 0o755, "the folder above is the user's"
        assert main(["report", "new/of700", "--out", "mine.html"]) == 0
        assert mode("mine.html") == 0o644
    finally:
        os.umask(umask)
    assert files_of_git().replace("?? mine.html\n", "") == before


def test_a_refusal_leaves_no_folder(capfd: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path().iterdir())
    assert main(["compare", "no-run", "no-other", "--out", "new/out"]) == 2
    assert main(["check", "--baseline", "none.json", "--out", "new/out", "--", *command()]) == 2
    assert sorted(Path().iterdir()) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root may change its user")
@pytest.mark.parametrize("when", [0, 3])
def test_a_program_that_gives_up_its_user_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str], when: int) -> None:
    drop = f"    if round == {when}: import os; os.setuid(65534)\n"
    script(tmp_path, MARKED.replace('    with marks.region("tokenize")', drop + '    with marks.region("tokenize")'))
    assert main(["run", "--out", "run", "--", sys.executable, "train.py", "8"]) == 0
    printed = capfd.readouterr()
    assert printed.out.count("round") >= 8
    # the files of the first steps are open by then, and take what follows
    assert printed.err.count("recording stopped") == (when == 0)
    assert "Traceback" not in printed.err
    assert load(Path("run")).info.state == "complete"


def test_python_leaves_arguments_out_too(tmp_path: Path) -> None:
    text = "import profiler\nwith profiler.record('run', arguments=False, shared=True): pass\n"
    done = finished([sys.executable, script(tmp_path, text), "--api-key", "hunter1"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "run").info.argv == (sys.executable, str(tmp_path / "train.py"), "***")
    assert mode("run") != 0o700


# ---------------------------------------------------------------- a masked command is not started


def test_a_masked_command_is_not_started(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--out", "new", "--", "python", "train.py", "--api-key", "***"]) == 2
    said = capfd.readouterr().err
    assert said == (
        "error: cannot start python: the value in '--api-key ***' was not recorded: write it in place of ***\n"
    )
    assert not Path("new").exists()
