"""The frame keeps its word: the wheel, the pins, the documents, the scripts, and nothing of any one machine in them."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import profiler
from profiler.core.errors import Exit
from profiler.core.plugins import discover

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("profiler", "reference_trainer")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OF_ONE_MACHINE = re.compile(
    r"(?<![\w.])/(?:work|root)/"  # folders of one machine
    r"|/tmp/v/|(?<![\w.])/home/(?!some)\w"
    r"|pypi\.org|pythonhosted\.org|download\.pytorch\.org|--(?:extra-)?index-url"  # registries: pip's own business
    r"|(?<![\d.])(?:10\.\d+|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d+\.\d+(?![\d.])"  # private addresses
)


def requirements() -> dict[str, str]:
    """Package -> version of requirements.txt and requirements-dev.txt."""
    pins: dict[str, str] = {}
    for file in ("requirements.txt", "requirements-dev.txt", "requirements-docs.txt"):
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
            if not line.startswith(("#", "-r ")):
                name, _, version = line.partition("==")
                assert re.fullmatch(r"\d[\w.]*", version), f"{file}: {line!r} is no pin"
                assert canonicalize_name(name) not in pins, f"{file}: {name} is pinned twice"
                pins[canonicalize_name(name)] = version
    return pins


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_wheel_holds_the_two_packages_and_all_of_them(tmp_path: Path) -> None:
    if int(__import__("setuptools").__version__.partition(".")[0]) < 77:
        pytest.skip("setuptools is older than 77")
    source = tmp_path / "source"
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "dist", "*.egg-info", "*.nbi", "*.nbc")
    shutil.copytree(ROOT, source, ignore=unwanted)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", build, tmp_path], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"training_profiler-{profiler.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        scripts = archive.read(f"training_profiler-{profiler.__version__}.dist-info/entry_points.txt").decode()
    files = {
        path.relative_to(source).as_posix()
        for package in PACKAGES
        for path in (source / package).rglob("*")
        if path.is_file()
    }
    assert held == files, f"more: {sorted(held - files)}; missing: {sorted(files - held)}"
    assert "[console_scripts]\ntraining-profiler = profiler.__main__:main\n" in scripts
    assert "[training_profiler.trainers]\nlm = reference_trainer.report.trainers:LM\n" in scripts


def test_nothing_of_one_machine_in_tracked_files() -> None:
    found = []
    for path in tracked():
        content = path.read_bytes()
        if b"\0" in content or path == Path(__file__).resolve():
            continue
        for number, line in enumerate(content.decode("utf-8").splitlines(), start=1):
            if match := OF_ONE_MACHINE.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match.group()}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line", ["cd /work/main", "'/root/.cache'", "/home/anna/x", "https://pypi.org/simple", "10.0.0.3"]
)
def test_texts_of_one_machine(line: str) -> None:
    assert OF_ONE_MACHINE.search(line)


@pytest.mark.parametrize("line", ["reports/work/x", "version 10.2.1", "/home/someone/.cache", "the root/ folder"])
def test_texts_of_no_machine(line: str) -> None:
    assert not OF_ONE_MACHINE.search(line)


def test_dependencies_are_pinned_within_their_bounds_and_explained() -> None:
    pins = requirements()
    extras = PYPROJECT["project"]["optional-dependencies"]
    explained = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Dependencies")[2]
    assert set(extras) == {"cuda", "cuda12", "dev", "docs", "frames", "mcp", "ray", "trainer"}
    for text in [*PYPROJECT["project"]["dependencies"], *(text for extra in extras.values() for text in extra)]:
        wanted = Requirement(text)
        if wanted.name == PYPROJECT["project"]["name"]:
            continue
        version = pins.get(canonicalize_name(wanted.name))
        assert version is not None, f"{wanted.name} has no pin"
        assert wanted.specifier.contains(version), f"{wanted.name}=={version} is outside {wanted.specifier}"
        assert re.search(rf"\b{re.escape(wanted.name)}\b", explained), (
            f"{wanted.name} is not explained in ARCHITECTURE.md"
        )


def test_commands_of_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
    assert {"help", "compare", "test", "test-all", "lint", "bench", "docs", "package", "gpu", "clean"} <= targets
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        code = "\n".join([*re.findall(r"^ {4}(.*)$", text, re.MULTILINE), *re.findall(r"`([^`]+)`", text)])
        named = set(re.findall(r"\bmake ([a-z-]+)", code))
        assert named, f"{name} names no target"
        assert named <= targets, f"{name}: no such target: {named - targets}"


def test_profiler_commands_of_the_readme_exist() -> None:
    present = {command.name for command in discover("profiler.commands")}
    named = set(re.findall(r"python -m profiler ([a-z]+)", README))
    assert {"run", "report", "compare", "check"} <= named
    assert named <= present, f"no such command: {named - present}"


def test_links_of_the_documents_lead_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}, which is not there"


ENDED = (128 + signal.SIGPIPE, 128 + signal.SIGTERM)
"""Exit codes of shells for a program that a signal ended."""


def test_documented_exit_codes_are_those_of_the_program() -> None:
    table = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == sorted([*Exit, *ENDED])


def test_report_template_needs_no_declaration() -> None:
    """Package data goes by suffix: a suffix that is not listed would be left out of the wheel in silence."""
    listed = {Path(pattern).suffix or pattern for pattern in PYPROJECT["tool"]["setuptools"]["package-data"]["*"]}
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    used = {path.suffix or path.name for path in files if path.parent.name != "__pycache__"}  # others may fill it now
    assert used - {".py"} <= listed | {".typed"}


# ---------------------------------------------------------------- the scripts behind make


def run(script: str, *arguments: str, path: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(path) if path else "/usr/bin:/bin", **more}
    bash = shutil.which("bash") or "/bin/bash"
    return subprocess.run(
        [bash, str(ROOT / "scripts" / script), *arguments], env=environment, capture_output=True, text=True, check=False
    )


def program(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "python9 not found; install Python 3.11 or newer"),
        ('case "$1" in --version) echo Python 3.9.2 ;; *) exit 1 ;; esac', "Python 3.9.2 at"),
        ('case "$2" in *ensurepip*) exit 1 ;; *) exit 0 ;; esac', "has no venv module"),
    ],
)
def test_setup_needs_a_new_python_with_venv(tmp_path: Path, body: str, said: str) -> None:
    python = program(tmp_path, "python3", body) if body else tmp_path / "python9"
    done = run("setup-venv.sh", str(python), str(tmp_path / "venv"), "requirements.txt")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


def test_setup_never_installs_into_a_python_that_is_no_venv(tmp_path: Path) -> None:
    """A half-made environment whose python is a link to the system's: it is made again before pip is called."""
    said = tmp_path / "said"
    stub = f'echo "$*" >>{said}; case "$*" in *base_prefix*) exit 1 ;; *"-m venv"*) exit 7 ;; esac'
    half_made = tmp_path / "venv" / "bin"
    half_made.mkdir(parents=True)
    python = program(half_made, "python", stub)
    done = run("setup-venv.sh", str(python), str(tmp_path / "venv"), "requirements.txt")
    calls = said.read_text(encoding="utf-8")
    assert done.returncode == 7, calls
    assert f"-m venv --clear {tmp_path}/venv" in calls
    assert "pip install" not in calls


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ({"chromium": ""}, "browser: "),
        ({}, "not a Debian-like system"),
        ({"apt-get": "exit 1", "id": "echo 1000"}, "only root may install it"),
        (
            {"apt-get": "echo 'E: no network' >&2; exit 100", "id": "echo 0"},
            "could not install Chromium: E: no network",
        ),
        ({"apt-get": "exit 0", "id": "echo 0"}, "apt-get installed no chromium program"),
    ],
)
def test_browser_is_never_an_error(tmp_path: Path, programs: dict[str, str], said: str) -> None:
    for name in ("mktemp", "rm", "grep", "tail"):
        (tmp_path / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    for name, body in programs.items():
        program(tmp_path, name, body)
    done = run("install-browser.sh", path=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('echo "no NVIDIA driver on this machine"', "no CUDA device for {python}: no NVIDIA driver"),
        ('echo "No module named numpy" >&2; exit 1', "cannot run the trainer: No module named numpy"),
    ],
)
def test_gpu_script_needs_a_gpu_and_the_trainer(tmp_path: Path, body: str, said: str) -> None:
    python = program(tmp_path, "python3", body)
    done = run("gpu.sh", str(python))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said.format(python=python) in done.stderr


