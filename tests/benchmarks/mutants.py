"""Mutation test: how many of a sample of seeded faults do the tests find?

    python -m tests.benchmarks.mutants profiler/analyse profiler/check profiler/run -n 200 --seed 1

Each mutant changes one comparison, operator, condition, constant or return value of one source file in a copy of the
tree and runs `pytest -x -q` on its test folder there: `profiler/check/speed/interleave.py` runs tests/check, first the
tests of tests/check/speed. `--tree` names another checkout. The tests must pass without a mutant; a run that takes
more than five times as long, and at least a minute, counts as killed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from scipy.stats import beta

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_IGNORED: Final = (".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")


@dataclass(frozen=True)
class Mutant:
    """A change of one node of a file."""

    file: Path
    """Relative to the tree."""
    index: int
    """Position of the node in the order of `ast.walk`."""
    line: int
    kind: str


def mutation(node: ast.AST) -> tuple[str, ast.AST] | None:
    """The kind of mutation of a node and the node that replaces it; None if it has no mutation."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in _COMPARISONS:
        new.ops[0] = _COMPARISONS[type(new.ops[0])]()
        return "comparison", new
    if isinstance(new, ast.BinOp) and type(new.op) in _OPERATORS and not _is_text(new):
        new.op = _OPERATORS[type(new.op)]()
        return "arithmetic", new
    if isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
        return "boolean", new
    if isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        return "boolean", new.operand
    if isinstance(new, ast.Constant) and isinstance(new.value, int | float):
        new.value = not new.value if isinstance(new.value, bool) else new.value + 1
        return "constant", new
    if isinstance(new, ast.Return) and new.value is not None and not _is_none(new.value):
        new.value = ast.Constant(None)
        return "return", new
    return None


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def possible_mutants(tree: Path, folders: Sequence[str]) -> Iterator[Mutant]:
    """Every mutant of the functions in some folders or files; annotations and module constants are not mutated."""
    for folder in folders:
        root = tree / folder
        for path in [root] if root.is_file() else sorted(root.rglob("*.py")):
            module = ast.parse(path.read_text(encoding="utf-8"))
            inside = {id(node) for function in ast.walk(module) if isinstance(function, ast.FunctionDef)
                      for statement in function.body for node in ast.walk(statement)}  # fmt: skip
            texts = (text for text in ast.walk(module) if isinstance(text, ast.JoinedStr))
            inside -= {id(node) for text in texts for node in ast.walk(text)}  # these have no exact position
            for index, node in enumerate(ast.walk(module)):
                if id(node) in inside and (change := mutation(node)):
                    yield Mutant(path.relative_to(tree), index, getattr(node, "lineno", 0), change[0])


def mutated_source(source: str, index: int) -> str:
    """The source with the node at `index` mutated; all other lines keep their numbers."""
    node = list(ast.walk(ast.parse(source)))[index]
    change = mutation(node)
    assert change is not None
    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = source.encode().splitlines(keepends=True)  # column offsets count bytes
    starts = [0, *accumulate(map(len, lines))]
    begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    new = ast.unparse(change[1])
    if isinstance(node, ast.expr):
        new = f"({new}{chr(10) * (node.end_lineno - node.lineno)})"
    else:
        new += "\n" * (node.end_lineno - node.lineno)
    data = source.encode()
    return (data[:begin] + new.encode() + data[end:]).decode()


def tests_pass(tree: Path, tests: Sequence[str], limit: float | None) -> bool:
    """Whether all tests pass within so many seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)}
    process = subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(limit) == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return False


def own_tests(tree: Path, file: Path) -> list[str]:
    """The test folder of a source file, preceded by the folder inside it that mirrors the source's subfolder."""
    package = Path("tests", file.parts[1])
    mirror = Path("tests", *file.parts[1:-1])
    return [str(folder) for folder in dict.fromkeys((mirror, package)) if (tree / folder).is_dir()]


def interval(killed: int, total: int) -> tuple[float, float]:
    """The 95% interval of a rate, after Clopper and Pearson."""
    low = float(beta.ppf(0.025, killed, total - killed + 1)) if killed else 0.0
    high = float(beta.ppf(0.975, killed + 1, total - killed)) if killed < total else 1.0
    return low, high


def main() -> None:
    """Draw the mutants, try each one, and print the share that the tests kill."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="+", help="folders or files of the tree to mutate")
    parser.add_argument("--tree", type=Path, default=Path.cwd())
    parser.add_argument("-n", "--number", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    every = list(possible_mutants(args.tree, args.sources))
    chosen = random.Random(args.seed).sample(every, min(args.number, len(every)))
    with TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(args.tree, tree, symlinks=True, ignore=shutil.ignore_patterns(*_IGNORED))
        limits: dict[str, float] = {}
        for package in sorted({own_tests(tree, mutant.file)[-1] for mutant in chosen}):
            began = time.monotonic()
            if not tests_pass(tree, [package], None):
                raise SystemExit(f"{package} does not pass without a mutant")
            took = time.monotonic() - began
            limits[package] = max(60.0, 5 * took)
            print(f"{package} takes {took:.0f} s", flush=True)
        print(f"{len(every)} possible mutants", flush=True)
        killed = 0
        for number, mutant in enumerate(chosen, 1):
            path = tree / mutant.file
            source = path.read_text(encoding="utf-8")
            path.write_text(mutated_source(source, mutant.index), encoding="utf-8")
            tests = own_tests(tree, mutant.file)
            survived = tests_pass(tree, tests, limits[tests[-1]])
            path.write_text(source, encoding="utf-8")
            killed += not survived
            what = f"{mutant.file}:{mutant.line} {mutant.kind}"
            print(f"{number}/{len(chosen)} {'SURVIVED' if survived else 'killed  '} {what}", flush=True)
    low, high = interval(killed, len(chosen))
    print(f"killed {killed} of {len(chosen)}: {killed / len(chosen):.0%} (95% interval {low:.0%} to {high:.0%})")


if __name__ == "__main__":
    main()
