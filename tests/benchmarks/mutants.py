"""Mutation test: how many seeded faults in a folder of the product are found by its own tests?

    python tests/benchmarks/mutants.py --mutants 200 profiler/analyse=tests/analyse profiler/run=tests/run

Each mutant changes one comparison, operator, boolean, constant or returned value of one file in a copy of the tree, and
runs the tests of that folder with `pytest -x`. A mutant that no test finds has survived. Each survivor is printed
with the killed share and its 95% interval. Two versions of the code have different mutants, so compare the shares.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240
"""A mutant that hangs counts as killed; the slowest test folder takes a fifth of this."""
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    file: Path
    tests: str
    line: int
    change: str
    source: str


def mutate(node: ast.AST) -> str:
    """Change `node` in place; a description, or "" if this kind of node has no mutation."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        old = type(node.ops[0])
        node.ops[0] = COMPARISONS[old]()
        return f"{old.__name__} -> {COMPARISONS[old].__name__}"
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        old_operator = type(node.op)
        node.op = OPERATORS[old_operator]()
        return f"{old_operator.__name__} -> {OPERATORS[old_operator].__name__}"
    if isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return "and <-> or"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.op = ast.UAdd()
        node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        return "not removed"
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        node.value += 1
        return f"{node.value - 1} -> {node.value}"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
        return f"{not node.value} -> {node.value}"
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        node.value = ast.Constant(None)
        return "returns None"
    return ""


def mutable(tree: ast.AST) -> list[int]:
    """Positions, in the order of `ast.walk`, of the nodes inside functions that have a mutation."""
    inside = {id(child) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for child in ast.walk(node)}
    annotations = {
        id(child)
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
        for child in ast.walk(part)
    }
    return [
        position
        for position, node in enumerate(ast.walk(tree))
        if id(node) in inside and id(node) not in annotations and mutate(copy.deepcopy(node))
    ]


def choose(folders: dict[str, str], count: int, seed: int) -> list[Mutant]:
    """`count` mutants, drawn evenly from all mutable nodes of the folders."""
    sites = []
    for folder, tests in folders.items():
        for file in sorted((ROOT / folder).rglob("*.py")):
            sites += [(file, tests, position) for position in mutable(ast.parse(file.read_text(encoding="utf-8")))]
    mutants = []
    for file, tests, position in random.Random(seed).sample(sites, min(count, len(sites))):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        node = list(ast.walk(tree))[position]
        change = mutate(node)
        source = ast.unparse(ast.fix_missing_locations(tree))
        mutants.append(Mutant(file.relative_to(ROOT), tests, getattr(node, "lineno", 0), change, source))
    return mutants


def pytest_command(tests: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", "120", *tests.split(",")]


def is_killed(mutant: Mutant, tree: Path) -> bool:
    original = (tree / mutant.file).read_text(encoding="utf-8")
    (tree / mutant.file).write_text(mutant.source, encoding="utf-8")
    try:
        return (
            subprocess.run(
                pytest_command(mutant.tests), cwd=tree, capture_output=True, timeout=TIMEOUT_S, check=False
            ).returncode
            != 0
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        (tree / mutant.file).write_text(original, encoding="utf-8")


def wilson(killed: int, total: int) -> tuple[float, float]:
    """95% interval of a share (Wilson, JASA 1927)."""
    z, share = 1.96, killed / total
    middle, half = share + z * z / (2 * total), z * (share * (1 - share) / total + z * z / (4 * total * total)) ** 0.5
    return (middle - half) / (1 + z * z / total), (middle + half) / (1 + z * z / total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER=TESTS", help="several test folders are joined by commas")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    mutants = choose(dict(folder.split("=") for folder in args.folders), args.mutants, args.seed)
    ignored = shutil.ignore_patterns(".git", ".venv", ".mypy_cache", ".ruff_cache", "reports", "build", "_build")
    trees: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.processes) as pool:
        for number in range(args.processes):
            shutil.copytree(ROOT, Path(folder) / str(number), ignore=ignored)
            trees.put(Path(folder) / str(number))

        def run(mutant: Mutant) -> bool:
            tree = trees.get()
            try:
                return is_killed(mutant, tree)
            finally:
                trees.put(tree)

        for tests in {mutant.tests for mutant in mutants}:
            check = subprocess.run(
                pytest_command(tests), cwd=Path(folder) / "0", capture_output=True, text=True, check=False
            )
            if check.returncode:
                sys.exit(f"{tests} fails without a mutation:\n{check.stdout[-1500:]}")
        killed = 0
        for number, (mutant, result) in enumerate(zip(mutants, pool.map(run, mutants), strict=True), start=1):
            killed += result
            if not result:
                print(f"{number}: survived: {mutant.file}:{mutant.line}: {mutant.change}", flush=True)
    low, high = wilson(killed, len(mutants))
    print(f"killed {killed} of {len(mutants)}: {killed / len(mutants):.1%} (95%: {low:.1%} to {high:.1%})")


if __name__ == "__main__":
    main()