def test_baselines_of_the_makefile_are_there() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in ("counters-", "counters-sweep-"):
        assert f"--baseline .ci/{name}$$" in text
        for variant in ("as-found", "fixed"):
            assert (ROOT / ".ci" / f"{name}{variant}.json").is_file()


GPU_STAGES = """
echo "$*" >>"$CALLS"
case "$*" in
  *"-m pytest"*) echo "1 failed"; exit 1 ;;
  *"-m profiler compare --device"*)
    while [ "$1" != --out ]; do shift; done
    mkdir -p "$2/01-fixed"; for form in html md json; do echo "$form" >"$2/compare.$form"; done ;;
  *bench_gpu.py* | *bench_gpu_sweep.py*)
    while [ "$1" != --out ]; do shift; done
    echo '{}' >"$2" ;;
esac
"""
TIMEOUT = """
echo "limit $3 $4" >>"$CALLS"
ls "$OUT" >>"$CALLS"
shift 4
"$@"
code=$?
case "$*" in *"$CUT"*) exit 124 ;; esac
exit $code
"""
"""Stands for `timeout`: writes down the limits and what is in the folder, and says of one stage that it was cut off."""
REPORTS = ["compare.html", "compare.json", "compare.md", "environment.txt", "runs.tar.gz"]


@pytest.fixture
def gpu_script(tmp_path: Path) -> Callable[..., tuple[subprocess.CompletedProcess[str], list[str]]]:
    """Runs a copy of gpu.sh with a Python that does nothing; gives what was called, line by line."""
    script, calls, tools = tmp_path / "scripts" / "gpu.sh", tmp_path / "calls", tmp_path / "tools"
    script.parent.mkdir()
    tools.mkdir()
    shutil.copy(ROOT / "scripts" / "gpu.sh", script)  # it works in the folder above its own
    program(tools, "timeout", TIMEOUT)

    def start(*options: str, cut: str = "no stage", stages: str = GPU_STAGES) -> Any:
        python = program(tmp_path, "python3", stages)
        more = {"OUT": str(tmp_path / "out"), "CALLS": str(calls), "CUT": cut, "PATH": f"{tools}:/usr/bin:/bin"}
        done = run(str(script), str(python), *options, **more)
        return done, calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []

    return start


