"""The table of public programs in reports/virtual-cuda/README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_HEAD: Final = """# Public programs on virtual CUDA devices

`python -m tests.exact.public FOLDER` wrote this page and `programs.jsonl`, which has the commits, the arguments and
the counts. It ran each program without any change on the CPU, and on virtual devices under
`python -m profiler run --virtual-cuda`. Data is synthetic and small, in the format that the program reads.

- **steps**: calls of `step()` of optimizers. After each one, a checksum of all parameters and gradients is noted;
  "equal" means that the checksums of both runs are the same, so that losses are, too.
- **printed**: losses and scores in the program's output. "equal" means that both runs printed the same.
- **waits**: how often the host waited for a device, at how many lines of the script, and whether that is what a
  reader counted by hand for each line of the script ("-": nobody has counted).

| program | steps | printed | waits | by hand |
|---|---|---|---|---|
"""


def write_table(folder: Path) -> None:
    """Write README.md from programs.jsonl."""
    lines = (folder / "programs.jsonl").read_text(encoding="utf-8").splitlines()
    results: list[dict[str, Any]] = [json.loads(line) for line in lines]
    rows = "".join(map(_row, results))
    finished = sum(result["exit"][1] == 0 for result in results)
    equal = sum(map(_is_equal, results))
    alike = sum(not result["differs"] for result in results)
    counted = [result for result in results if result["by_hand"]]
    agreeing = sum(result["by_hand"] == _of_script(result) for result in counted)
    end = (
        f"\n{finished} of {len(results)} programs finished on virtual devices. {equal} of {alike} that do the same on "
        "both devices had equal results. "
        f"The waits of {agreeing} of {len(counted)} programs are those counted by hand.\n"
    )
    (folder / "README.md").write_text(_HEAD + rows + end, encoding="utf-8")


def _is_equal(result: dict[str, Any]) -> bool:
    if result["exit"] != [0, 0] or result["differs"]:
        return False
    compared = result["equal_steps"] or (not result["steps"] and result["equal_losses"])
    return compared and (result["equal_losses"] or not result["losses"])


def _of_script(result: dict[str, Any]) -> dict[str, int]:
    return {line: number for line, number in result["waits"].items() if line != "0"}


def _row(result: dict[str, Any]) -> str:
    name = f"{result['program']}: `{result['script']}` of {result['repository'] or 'the quick start'}"
    if result["exit"][1]:
        return f"| {name} | exit code {result['exit'][1]} | | | |\n"
    steps = _compared(result["steps"], equal=result["equal_steps"], differs=result["differs"])
    printed = _compared(result["losses"], equal=result["equal_losses"], differs=result["differs"])
    own = _of_script(result)
    waits = f"{sum(result['waits'].values())} at {len(own)} lines"
    by_hand = "-" if not result["by_hand"] else "equal" if result["by_hand"] == own else "differ"
    return f"| {name} | {steps} | {printed} | {waits} | {by_hand} |\n"


def _compared(number: int, *, equal: bool, differs: str) -> str:
    if not number:
        return "-"
    return f"{number} equal" if equal else f"{number}: {differs}" if differs else f"{number} differ"
