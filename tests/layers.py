"""The directions of imports between the rooms, and a checker of them that reads the source with `ast`.

An import counts wherever it stands: at the top, inside a function, below TYPE_CHECKING, or as import_module("...").
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OURS = ("profiler", "reference_trainer")

# room: what it may import of ours, beside itself. The longest name that fits a module is its room.
ROOMS: dict[str, tuple[str, ...]] = {
    "profiler": (
        "profiler.marks",
        "profiler.record",
        "profiler.run",
        "profiler.analyse",
        "profiler.diagnose",
        "profiler.report",
        "profiler.exact",
        "profiler.core",
    ),
    "profiler.__main__": ("profiler.core",),
    "profiler.pytest_plugin": ("profiler.exact",),
    "profiler.mcp": (
        "profiler.check.counters.files",
        "profiler.check.modes",
        "profiler.lint",
        "profiler.report",
        "profiler.diagnose",
        "profiler.analyse",
        "profiler.run",
        "profiler.core",
    ),
    "profiler.commands": (
        "profiler.mcp",
        "profiler.check",
        "profiler.knockout",
        "profiler.lint",
        "profiler.exact.model",
        "profiler.report",
        "profiler.diagnose",
        "profiler.analyse",
        "profiler.run",
        "profiler.record",
        "profiler.core",
    ),
    "profiler.lint": (
        "profiler.check",
        "profiler.report.blocks",
        "profiler.report.next_step",
        "profiler.report.text",
        "profiler.diagnose",
        "profiler.analyse",
        "profiler.run",
        "profiler.core",
    ),
    "profiler.check": (
        "profiler.report.notices",
        "profiler.report.text",
        "profiler.run.model",
        "profiler.run.tables",
        "profiler.analyse.intervals",
        "profiler.analyse.model",
        "profiler.analyse.statistics",
        "profiler.analyse.window",
        "profiler.run.code_origin",
        "profiler.analyse.timing.counters",
        "profiler.analyse.timing.counts",
        "profiler.analyse.comparability",
        "profiler.core",
    ),
    "profiler.check.model": ("profiler.core.errors",),
    "profiler.check.modes": (
        "profiler.check",
        "profiler.report",
        "profiler.diagnose",
        "profiler.analyse",
        "profiler.run",
        "profiler.record",
        "profiler.core",
    ),
    "profiler.check.outputs": (
        "profiler.check.model",
        "profiler.check.places",
        "profiler.analyse.changepoints",
        "profiler.report",
        "profiler.analyse.statistics",
        "profiler.analyse.model",
        "profiler.run.model",
        "profiler.run.tables",
        "profiler.core",
    ),
    "profiler.check.causes": (
        "profiler.check",
        "profiler.report",
        "profiler.diagnose",
        "profiler.analyse",
        "profiler.core",
    ),
    "profiler.check.diff": ("profiler.check.model", "profiler.core"),
    "profiler.check.settings": ("profiler.check", "profiler.run.store", "profiler.run.tables", "profiler.core"),
    "profiler.check.speed": (
        "profiler.check.model",
        "profiler.record",
        "profiler.run.step_detection",
        "profiler.run.model",
        "profiler.run.store",
        "profiler.run.tables",
        "profiler.core",
    ),
    "profiler.check.worktree": (
        "profiler.check.model",
        "profiler.check.speed",
        "profiler.record",
        "profiler.run.model",
        "profiler.run.tables",
        "profiler.core",
    ),
    "profiler.knockout": (
        "profiler.agent.hooks.trial_settings",
        "profiler.analyse.model",
        "profiler.check.model",
        "profiler.check.speed",
        "profiler.run.model",
        "profiler.run.tables",
        "profiler.run.trials",
        "profiler.core",
    ),
    "profiler.knockout.gate": (),
    "profiler.knockout.isolation": (),
    "profiler.report": (
        "profiler.diagnose.model",
        "profiler.analyse.model",
        "profiler.run.model",
        "profiler.run.tables",
        "profiler.run.filter",
        "profiler.run.trials",
        "profiler.core",
    ),
    "profiler.diagnose": (
        "profiler.run.code_origin",
        "profiler.run.model",
        "profiler.run.trials",
        "profiler.run.tables",
        "profiler.core",
        "profiler.analyse.model",
        "profiler.analyse.intervals",
    ),
    "profiler.analyse": (
        "profiler.run.code_origin",
        "profiler.run.model",
        "profiler.run.tables",
        "profiler.run.filter",
        "profiler.core",
    ),
    "profiler.analyse.model": (
        "profiler.run.model",
        "profiler.run.tables",
        "profiler.core.errors",
    ),
    "profiler.record": (
        "profiler.analyse.model",
        "profiler.run.model",
        "profiler.run.source",
        "profiler.run.source_text",
        "profiler.run.step_detection",
        "profiler.run.store",
        "profiler.run.tables",
        "profiler.marks",
        "profiler.core",
    ),
    "profiler.record.session": (
        "profiler.record",
        "profiler.agent",
        "profiler.marks",
        "profiler.run.model",
        "profiler.run.store",
        "profiler.run.tables",
        "profiler.core",
    ),
    "profiler.marks": ("profiler.agent.clocks", "profiler.agent.recorder", "profiler.run.tables"),
    "profiler.frameworks": ("profiler.marks",),
    "profiler.agent": ("profiler.run.tables", "profiler.core.plugins", "profiler.core.errors", "profiler.core.syntax"),
    "profiler.agent.hooks": (
        "profiler.agent",
        "profiler.exact.waits",
        "profiler.run.tables",
        "profiler.core.plugins",
        "profiler.core.errors",
        "profiler.core.syntax",
    ),
    "profiler.agent.hooks.exact": ("profiler.agent", "profiler.exact", "profiler.run.tables"),
    "profiler.exact": ("profiler.agent.patching",),
    "profiler.exact.waits": (),
    "profiler.run": ("profiler.core",),
    "profiler.run.frames": ("profiler.run", "profiler.analyse.model", "profiler.core"),
    "profiler.run.model": ("profiler.core.masking", "profiler.core.errors", "profiler.run.tables"),
    "profiler.run.tables": (),
    "profiler.core": (),
    "profiler.core.live": ("profiler.run.model",),
    "reference_trainer": ("profiler.marks",),
    "reference_trainer.report": (
        "reference_trainer.errors",
        "reference_trainer.devices",
        "reference_trainer.lm.tokenization",
        "profiler.report",
        "profiler.analyse",
        "profiler.record",
        "profiler.run.model",
        "profiler.core",
    ),
}
# third-party package: where alone it may be imported.
PLACES: dict[str, tuple[str, ...]] = {
    "psutil": ("profiler.record.collectors",),
    "pynvml": ("profiler.record.collectors",),
    "py_spy": ("profiler.record.collectors",),
    "torch": ("profiler.agent.hooks", "profiler.exact", "profiler.frameworks.meter", "reference_trainer"),
    "transformers": ("profiler.frameworks.huggingface",),
    "lightning": ("profiler.frameworks.lightning",),
    "ray": ("profiler.frameworks.ray", "reference_trainer.ssm"),
    "pandas": ("profiler.run.frames",),
    "mcp": ("profiler.mcp.server",),
}
STANDARD_LIBRARY_ONLY = (
    "profiler.marks",
    "profiler.agent",
    "profiler.run.tables",
    "profiler.core.errors",
    "profiler.core.plugins",
    "profiler.__main__",
)
"""What a recorded program imports, and what `--help` does: their start-up is someone's waiting time."""
HEAVY = ("torch", "pandas", "jinja2", "rich", "psutil", "pynvml", "scipy", "numba")
"""In profiler/ imported inside the function that uses them (below TYPE_CHECKING they cost nothing)."""
NUMPY_AT_THE_TOP = (
    "profiler.run",
    "profiler.analyse",
    "profiler.diagnose",
    "profiler.check",
    "profiler.lint",
    "profiler.report",
    "profiler.record.live_steps",
)
"""Code that reads runs; elsewhere in profiler/ NumPy counts as heavy too."""
TORCH_AT_THE_TOP = (
    "profiler.exact.compiled",
    "profiler.exact.counting",
    "profiler.exact.cuda",
    "profiler.exact.installation",
    "profiler.exact.marks",
    "profiler.exact.mode",
    "profiler.exact.moves",
    "profiler.exact.operators",
    "profiler.exact.private_api",
    "profiler.exact.waiting",
)
"""Code that is imported after torch, in a program that uses it."""


