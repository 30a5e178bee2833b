"""The cases of `make accuracy`: an illness of a script of tests/traps/scripts, and what its findings must be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SCRIPTS: Final = Path(__file__).parent / "scripts"


@dataclass(frozen=True, slots=True)
class Case:
    """One program with an illness that can be switched off, or with none."""

    name: str
    ill: tuple[str, ...] = ()
    """The illnesses; of several, all must be among the first findings."""
    cured: tuple[str, ...] = ()
    """What is switched to its healthy form: for a healthy control, all that it has."""
    also: tuple[str, ...] = ()
    """Rules that are as right as the name of the illness."""
    markers: tuple[str, ...] | None = ()
    """The comments `# ill: MARKER` at the lines to be named; by default the illness; None: no line is at fault."""
    script: str = "trainer.py"
    """The file in SCRIPTS."""
    options: tuple[str, ...] = ()
    """Further words of the command."""

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of which one must come first."""
        return (*self.ill, *self.also)

    def command(self, steps: int) -> list[str]:
        """The command that trains for so many steps."""
        switches = [*(f"--ill={name}" for name in self.ill), *(f"--cured={name}" for name in self.cured), *self.options]
        return [sys.executable, str(SCRIPTS / self.script), f"--steps={steps}", *switches]

    def lines(self) -> set[int]:
        """The numbers of the lines of which one must be named; empty: none need be."""
        if self.markers is None:
            return set()
        names = self.markers or self.ill
        text = (SCRIPTS / self.script).read_text(encoding="utf-8").splitlines()
        return {number for number, line in enumerate(text, 1) if any(line.endswith(f"# ill: {name}") for name in names)}


def _plain(*ill: str, also: tuple[str, ...] = (), markers: tuple[str, ...] | None = ()) -> Case:
    return Case(f"plain-{'-and-'.join(ill)}", ill, also=also, markers=markers, script="plain.py")


_LOADER: Final = ("loader", "batches", "sleep")
_LOOP: Final = ("python-loop-head", "python-loop-key", "python-loop")
_PLAIN: Final = (
    # items that sleep: workers wait beside each other even on two cores, and cheaper items save the same time
    _plain("no-workers", markers=_LOADER),
    _plain("slow-dataset-item", also=("no-workers",)),
    _plain("slow-collate", also=("no-workers",)),
    _plain("too-few-workers", also=("slow-dataset-item",), markers=_LOADER),
    _plain("workers-started-anew", markers=_LOADER),
    _plain("python-loop", markers=_LOOP),
    _plain("many-small-operators"),
    _plain("thread-holds-gil"),
    _plain("more-threads-than-cores", markers=None),
    _plain("garbage-collection"),
    _plain("logging-in-loop"),
    _plain("synchronous-checkpoint"),
    _plain("frequent-evaluation"),
    _plain("float64", markers=None),
    _plain("single-tensor-optimizer"),
    _plain("zero-filled-gradients"),
    _plain("unused-gradients"),
    _plain("debug-mode", markers=None),
    _plain("python-loop", "logging-in-loop", markers=(*_LOOP, "logging-in-loop")),
    _plain("frequent-evaluation", "synchronous-checkpoint"),
    _plain("slow-collate", "garbage-collection", also=("no-workers",)),
    _plain(
        "python-loop", "many-small-operators", "synchronous-checkpoint",
        markers=(*_LOOP, "many-small-operators", "synchronous-checkpoint"),
    ),
    *(
        Case(f"plain-healthy-{name}", cured=(name,), script="plain.py")
        for name in (
            "python-loop", "many-small-operators", "float64", "frequent-evaluation", "unused-gradients",
        )
    ),
)  # fmt: skip
"""The second style: a loop at the level of the module."""

