"""Runs a script under torch.profiler and writes the rows of its table of operators.

`python torch_profiler_script.py SKIPPED OUT SCRIPT [OPTIONS]`: after SKIPPED steps and two more, six steps are profiled
with stacks. The three rows with the largest self CPU time are written to OUT as JSON. It needs torch alone.
"""

import json
import runpy
import sys
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule


def write_rows(profiler, path):
    averages = [row for row in profiler.key_averages(group_by_stack_n=5) if row.key != "ProfilerStep*"]
    rows = sorted(averages, key=lambda row: -row.self_cpu_time_total)
    total = sum(max(0, row.self_cpu_time_total) for row in rows)  # some rows have negative times
    top = [{"name": row.key, "share": row.self_cpu_time_total / total, "stack": list(row.stack)} for row in rows[:3]]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(top, file)


if __name__ == "__main__":
    skipped, out, *command = sys.argv[1:]
    profiler = profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(skip_first=int(skipped), wait=1, warmup=1, active=6, repeat=1),
        on_trace_ready=lambda profiler: write_rows(profiler, out),
        with_stack=True,
        experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True),
    )
    register_optimizer_step_post_hook(lambda *_: profiler.step())
    with profiler:
        sys.argv = command
        sys.path[0] = str(Path.cwd())
        runpy.run_path(command[0], run_name="__main__")