@dataclass(frozen=True)
class Import:
    """One import statement, resolved to the module that it names."""

    target: str
    line: int
    at_start: bool
    """It runs when the module is imported: not inside a function, not below TYPE_CHECKING."""


@dataclass(frozen=True)
class Module:
    name: str
    path: str
    imports: tuple[Import, ...]

    def at(self, imported: Import) -> str:
        return f"{self.path}:{imported.line} imports {imported.target}"


def within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(place + ".") for place in places)


def read_tree(root: Path) -> dict[str, Module]:
    """Every module of ours below `root`, with its imports."""
    files: dict[str, Path] = {}
    for file in sorted(path for package in OURS for path in (root / package).rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return {
        name: Module(name, str(file.relative_to(root)), tuple(_imports(name, file, set(files))))
        for name, file in files.items()
    }


def _imports(name: str, file: Path, known: set[str]) -> Iterator[Import]:
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node, at_start in _walk(ast.parse(file.read_text(encoding="utf-8"), str(file)), at_start=True):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_start)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield Import(full if full in known else base, node.lineno, at_start)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield Import(argument.value, node.lineno, at_start)


def _walk(node: ast.AST, at_start: bool) -> Iterator[tuple[ast.AST, bool]]:
    yield node, at_start
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.body:
            yield from _walk(child, at_start=False)
        for child in node.orelse:
            yield from _walk(child, at_start)
        return
    inside = at_start and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, inside)


