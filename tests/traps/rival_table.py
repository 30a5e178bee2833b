"""The page of the comparison with other tools: what counts as telling, and what each tool told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_HEAD: Final = """# Other tools on the same scripts

Written by `python -m tests.traps.rivals`, never by hand. The scripts are those of
[the accuracy of findings](README.md), each with an illness that was switched on, or none. Every tool runs each script
for about 4 seconds on the same machine, with one OpenMP thread. [The list of reports](../README.md) describes the
machine.

## How each tool is used

- **TraceML**: `traceml run` of a copy of the script, with `traceml.init(mode="auto")` and
  `with traceml.trace_step(model)` around the whole body of the training loop, as its quick start tells. Batches that
  no `DataLoader` makes are wrapped with `wrap_dataloader_fetch`, as its own message asks. What it tells is the verdict
  of its final summary, with the reason and the advice.
- **Scalene**: `scalene run --cpu-only --off`, switched on by `scalene_profiler.start()` after ten steps, so that the
  start of the program does not count. What it tells is the three lines of the script with the largest share of the
  time; Python, native and system time count together.
- **torch.profiler**: `profile` with a schedule of 6 recorded steps after 17, with stacks, as its recipe tells. What it
  tells is the three rows of `key_averages(group_by_stack_n=5)` with the largest self CPU time.
- **Ours**: `python -m profiler run`, then the findings, in their order, as `make accuracy` recorded them.

## What counts as telling

These criteria were written before the tools ran; `tests/traps/rival_judge.py` applies them.

- **Cause**. TraceML: its verdict, or its advice for that verdict, names the category of the illness: input-bound for
  every illness of the input, residual-heavy for logging, checkpoints, evaluation and stalls of the CPU. Compute-bound
  and balanced name no cause, because healthy programs get them too. Scalene and torch.profiler give no verdicts: the
  first row counts if it is at fault (a line at fault, or the innermost function of the script around one), or if its
  name is the cause, such as `gc.collect` or `enumerate(DataLoader)`. Of several illnesses, one is enough. Ours: the
  finding of the illness, by its exact rule, comes first; of several, all come first. This is stricter.
- **Line**. One of the first three rows, or of up to three lines of the first finding, is at fault. For torch.profiler,
  which names functions, the function is enough. Cases in which no line is at fault are left out.
- **Gain**. It gives a number for how many times as fast the program would be. A share of the time is none.
- **Healthy**. It names no cause where there is none. Scalene and torch.profiler always list rows and never say that a
  program is healthy, so this does not apply to them.

What each tool costs a program while it runs: [Overhead](../../docs/recording.md#overhead).
"""
_MARKS: Final = {True: "yes", False: "no", None: ""}


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The results as Markdown."""
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    lines = [_HEAD, "## Totals", "", *_totals(rows, tools), "", "## Each case", ""]
    for tool in tools:
        these = [row for row in rows if row["tool"] == tool]
        lines += [f"### {tool}", "", f"Version: {', '.join(sorted({row['version'] for row in these}))}", ""]
        lines += ["| case | cause | line | gain | its words or first row |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(_cells(row))} |" for row in these] + [""]
    return "\n".join(lines)


def _cells(row: Mapping[str, Any]) -> list[str]:
    quote = row["quote"].replace("|", "\\|").replace("\n", " ")
    marks = [_MARKS[row[name]] for name in ("has_cause", "has_line")]
    return [row["case"], *marks, "yes" if row["has_gain"] else "no", quote]


def _totals(rows: Sequence[Mapping[str, Any]], tools: Sequence[str]) -> list[str]:
    """How many cases each tool tells rightly; only cases that all the tools ran."""
    common = (
        set.intersection(*({row["case"] for row in rows if row["tool"] == tool} for tool in tools)) if tools else set()
    )
    lines = [f"Of the {len(common)} cases that every tool ran:", ""]
    lines += [
        "| tool | cause of ill ones | line | gain of ill ones | nothing wrong in healthy ones |",
        "|---|---:|---:|---:|---:|",
    ]
    for tool in tools:
        these = [row for row in rows if row["tool"] == tool and row["case"] in common]
        ill, healthy = ([row for row in these if bool(row["ill"]) == is_ill] for is_ill in (True, False))
        parts = ((ill, "has_cause"), (ill, "has_line"), (ill, "has_gain"), (healthy, "has_cause"))
        lines.append(f"| {tool} | {' | '.join(_count([row[name] for row in part]) for part, name in parts)} |")
    return lines


def _count(marks: Sequence[bool | None]) -> str:
    judged = [mark for mark in marks if mark is not None]
    return f"{sum(judged)} of {len(judged)}" if judged else "does not apply"
