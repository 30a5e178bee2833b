"""The server: the same answers by the protocol, in this process and over standard input and output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiler.__main__ import main
from profiler.core.errors import Exit
from profiler.mcp.answers import MOST_TOKENS, tokens
from profiler.mcp.server import SKILL, make_server
from profiler.mcp.tools import Tools
from tests.approval.cases import RUNS
from tests.fakes.programs import ROOT

SLOW = str(RUNS / "slow-input.zip")
NOT_INSTALLED = "the package mcp is not installed: pip install 'training-profiler[mcp]'"
NAMES = ["why", "lines", "ledger", "what_if", "lint", "check"]


def test_the_skill_is_printed_and_names_the_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--skill"]) == Exit.OK
    text = capsys.readouterr().out
    assert text == SKILL.read_text(encoding="utf-8")
    assert tokens({"skill": text}) <= MOST_TOKENS
    assert [name for name in NAMES if f"`{name}`" not in text] == []


def test_without_the_package_the_command_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    assert main(["mcp"]) == Exit.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: the server needs the package mcp: pip install 'training-profiler[mcp]'"


# ---------------------------------------------------------------- by the protocol


def talk(target: Any, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The tools of a server, and its results of some calls."""
    pytest.importorskip("mcp.server", reason=NOT_INSTALLED)
    import anyio
    from mcp import Client

    async def session() -> tuple[list[Any], list[Any]]:
        async with Client(target) as client:
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(session)


def server(folder: Path, *, allow_runs: bool = False) -> Any:
    pytest.importorskip("mcp.server", reason=NOT_INSTALLED)
    return make_server(Tools(allow_runs, folder))


def test_answers_are_those_of_the_tools(tmp_path: Path) -> None:
    tools, (why, lines) = talk(server(tmp_path), ("why", {"run": SLOW}), ("lines", {"run": SLOW}))
    assert [tool.name for tool in tools] == NAMES
    assert all(tool.description and tool.annotations.read_only_hint for tool in tools)
    for result in (why, lines):
        (content,) = result.content
        assert len(content.text.encode()) <= 3 * MOST_TOKENS
        assert json.loads(content.text)["next_step"].startswith("Edit ")
        assert result.structured_content is None, "an agent would pay for the answer twice"


def test_only_tools_that_may_start_programs_say_so(tmp_path: Path) -> None:
    tools, _ = talk(server(tmp_path, allow_runs=True))
    assert [tool.name for tool in tools if not tool.annotations.read_only_hint] == ["why", "lint", "check"]


@pytest.mark.parametrize("run", [None, 3, ["a"], "no/run", "\n", "x" * 5_000])
def test_bad_input_is_one_line(tmp_path: Path, run: Any) -> None:
    _, (result,) = talk(server(tmp_path), ("why", {"run": run}))
    assert result.is_error
    assert "\n" not in result.content[0].text


def environment() -> dict[str, str]:
    """That of a process with the packages of this one."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}


def test_over_standard_input_and_output() -> None:
    pytest.importorskip("mcp.server", reason=NOT_INSTALLED)
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    words = ["-m", "profiler", "mcp"]
    parameters = StdioServerParameters(command=sys.executable, args=words, env=environment())
    _, (result,) = talk(stdio_client(parameters), ("why", {"run": SLOW}))
    assert json.loads(result.content[0].text)["next_step"].startswith("Edit ")


def test_the_server_ends_when_its_input_is_closed() -> None:
    pytest.importorskip("mcp.server", reason=NOT_INSTALLED)
    words = [sys.executable, "-m", "profiler", "mcp"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