def test_gpu_script_goes_on_and_leaves_everything_in_one_folder(gpu_script: Any, tmp_path: Path) -> None:
    """Tests that fail do not keep the rest from being measured, and are not forgotten."""
    done, calls = gpu_script("--seconds", "2")
    assert done.returncode == 1, done.stderr
    assert "tests: exit code 1" in done.stderr
    out = tmp_path / "out"
    found = sorted(path.name for path in out.iterdir())
    assert found == sorted([*REPORTS, "bench_gpu.json", "bench_gpu_sweep.json", "tests.txt"])
    assert (out / "tests.txt").read_text(encoding="utf-8") == "1 failed\n"
    assert "CPU cores" in (out / "environment.txt").read_text(encoding="utf-8")
    [compare] = (call for call in calls if "profiler compare --device" in call)
    assert compare.endswith(" --seconds 2")
    assert "--preset gpu --pairs 3 " in compare
    assert "--pairs 3 " in next(call for call in calls if "bench_gpu_sweep.py" in call)


def test_gpu_script_probes_first_and_runs_what_is_worth_most_first(gpu_script: Any) -> None:
    _, calls = gpu_script()
    names = ("cuda_probe", "compare --help", "compare --device", "bench_gpu.py", "-m pytest", "bench_gpu_sweep.py")
    positions = [next(number for number, call in enumerate(calls) if name in call) for name in names]
    assert positions == sorted(positions)


def test_gpu_script_plans_seven_minutes(gpu_script: Any) -> None:
    done, calls = gpu_script()
    limits = [[int(word.rpartition("=")[2]) for word in call.split()[1:]] for call in calls if call.startswith("limit")]
    planned = [grace + limit for grace, limit in limits]
    assert len(planned) == 4
    assert sum(planned) <= 420
    said = re.findall(r"== (\w+) \(at most (\d+) s\)", done.stderr)
    assert [int(seconds) for _, seconds in said] == planned
    page = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\w+) \| (\d+) s \|", page, re.MULTILINE) == said


@pytest.mark.parametrize("cut", ["profiler compare", "bench_gpu.py", "bench_gpu_sweep.py"])
def test_gpu_script_keeps_what_a_stage_left_that_was_cut_off(gpu_script: Any, tmp_path: Path, cut: str) -> None:
    done, calls = gpu_script(cut=cut)
    assert done.stderr.count("stopped at its limit") == 1
    files = {"bench_gpu.json", "bench_gpu_sweep.json", "tests.txt", *REPORTS}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files
    begun: list[set[str]] = []
    for call in calls:
        if call.startswith("limit"):
            begun.append(set())
        elif call in files:
            begun[-1].add(call)
    begun[2].discard("tests.txt")  # tee has it before the tests begin, or not yet
    reports = set(REPORTS)
    expected = [{"environment.txt"}, reports, reports | {"bench_gpu.json"}, files - {"bench_gpu_sweep.json"}]
    assert begun == expected, "a stage leaves its results before the next one begins"


@pytest.mark.parametrize("broken", ["gpu_packages", "compare --help"])
def test_gpu_script_names_what_is_missing_before_any_stage(gpu_script: Any, tmp_path: Path, broken: str) -> None:
    lacks = broken == "gpu_packages"
    says = "echo 'it lacks pydantic, zstandard'" if lacks else "echo 'no such module' >&2; exit 1"
    done, calls = gpu_script(stages=f'case "$*" in *"{broken}"*) {says}; exit ;; esac')
    said = "it lacks pydantic, zstandard" if lacks else "no such module"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {tmp_path / 'python3'} cannot run the comparison: {said}\n"
    assert not calls, "no stage was started"
    assert not (tmp_path / "out").exists()
