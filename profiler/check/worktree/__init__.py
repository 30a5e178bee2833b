"""Another revision of the user's program made ready to run beside the working tree: its files, links, environment.

Nothing here touches the user's checkout, index, branches, hooks or configuration, and nothing outlives the check.
"""

from __future__ import annotations

from profiler.check.worktree.prepare import Side, prepared, working
from profiler.check.worktree.stray import strayed

__all__ = ["Side", "prepared", "strayed", "working"]
