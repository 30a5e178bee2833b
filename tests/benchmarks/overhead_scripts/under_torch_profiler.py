"""A script under torch.profiler from its first line to its last: under_torch_profiler.py SCRIPT TRACE."""

from __future__ import annotations

import runpy
import sys

from torch.profiler import ProfilerActivity, profile

if __name__ == "__main__":
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        runpy.run_path(sys.argv[1], run_name="__main__")
    profiler.export_chrome_trace(sys.argv[2])