def room_of(module: str) -> str:
    fitting = [room for room in ROOMS if within(module, (room,)) and (room != "profiler" or module == "profiler")]
    return max(fitting, key=len, default="")


def wrong_directions(tree: dict[str, Module]) -> list[str]:
    """Imports of ours that no arrow allows. Anyone may import `profiler` itself: it holds the version."""
    faults = [
        f"{module.path} is in no known room: add it to ROOMS" for module in tree.values() if not room_of(module.name)
    ]
    for module in tree.values():
        room = room_of(module.name)
        for imported in module.imports:
            if not within(imported.target, OURS) or not room:
                continue
            itself = within(imported.target, (room,)) and room != "profiler"
            version = imported.target == "profiler" and room != "reference_trainer"
            if not (itself or version or within(imported.target, ROOMS[room])):
                faults.append(f"{module.at(imported)}: {room} may import {', '.join(ROOMS[room]) or 'nothing of ours'}")
    return faults


def wrong_places(tree: dict[str, Module]) -> list[str]:
    """Third-party packages outside the rooms that they belong to, or where only the standard library may be."""
    faults = []
    for module in tree.values():
        for imported in module.imports:
            package = imported.target.partition(".")[0]
            if package in PLACES and not within(module.name, PLACES[package]):
                faults.append(f"{module.at(imported)}: only {', '.join(PLACES[package])} may")
            foreign = package not in sys.stdlib_module_names and package not in OURS
            if (
                within(module.name, STANDARD_LIBRARY_ONLY)
                and foreign
                and not within(module.name, PLACES.get(package, ()))
            ):
                faults.append(f"{module.at(imported)}: it may import the standard library only")
    return faults


def heavy_at_start(tree: dict[str, Module]) -> list[str]:
    """Heavy libraries that are imported before anyone needs them."""
    faults = []
    for module in tree.values():
        if not within(module.name, ("profiler", "reference_trainer.report")):
            continue
        heavy = HEAVY if within(module.name, NUMPY_AT_THE_TOP) else (*HEAVY, "numpy")
        if within(module.name, TORCH_AT_THE_TOP):
            heavy = tuple(name for name in heavy if name != "torch")
        for imported in module.imports:
            if imported.at_start and imported.target.partition(".")[0] in heavy:
                faults.append(f"{module.at(imported)} at its top: import it in the function that uses it")
    return faults


def cycles(tree: dict[str, Module]) -> list[list[str]]:
    """Groups of modules that import one another (strongly connected components, Tarjan 1972)."""
    edges = {name: sorted({i.target for i in module.imports} & tree.keys() - {name}) for name, module in tree.items()}
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in edges[name]:
            if other not in number:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == number[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in tree:
        if name not in number:
            visit(name)
    return found
