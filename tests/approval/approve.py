"""Writes the approved outputs anew and says what has changed: `python -m tests.approval.approve [NAME ...]`.

Each case has two files in `approved/`: NAME.json holds the numbers and the structure of the JSON document, NAME.txt all
sentences and texts. A change of words alone leaves every .json file, and every number in the .txt files, as it was.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.approval.cases import Output, cases, numbers, words

APPROVED: Final = Path(__file__).parent / "approved"
TOLERANCE: Final = 1e-9
"""Relative, of floating-point numbers: another processor rounds a sum differently."""
_NUMBER: Final = re.compile(r"\d[\d,.]*\d|\d")


def differences(approved: Any, current: Any, path: str = "") -> Iterator[str]:
    """Where two JSON documents differ in structure or numbers."""
    if isinstance(approved, dict) and isinstance(current, dict):
        for key in sorted(approved.keys() | current.keys()):
            if key not in current:
                yield f"{path}.{key}: is gone"
            elif key not in approved:
                yield f"{path}.{key}: is new"
            else:
                yield from differences(approved[key], current[key], f"{path}.{key}")
    elif isinstance(approved, list) and isinstance(current, list):
        if len(approved) != len(current):
            yield f"{path}: {len(approved)} items became {len(current)}"
        for index, (old, new) in enumerate(zip(approved, current, strict=False)):
            yield from differences(old, new, f"{path}[{index}]")
    elif not _same(approved, current):
        yield f"{path}: {approved!r} became {current!r}"


def _same(approved: Any, current: Any) -> bool:
    if isinstance(approved, float) and isinstance(current, float):
        return math.isclose(approved, current, rel_tol=TOLERANCE, abs_tol=1e-15)
    return type(approved) is type(current) and approved == current


def read(name: str) -> tuple[Any, str]:
    """The approved numbers and words of a case."""
    document = json.loads((APPROVED / f"{name}.json").read_text())
    return document, (APPROVED / f"{name}.txt").read_text()


def numbers_in(text: str) -> list[str]:
    """The numbers that a text shows, sorted: a row that moves changes none."""
    return sorted(_NUMBER.findall(text))


def _write(name: str, output: Output) -> None:
    APPROVED.mkdir(exist_ok=True)
    (APPROVED / f"{name}.json").write_text(json.dumps(numbers(output.document), indent=1) + "\n")
    (APPROVED / f"{name}.txt").write_text(words(output))


def main(names: list[str]) -> None:
    existing = {path.stem for path in APPROVED.glob("*.json")}
    every = cases()
    for name in sorted(existing - every.keys()):
        print(f"{name}: there is no such case any more; its files are removed")
        for suffix in (".json", ".txt"):
            (APPROVED / f"{name}{suffix}").unlink(missing_ok=True)
    counts = {"new": 0, "unchanged": 0, "words only": 0, "numbers within texts": 0, "NUMBERS OR STRUCTURE": 0}
    for name in names or every:
        output = every[name]()
        if name not in existing:
            _write(name, output)
            counts["new"] += 1
            continue
        document, text = read(name)
        changed = list(differences(document, numbers(output.document)))
        current = words(output)
        if changed:
            kind = "NUMBERS OR STRUCTURE"
        elif text == current:
            kind = "unchanged"
        else:
            kind = "words only" if numbers_in(text) == numbers_in(current) else "numbers within texts"
        counts[kind] += 1
        if kind != "unchanged":
            print(f"{name}: {kind}", *changed[:10], sep="\n    ")
            _write(name, output)
    print("; ".join(f"{count} {kind}" for kind, count in counts.items() if count))


if __name__ == "__main__":
    main(sys.argv[1:])
