"""Writes the line of a program with the arguments that a finding suggests."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

from profiler.analyse.finding import Finding

_NEED_WORKERS: Final = frozenset({"multiprocessing_context", "persistent_workers", "prefetch_factor", "timeout"})
"""Arguments of a DataLoader that it refuses without workers."""


def changed_line(finding: Finding) -> str:
    """The statement at the line of the finding's loader or optimizer, with the suggested arguments.

    Empty where the finding suggests none, where its line was not recorded, or where the line is not the whole call.
    """
    settings = finding.filled_settings() or {}
    if "loader" in settings:
        name, site = "DataLoader", finding.values.get("loader_site")
    elif "optimizer" in settings and finding.sites:
        name, site = str(finding.values.get("optimizer")), finding.sites[0]
    else:
        return ""
    return with_arguments(site.source, name, settings.get("loader") or settings["optimizer"]) if site else ""


def with_arguments(source: str, name: str, arguments: Mapping[str, Any]) -> str:
    """A statement with other arguments of the only call of a function or class in it; empty where it is not sure."""
    try:
        tree = ast.parse(source.strip())
    except SyntaxError:
        return ""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == name]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        return ""
    (call,) = calls
    unfit = _NEED_WORKERS if arguments.get("num_workers") == 0 else frozenset[str]()
    call.keywords = [keyword for keyword in call.keywords if keyword.arg not in unfit]
    for argument, value in arguments.items():
        given = next((keyword for keyword in call.keywords if keyword.arg == argument), None)
        if given is not None:
            given.value = ast.Constant(value)
        elif value:  # what is off stays away
            call.keywords.append(ast.keyword(argument, ast.Constant(value)))
    return ast.unparse(tree)


def _called(call: ast.Call) -> str:
    """The last name of what is called: `DataLoader` of `data.DataLoader(...)`."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
