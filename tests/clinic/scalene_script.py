"""Runs a script under `scalene run --off` and starts Scalene after ten steps, so that its profile is of the training.

`scalene run --off scalene_script.py --- SCRIPT [OPTIONS]`. It needs torch and Scalene alone.
"""

import runpy
import sys
from pathlib import Path

from scalene import scalene_profiler
from torch.optim.optimizer import register_optimizer_step_post_hook

STEPS_BEFORE = 10


class Starter:
    """Counts steps and starts the profile once."""

    def __init__(self):
        self.steps = 0

    def count(self, *_):
        self.steps += 1
        if self.steps == STEPS_BEFORE:
            scalene_profiler.start()


if __name__ == "__main__":
    register_optimizer_step_post_hook(Starter().count)
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path.cwd())
    runpy.run_path(sys.argv[0], run_name="__main__")
