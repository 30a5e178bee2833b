"""Loads every plug-in and pins the names, in one place: a plug-in that is lost, or comes by accident, is seen."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from profiler.core.plugins import discover, entry_points
from profiler.diagnose import rules
from profiler.diagnose.rule import Rule
from profiler.record.checks import all_checks

# package: the names of its plug-ins. Adding one is adding one file, its test, and its name here.
PLUGINS = {
    "profiler.commands": "attach check compare diagnose doctor export lint mcp monitor report run try why",
    "profiler.record.collectors": "environment gpu host stacks",
    "profiler.agent.hooks": (
        "backward checkpointing counts cuda_syncs dynamo facts functions gradient_syncs loader loader-workers "
        "module_hooks operators optimizers regions settings stages tensors tokenizers torch-trace trial-settings "
        "virtual_cuda warning-sites"
    ),
    "profiler.report.sections": (
        "breakdown counters doing environment findings flame hot idle input kernels lines method numbers outside ranks "
        "spikes throughput timeline utilization verdict"
    ),
    "reference_trainer.ssm.engines": "inline pool ray",
}


@pytest.mark.parametrize("package", PLUGINS)
def test_names_are_pinned(package: str) -> None:
    assert sorted(plugin.name for plugin in discover(package)) == PLUGINS[package].split()


def test_rules_have_the_names_of_their_functions() -> None:
    folder = Path(rules.__file__).parent
    modules = [importlib.import_module(f"{rules.__name__}.{path.stem}") for path in folder.glob("[a-z]*.py")]
    named = {name: value for module in modules for name, value in vars(module).items() if isinstance(value, Rule)}
    assert {name.removesuffix("_rule").replace("_", "-"): rule.name for name, rule in named.items()} == {
        rule.name: rule.name for rule in discover("profiler.diagnose.rules")
    }
    assert "no_workers" in named


@pytest.mark.parametrize("package", [*PLUGINS, "profiler.diagnose.rules"])
def test_packages_of_plugins_have_a_docstring(package: str) -> None:
    assert (importlib.import_module(package).__doc__ or "").strip(), f"{package} has no docstring"


# group: the names of the entry points of this distribution, read from its pyproject.toml.
ENTRY_POINTS: dict[str, set[str]] = {
    "commands": {"diagnose-tokenization"},
    "sections": {"ladder", "learning", "roofline"},
    "trainers": {"lm", "ssm"},
}


@pytest.mark.parametrize("group", ENTRY_POINTS)
def test_entry_points_are_pinned(group: str) -> None:
    assert ENTRY_POINTS[group] <= entry_points(group).keys()


def test_the_names_of_the_doctors_checks_are_pinned() -> None:
    names = "attach clocks disk gpu host inside kineto libraries "
    names += "load memory numba-cuda preempt python stacks torch"
    assert sorted(check.name for check in all_checks()) == names.split()
