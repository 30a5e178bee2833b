"""One program of a round: started, driven so many steps at a time, frozen in between, and ended."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from profiler.base.errors import ProfilerError
from profiler.gate.model import Turn
from profiler.record.failures import last_line
from profiler.record.launch import inside_statuses, opened, write_last
from profiler.record.target import environment_of, find_program
from profiler.record.turns.interrupts import obey
from profiler.record.turns.line import Line, Switchboard
from profiler.record.turns.step import chosen, in_words
from profiler.record.turns.tree import Tree, die_with_parent
from profiler.run import store, tables
from profiler.run.model import RunInfo, RunSpec

SPANS: Final = "turns.json"
"""Begin and end (ns) of each turn, in the run directory: what was measured, the rest was warm-up."""
PATIENCE_S: Final = 300.0
"""For a program's first steps: it may load data and compile."""
_PADDING: Final = "PROFILER_PADDING"
_MOST_PADDING: Final = 4096
"""Bytes. Where the stack begins depends on the size of the environment, and with it how fast a program is, by percents
(Mytkowicz et al., Producing Wrong Data Without Doing Anything Obviously Wrong, ASPLOS 2009). The sides' paths are of
different lengths: at random it is luck, and no bias."""
_WAKE_S: Final = 0.1
_RANKS_S: Final = 0.3
"""Ranks that no launcher announced are waited for so long after the first: their first steps end together."""
_LEAST_TURN_S: Final = 60.0
_SLOWER: Final = 50
"""A turn that takes so many times as long as the steps before it hangs."""


