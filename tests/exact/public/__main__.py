"""Runs public programs on the CPU and on virtual CUDA devices, and writes down whether they computed the same.

    python -m tests.exact.public FOLDER [NAME ...]

FOLDER has a checkout of each repository as `src/OWNER+NAME`. Results on the CPU stay in FOLDER/work and serve again.
The Python that runs this must have the packages that the programs import. Results go to
reports/virtual-cuda/programs.jsonl, and the table of all of them to README.md beside it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import torch

import profiler
from profiler.run.tables import CallKind
from tests.exact.public.data import MAKERS
from tests.exact.public.programs import PROGRAMS, Program
from tests.exact.public.table import write_table

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
REPORT: Final = ROOT / "reports" / "virtual-cuda"
_LIMIT_S: Final = 900.0
_NUMBER: Final = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_LOSS: Final = re.compile(rf"(?i)(?:loss|ppl|score|reward|acc)\w*\W{{0,4}}\s*(?:tensor\()?({_NUMBER})")

_OURS: Final = re.compile(r"\d+ steps? on \d+ virtual CUDA device")
"""What the profiler prints begins with it."""


def main() -> None:
    """Run the programs that the command line names, or all."""
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    unknown = set(names) - {program.name for program in PROGRAMS}
    if unknown:
        sys.exit(f"no such program: {', '.join(sorted(unknown))}")
    for program in PROGRAMS:
        if not names or program.name in names:
            result = run(program, folder)
            save(result)
            ends = " ".join(f"{key}={value}" for key, value in result.items() if key not in ("waits", "by_hand"))
            print(ends, flush=True)
    write_table(REPORT)


def save(result: dict[str, Any]) -> None:
    """Replace the program's line in the file of results."""
    REPORT.mkdir(parents=True, exist_ok=True)
    path = REPORT / "programs.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    results = {entry["program"]: entry for entry in map(json.loads, lines)} | {result["program"]: result}
    ordered = [results[program.name] for program in PROGRAMS if program.name in results]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in ordered), encoding="utf-8")


def run(program: Program, folder: Path) -> dict[str, Any]:
    """Run one program on both devices and compare."""
    trials = [trial(program, folder, virtual=virtual) for virtual in (False, True)]
    (cpu, cpu_steps, _), (gpu, gpu_steps, waits) = trials
    losses = [_LOSS.findall(_OURS.split(done.stdout)[0]) for done in (cpu, gpu)]
    result: dict[str, Any] = {
        "program": program.name,
        "repository": program.source[0],
        "commit": program.source[1],
        "script": program.script,
        "arguments": f"{program.arguments} {program.on_gpu}".strip(),
        "ranks": program.ranks,
        "torch": torch.__version__,
        "exit": [cpu.returncode, gpu.returncode],
        "steps": len(cpu_steps),
        "equal_steps": bool(cpu_steps) and cpu_steps == gpu_steps,
        "losses": len(losses[0]),
        "equal_losses": bool(losses[0]) and losses[0] == losses[1],
        "differs": program.differs,
        "waits": {str(line): number for line, number in sorted(waits.items())},
        "by_hand": {str(line): number for line, number in sorted(program.waits.items())},
    }
    return result


def trial(program: Program, folder: Path, *, virtual: bool) -> tuple[Any, list[str], Counter[int]]:
    """Run a program once: the finished process, a checksum for each step, and the waits of each line of the script."""
    source = HERE / "quick" if not program.source[1] else folder / "src" / program.source[0].replace("/", "+")
    device = "gpu" if virtual else "cpu"
    base = folder / "work" / program.name / device
    work = base / "a" / "b" / "c"  # programs look for data in folders above the current one
    data = folder / "data" / program.data
    places = {"data": str(data), "source": str(source)}
    script = str(source / program.script)
    arguments = shlex.split(f"{program.arguments} {program.on_gpu if virtual else program.on_cpu}".format(**places))
    notes = base / "steps.txt"
    command = [sys.executable, str(HERE / "witness.py"), str(notes), script, *arguments]
    if program.ranks > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={program.ranks}"]
        command = [sys.executable, *launcher, script, *arguments]
    if virtual:
        record = ["run", "--out", str(base / "run"), "--virtual-cuda", str(program.ranks)]
        command = [sys.executable, "-m", "profiler", *record, "--", *command]
    output = base / "output.json"
    kept = json.loads(output.read_text(encoding="utf-8")) if output.exists() and not virtual else {}
    if (kept.get("args"), kept.get("returncode")) == (command, 0):
        return subprocess.CompletedProcess(**kept), _lines(notes), Counter()
    shutil.rmtree(base, ignore_errors=True)
    work.mkdir(parents=True)
    for name in program.folders:
        (work / name).mkdir()
    for name in program.links:
        (work / name).symlink_to(source / name)
    if program.data and not data.exists():
        data.mkdir(parents=True)
        MAKERS[program.data](data)
    if program.data_at:
        shutil.copytree(data, work / program.data_at.format(**places), dirs_exist_ok=True)
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg", "WANDB_MODE": "disabled",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(work), str(source), *sys.path[1:]]),
    }  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        done = subprocess.CompletedProcess(command, 124, "", f"no end after {_LIMIT_S} s")
    output.write_text(json.dumps(vars(done)), encoding="utf-8")
    return done, _lines(notes), waits(base / "run", script) if virtual and (base / "run").exists() else Counter()


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def waits(path: Path, script: str) -> Counter[int]:
    """How often the host waited at each line of the script, in the whole run; line 0: at all other lines."""
    run = profiler.load(path)
    counts: Counter[int] = Counter()
    for call in run.calls:
        kind, name = CallKind(int(call["kind"])), run.names[call["name"]]
        if kind is CallKind.SYNC or (kind in (CallKind.H2D, CallKind.D2H) and not name.endswith("non-blocking")):
            site = run.sites[call["site"]] if call["site"] >= 0 else None
            counts[site.line if site is not None and site.file == script else 0] += 1
    return counts


if __name__ == "__main__":
    main()
