"""`mcp`: lets agents ask why a run is slow and whether a speed-up is real, by the Model Context Protocol."""

from __future__ import annotations

import argparse

from profiler.commands._common import RUNS
from profiler.core.errors import Exit


class McpCommand:
    """python -m profiler mcp [--allow-runs] [--skill]"""

    name = "mcp"
    help = "answer the questions of an agent about runs, over standard input and output (Model Context Protocol)"
    examples = ("mcp", "mcp --skill")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--allow-runs", action="store_true", help="let why, lint and check start programs of the agent's choice")
        add("--skill", action="store_true", help="print what an agent must know to use the profiler instead")

    def run(self, args: argparse.Namespace) -> int:
        from profiler.mcp.server import SKILL, serve
        from profiler.mcp.tools import Tools

        if args.skill:
            print(SKILL.read_text(encoding="utf-8"), end="")
        else:
            serve(Tools(args.allow_runs, RUNS))
        return int(Exit.OK)


PLUGIN = McpCommand()
