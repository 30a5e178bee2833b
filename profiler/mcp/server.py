"""Serves the tools over standard input and output by the Model Context Protocol. It opens no network."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler import __version__
from profiler.core.errors import ProfilerError
from profiler.mcp.answers import Answer, limited, text_of
from profiler.mcp.tools import Tools

if TYPE_CHECKING:
    from mcp.server import MCPServer

SKILL: Final = Path(__file__).with_name("SKILL.md")
"""What an agent must know to use the profiler, in one page."""


def serve(tools: Tools) -> None:
    """Answer the agent at the other end of standard input until it closes it.

    :raises ProfilerError: the package mcp is not installed.
    """
    make_server(tools).run("stdio")


def make_server(tools: Tools) -> MCPServer[Any]:
    """Return a server that offers the tools.

    :raises ProfilerError: the package mcp is not installed.
    """
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise ProfilerError("the server needs the package mcp: pip install 'training-profiler[mcp]'") from error
    text = SKILL.read_text(encoding="utf-8")
    server: MCPServer[Any] = MCPServer("training-profiler", instructions=text, version=__version__, log_level="WARNING")
    for tool in tools.all():
        starts = tools.allow_runs and tool.__name__ in tools.STARTING
        hints = ToolAnnotations(read_only_hint=not starts, destructive_hint=starts, open_world_hint=starts)
        # the text alone: with a structured copy, an agent would pay twice
        server.add_tool(_answering(tool), annotations=hints, structured_output=False)
    return server


def _answering(tool: Callable[..., Answer]) -> Callable[..., str]:
    """Have a tool return its short answer as text, and each error as one line."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def answer(*args: Any, **options: Any) -> str:
        try:
            return text_of(limited(tool(*args, **options)))
        except ProfilerError as error:
            message = str(error)
        except OSError as error:
            message = f"cannot use {error.filename}: {error.strerror}"
        except Exception as error:  # noqa: BLE001 - the edge of the process, and it reports
            message = f"internal error: {type(error).__name__}: {error}"
        raise ToolError(" ".join(message.split())) from None

    return answer