_MODEL: Final = (
    *(
        Case(f"model-{name}", (name,), script="model.py")
        for name in ("recompilation", "graph-breaks", "activation-checkpoints", "unused-gradients")
    ),
    Case("model-allocation-churn", ("allocation-churn",), markers=None, script="model.py"),
    Case("model-memory-creep", ("memory-creep",), markers=None, script="model.py"),
    Case("model-long-startup", ("long-startup",), script="model.py"),
    *(
        Case(f"model-healthy-{name}", cured=(name,), script="model.py")
        for name in (
            "recompilation", "graph-breaks", "activation-checkpoints", "allocation-churn", "memory-creep",
            "unused-gradients",
        )
    ),
    Case("recurrent-profiler-left-on", ("profiler-left-on",), script="recurrent.py"),
    # most of it is the wait for the disk, which is named with the line that calls save()
    Case(
        "recurrent-synchronous-checkpoint", ("synchronous-checkpoint",), also=("periodic-work",), script="recurrent.py"
    ),
    Case("recurrent-debug-mode", ("debug-mode",), script="recurrent.py"),
    Case("recurrent-healthy", script="recurrent.py"),
    Case(
        "ranks-gradient-sync-in-accumulation",
        ("gradient-sync-in-accumulation",),
        markers=("gradient-sync-in-accumulation", "forward"),
        script="ranks.py",
    ),
    Case("ranks-straggling-rank", ("straggling-rank",), markers=("straggling-rank", "filter"), script="ranks.py"),
    Case(
        "ranks-exchange-after-update",
        ("exchange-after-update",),
        markers=("exchange-after-update", "call"),
        script="exchange.py",
    ),
    Case("ranks-healthy-exchange", cured=("exchange-after-update",), script="exchange.py"),
    Case("ranks-healthy", script="ranks.py"),
    # what every 16th step does more is that loop
    Case("policy-python-loop", ("python-loop",), also=("periodic-work",), script="ppo.py"),
    Case("policy-healthy", cured=("python-loop",), script="ppo.py"),
    Case("ranks-healthy-accumulation", cured=("gradient-sync-in-accumulation",), script="ranks.py"),
)  # fmt: skip
"""Illnesses of the model, of torch.compile, of the memory and of several ranks."""


def _input(*ill: str, also: tuple[str, ...] = (), markers: tuple[str, ...] | None = ()) -> Case:
    return Case(f"input-{'-and-'.join(ill)}", ill, also=also, markers=markers, script="input.py")


_INPUT: Final = (
    _input("inline-tokenization"),
    _input("starved-prefetch", markers=("loader",)),
    # a read of one element is a small operator, and the loop around it is Python
    _input("per-element-reads", also=("python-loop", "many-small-operators")),
    # workers that wait for files read beside each other
    _input("io-bound-input", also=("no-workers",), markers=("io-bound-input", "loader")),
    _input("padding", markers=("padding", "texts")),
    _input("small-batch"),
    *(
        Case(f"input-healthy-{name}", cured=(name,), script="input.py")
        for name in ("inline-tokenization", "per-element-reads", "io-bound-input", "padding")
    ),
)
"""How data is read, tokenized and put into batches."""

_MADE: Final = (
    *(
        Case(f"made-inline-input-{style}", ("inline-input",), script="made.py", options=(f"--style={style}",))
        for style in ("function", "generator")
    ),
    Case("made-work-after-update", ("work-after-update",), script="made.py"),
    Case("made-healthy", script="made.py"),
    Case("made-healthy-generator", cured=("inline-input",), script="made.py", options=("--style=generator",)),
    Case("made-healthy-layer", script="made.py", options=("--style=layer",)),
)
"""Batches that NumPy makes outside of any loader, and statistics of each step."""