@dataclass(frozen=True, slots=True)
class Program:
    """One side as something to start."""

    side: str
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """What its environment has beside or in place of ours."""
    inside: bool = True
    """Whether hooks go into it."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """Machine, versions and commit, as fields of RunInfo."""
    hint: str = ""
    """What may be the matter where it fails."""

    def executable(self) -> str:
        """The file to run.

        :raises ProfilerError: there is none.
        """
        word = self.argv[0] if self.argv else ""
        if os.sep in word and not os.path.isabs(word):  # noqa: PTH117
            word = str(self.cwd / word)
        if "PATH" in self.env and (found := shutil.which(word, path=self.env["PATH"])):
            return found
        return find_program((word, *self.argv[1:]) if word else ())


class EndedError(Exception):
    """A program ended, by itself or by a fault, before its turn was over."""

    def __init__(self, resident: Resident, code: int) -> None:
        super().__init__(f"{resident.program.side} exited with {code}")
        self.resident = resident
        self.code = code


class Resident:
    """A program that stands still but for its turns.

    :param folder: of its run; made here.
    :param sockets: a private folder with a short name.
    """

    def __init__(self, program: Program, folder: Path, sockets: Path, *, level: str = "light") -> None:
        executable = program.executable()
        self.program = program
        self.folder = folder
        self.spec = RunSpec(program.argv, folder.absolute(), level=level, label=program.side, inside=program.inside)
        self.prefetch = 0
        """Batches that its loaders make ahead."""
        self.queues = False
        """Whether a device works behind its back."""
        self.step_source = ""
        self.files: tuple[str, ...] = ()
        """Of the modules that it has loaded itself."""
        self.steps = 0
        """Driven so far."""
        self._spans: list[tuple[int, int]] = []
        self._board = Switchboard(sockets / f"{program.side}-{folder.name[:8]}")
        self._step_s = 0.0
        self._ready_at = 0.0
        store.create(self.spec.out)
        self._info: RunInfo = opened(self.spec, dict(program.described))
        store.write_manifest(self.spec.out, self._info)
        self._start(executable)
        self._tree = Tree(self._process.pid)

    def _start(self, executable: str) -> None:
        program = self.program
        environment = environment_of(self.spec, {**os.environ, **program.env})
        environment[tables.ENV_TURNS] = str(self._board.path)
        environment[_PADDING] = "." * secrets.randbelow(_MOST_PADDING)
        try:
            with open(self.spec.out / store.OUTPUT_LOG, "wb") as log:
                self._process = subprocess.Popen(
                    program.argv,
                    executable=executable,
                    cwd=program.cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - one call of C, resolved before
                )
        except OSError as error:
            self._board.close()
            shutil.rmtree(self.spec.out)
            raise ProfilerError(f"cannot start {program.argv[0]}: {error.strerror}") from error

    # ------------------------------------------------------------ until it stands still for the first time

    def settle(self) -> bool:
        """Hear what it has to say until now; True when all its ranks stand at the end of a step."""
        for line, said in self._board.heard(0.0):
            self._answer(line, said)
        lines = self._board.lines
        waiting = [line for line in lines if line.who.get("ready")]
        if not lines or len(waiting) < len(lines):
            self._must_live()
            return False
        expected = max(int(line.who.get("ranks", 1)) for line in lines)
        return len(lines) >= expected and time.monotonic() - self._ready_at > (_RANKS_S if expected > 1 else 0.0)

    def _answer(self, line: Line, said: dict[str, Any]) -> None:
        line.who.update({key: said[key] for key in ("pid", "rank", "ranks") if key in said})
        self.prefetch = max(self.prefetch, int(said.get("prefetch", 0)))
        self.queues |= bool(said.get("queues"))
        self.files = tuple(map(str, said.get("files", self.files)))
        if "seen" not in said:
            line.who["ready"] = True
            self._ready_at = time.monotonic()
            return
        seen = [str(key) for key in said["seen"]]
        key = chosen(seen)
        if key is None:
            line.send({"look": 2 * len(seen)})
            return
        self.step_source = in_words(key)
        line.send({"key": key})

    def freeze(self) -> None:
        """Stop it with all that belongs to it."""
        self._tree.look_for_strays()
        self._tree.freeze()

    # ------------------------------------------------------------ its turns

    def turn(self, steps: int, *, measured: bool = True) -> Turn:
        """Have it run so many steps, and freeze it again.

        :param measured: False: warm-up.
        :raises EndedError: it ended before that.
        :raises ProfilerError: it hangs.
        """
        lines = list(self._board.lines)
        for line in lines:
            with suppress(OSError):
                line.send({"steps": steps})
        self._tree.thaw()
        patience = max(_LEAST_TURN_S, _SLOWER * steps * self._step_s)
        until = time.monotonic() + patience
        answers: dict[int, dict[str, Any]] = {}
        while len(answers) < len(lines):
            for line, said in self._board.heard(_WAKE_S):
                answers[lines.index(line)] = said
            if len(answers) < len(lines):
                self._must_live()
                if time.monotonic() > until:
                    raise ProfilerError(
                        f"{self.program.side}: {steps} steps did not end within {patience:.0f} s ({self.folder})"
                    )
        self._tree.freeze()
        return self._turn_of(answers, measured=measured)

    def _turn_of(self, answers: Mapping[int, dict[str, Any]], *, measured: bool) -> Turn:
        """The lead's steps; the last one until all ranks have ended theirs."""
        stamps = [int(stamp) for stamp in answers[0]["stamps"]]
        stamps[-1] = max(int(answer["stamps"][-1]) for answer in answers.values())
        self.steps += len(stamps) - 1
        self._step_s = (stamps[-1] - stamps[0]) / (len(stamps) - 1) / 1e9
        if measured:
            self._spans.append((stamps[0], stamps[-1]))
        self.prefetch = max(self.prefetch, *(int(answer.get("prefetch", 0)) for answer in answers.values()))
        tokens = sum(int(answer["tokens"]) for answer in answers.values())
        lengths = tuple(after - before for before, after in pairwise(stamps))
        return Turn(self.program.side, stamps[0], lengths, tokens)

    def _must_live(self) -> None:
        obey()
        code = self._process.poll()
        if code is not None:
            raise EndedError(self, code)

    # ------------------------------------------------------------ its end

    def end(self) -> None:
        """End it at once, with all that belongs to it, and close its run. More calls do nothing."""
        if self._info.state != "running":
            return
        self._tree.kill()
        self._process.wait()
        self._board.close()
        code = self._process.returncode
        ours = code in (0, -9)
        self._info = dataclasses.replace(
            self._info,
            state="complete" if ours else "failed",
            exit_code=0 if ours else code,
            end=time.monotonic_ns(),
            collectors=tuple(inside_statuses(self.spec)),
        )
        with suppress(OSError):
            (self.spec.out / SPANS).write_text(json.dumps(self._spans) + "\n", encoding="ascii")
        write_last(self.spec.out, self._info)

    def last_words(self) -> str:
        """The last line of its output; empty where it printed nothing."""
        return last_line(self.spec.out)


def spans_of(run: Path) -> list[tuple[int, int]]:
    """Begin and end (ns) of the turns that count in a run directory; none: it was not driven, all of it counts."""
    try:
        return [(int(begin), int(end)) for begin, end in json.loads((run / SPANS).read_text(encoding="ascii"))]
    except (OSError, ValueError, TypeError):
        return []