CASES: Final = (
    # on two cores one worker makes these batches hardly faster, so that cheaper items are as right
    Case("no-workers", ("no-workers",), also=("slow-dataset-item",), markers=("slow-item", "loader")),
    Case("slow-dataset-item", ("slow-dataset-item",), also=("no-workers",)),
    Case("slow-collate", ("slow-collate",), also=("no-workers",)),
    Case("too-few-workers", ("too-few-workers",), markers=("too-few-workers", "item", "loader")),
    Case("needless-workers", ("needless-workers",), also=("slow-batch-transfer",), markers=("loader",)),
    # without workers, these cheap batches would be made faster still
    Case("workers-started-anew", ("workers-started-anew",), also=("needless-workers",), markers=("loader",)),
    Case("python-loop", ("python-loop",)),
    Case("many-small-operators", ("many-small-operators",)),
    Case("thread-holds-gil", ("thread-holds-gil",)),
    Case("more-threads-than-cores", ("more-threads-than-cores",), markers=None),
    Case("garbage-collection", ("garbage-collection",)),
    Case("blocked-thread", ("blocked-thread",)),
    Case("logging-in-loop", ("logging-in-loop",)),
    Case("synchronous-checkpoint", ("synchronous-checkpoint",)),
    # the line of the call is as right as the one within
    Case("frequent-evaluation", ("frequent-evaluation",), markers=("frequent-evaluation", "validate")),
    # without gradients, a validation counts as evaluation though it is not in evaluation mode
    Case(
        "periodic-work",
        ("periodic-work",),
        also=("work-after-update", "frequent-evaluation"),
        markers=("frequent-evaluation", "validate"),
    ),
    Case("float64", ("float64",), markers=None),
    Case("debug-mode", ("debug-mode",), markers=None),
    Case("single-tensor-optimizer", ("single-tensor-optimizer",)),
    Case("zero-filled-gradients", ("zero-filled-gradients",)),
    # mixtures
    Case("python-and-logging", ("python-loop", "logging-in-loop")),
    Case("item-and-checkpoint", ("slow-dataset-item", "synchronous-checkpoint"), also=("no-workers",)),
    Case(
        "evaluation-and-pause",
        ("frequent-evaluation", "blocked-thread"),
        markers=("frequent-evaluation", "validate", "blocked-thread"),
    ),
    # healthy controls; the cured loaders are none: what their items take makes steps 1.2 to 2 times as long
    Case("healthy"),
    *(
        Case(f"healthy-{name}", cured=(name,))
        for name in (
            "python-loop", "logging-in-loop", "synchronous-checkpoint", "frequent-evaluation", "periodic-work",
        )
    ),
    *_PLAIN,
    *_INPUT,
    *_MADE,
    *(
        Case(f"model-{name}", script="healthy.py", options=(f"--model={name}",))
        for name in (
            "attention", "convolutions", "recurrent", "wide", "momentum", "clipped", "loader", "rare-log",
            "rare-checkpoint", "rare-evaluation",
        )
    ),
    # `loader-with-worker` of healthy.py is none: without the worker it makes 1.22 to 1.35 times as many steps a second
    Case("healthy-worker", script="workers.py"),
    Case("restarted-loader-started-anew", ("loader-started-anew",), script="restarted.py"),
    Case("restarted-healthy", cured=("loader-started-anew",), script="restarted.py"),
    Case("copies-deep-copies", ("deep-copies",), script="copies.py"),
    Case("copies-repeated-concatenation", ("repeated-concatenation",), script="copies.py"),
    Case("copies-healthy", cured=("deep-copies",), script="copies.py"),
    Case("hooked-module-hooks", ("module-hooks",), script="hooked.py"),
    Case("hooked-healthy", cured=("module-hooks",), script="hooked.py"),
    *(
        Case(f"watched-{style}", ("metrics-in-loop",), (), (), (style,), "watched.py", (f"--style={style}",))
        for style in ("gradients", "ranking")
    ),
    Case("watched-healthy", cured=("metrics-in-loop",), script="watched.py"),
    Case("watched-healthy-ranking", cured=("metrics-in-loop",), script="watched.py", options=("--style=ranking",)),
    Case("gan-unused-gradients", ("unused-gradients",), script="gan.py"),
    Case("gan-healthy", cured=("unused-gradients",), script="gan.py"),
    Case("sampled-slow-sampler", ("slow-sampler",), script="sampled.py"),
    Case("sampled-healthy", cured=("slow-sampler",), script="sampled.py"),
    *_MODEL,
)  # fmt: skip


def select(names: list[str]) -> Iterator[Case]:
    """The cases of these names, in their order; all without any."""
    yield from (case for case in CASES if not names or case.name in names)
