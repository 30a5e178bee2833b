"""One program of a round: started, driven so many steps at a time, frozen in between, and ended."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from profiler.check.model import Turn
from profiler.check.speed.interrupts import obey
from profiler.check.speed.line import Line, Switchboard
from profiler.check.speed.step import chosen, in_words
from profiler.check.speed.tree import Tree, die_with_parent
from profiler.check.speed.watchdog import Guard
from profiler.core.errors import ProfilerError
from profiler.record.failures import last_line
from profiler.record.launch import inside_statuses, opened, write_last
from profiler.record.target import environment_of, find_program
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
_ALONE_S: Final = 0.3
"""A rank that stands still for so long while others have not come to that goes on by a step: they may wait for it."""
_SLOWER: Final = 50
"""A turn that takes so many times as long as the steps before it, and longer than the patience, hangs."""
_STEPS_ALONE: Final = 64
"""After so many the others do not step at all: actors of a learner, servers of parameters."""
_ENDS_S: Final = 10.0
"""So long a process may take to be gone when it has been killed."""
_FOR_EVER: Final = (1 << 63) - 1


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

    def in_words(self) -> str:
        """How it ended and what it said last; of one that failed."""
        said = self.resident.last_words() or "it printed nothing"
        how = f"was ended by signal {-self.code}" if self.code < 0 else f"exited with {self.code}"
        return f"{how}: {said} (its output is in {self.resident.folder})"


class OtherStepsError(Exception):
    """What was taken for the end of a step was none: what does end it has come, and it settles anew."""

    def __init__(self, resident: Resident) -> None:
        super().__init__(f"{resident.program.side}: what ends a step was taken for something else")
        self.resident = resident


class Resident:
    """A program that stands still but for its turns.

    :param folder: of its run; made here.
    :param sockets: a private folder with a short name.
    :param patience: seconds that a turn may take at least, before it is taken to hang.
    :param guard: ends it, and all that belongs to it, when the gate is killed.
    """

    def __init__(
        self,
        program: Program,
        folder: Path,
        sockets: Path,
        *,
        level: str = "light",
        patience: float = PATIENCE_S,
        guard: Guard | None = None,
    ) -> None:
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
        self.unseen = 0
        """Steps that it took before it stood still for the first time."""
        self.stood = False
        """Whether a step of it has been seen."""
        self._driven: tuple[Line, ...] = ()
        """Of the ranks that take their turns, the lead first."""
        self._few = False
        """Whether fewer of the ranks step than there are."""
        self._patience = patience
        self._spans: list[tuple[int, int]] = []
        self._board = Switchboard(sockets / f"{program.side}-{folder.name[:8]}")
        self._step_s = 0.0
        store.create(self.spec.out)
        self._info: RunInfo = opened(self.spec, dict(program.described))
        store.write_manifest(self.spec.out, self._info)
        self._start(executable)
        self._tree = Tree(self._process.pid, guard)

    def _start(self, executable: str) -> None:
        program = self.program
        environment = environment_of(self.spec, {**os.environ, **program.env})
        environment[tables.ENV_CONTROL] = str(self._board.path)
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

    # ------------------------------------------------------------ until it stands still

    def settle(self) -> bool:
        """Hear what it has to say until now; True when all its ranks stand at the end of the same step.

        :raises EndedError: it has ended.
        """
        for line, said in self._board.heard(0.0):
            self._answer(line, said)
        self._must_live()
        waited = list(self._driven) or self._board.lines
        ranks = [line for line in waited if "since" in line.who]
        if len(ranks) < max(1, self.expected, len(self._driven)):
            self._send_on(ranks)
            return False
        if self.expected > 1 and (lighter := self._lighter(ranks)):
            self._send_on(lighter)
            return False
        if self._brought_together(ranks):
            return False
        self._driven = tuple(sorted(ranks, key=lambda line: (line.who.get("rank", 0), line.who.get("pid", 0))))
        self.unseen = self.unseen or int(self._driven[0].who["goes_to"])
        return True

    @property
    def expected(self) -> int:
        """Ranks that step, as they say themselves; 1 where none has said anything."""
        if self._few:
            return len(self._board.lines)
        return max((int(line.who.get("ranks", 1)) for line in self._board.lines), default=1)

    def _answer(self, line: Line, said: dict[str, Any]) -> None:
        line.who.update({key: said[key] for key in ("pid", "rank", "ranks") if key in said})
        if self._driven and line not in self._driven:
            with suppress(OSError):  # it came when the ranks were known: an evaluation, a helper
                line.send({"free": True})
            return
        self.prefetch = max(self.prefetch, int(said.get("prefetch", 0)))
        self.queues |= bool(said.get("queues"))
        self.files = tuple(map(str, said.get("files", self.files)))
        line.who.pop("since", None)
        if "seen" not in said:
            self.stood = True
            line.who.update(since=time.monotonic(), goes_to=int(said.get("count", 0)))
            return
        line.who.pop("goes_to", None)
        seen = [str(key) for key in said["seen"]]
        key = chosen(seen)
        if key is not None:
            self.step_source = in_words(key)
            line.who["weight"] = tables.boundary_priority(key)
        with suppress(OSError):
            line.send({"look": 2 * len(seen)} if key is None else {"key": key})

    def _send_on(self, standing: list[Line]) -> None:
        """Who stands alone goes on: others may wait for it. To where one of them is going, else for twice as long as
        before: what it stands at may be a validation that only it does.
        """
        lines = self._board.lines
        if self.expected > 1 and not self._brought_together(lines):
            for line in standing:
                if time.monotonic() - line.who["since"] > _ALONE_S:
                    line.who["alone"] = 2 * line.who.get("alone", 0) or 1
                    self._few |= line.who["alone"] > _STEPS_ALONE and len(lines) < self.expected
                    self._go(line, line.who["alone"])

    def _lighter(self, ranks: Sequence[Line]) -> list[Line]:
        """Those that stand at the end of what others have found to be no step."""
        heaviest = max(line.who["weight"] for line in ranks)
        return [line for line in ranks if line.who["weight"] < heaviest]

    def _brought_together(self, ranks: Sequence[Line]) -> bool:
        """Whether those who stand have been sent to the step that the furthest one stands at or goes to."""
        going = [line for line in ranks if "goes_to" in line.who]
        heaviest = max((line.who["weight"] for line in going), default=0)
        going = [line for line in going if line.who["weight"] == heaviest]  # others count something else
        furthest = max((line.who["goes_to"] for line in going), default=0)
        behind = [line for line in going if "since" in line.who and line.who["goes_to"] < furthest]
        for line in behind:
            self._go(line, furthest - line.who["goes_to"])
        return bool(behind)

    def _go(self, line: Line, steps: int) -> None:
        line.who.pop("since", None)
        line.who["goes_to"] = line.who.get("goes_to", 0) + steps
        with suppress(OSError):
            line.send({"steps": steps})

    def freeze(self) -> None:
        """Stop it with all that belongs to it.

        :raises ProfilerError: a process that takes its steps is none of its own, and would go on.
        """
        self._tree.look_for_strays()
        for line in self._driven:
            if not self._tree.has(line.peer):
                raise ProfilerError(
                    f"{self.program.side}: process {line.peer} takes the steps and does not run below the "
                    f"command (a daemon, a container, a remote worker?), so it cannot stand still between its turns"
                )
        self._tree.freeze()

    # ------------------------------------------------------------ its turns

    def turn(self, steps: int, *, measured: bool = True) -> Turn:
        """Have it run so many steps, and freeze it again.

        :param measured: False: warm-up.
        :raises EndedError: it ended before that.
        :raises OtherStepsError: what ends a step is something else; `settle` again, all turns until now were none.
        :raises ProfilerError: it hangs.
        """
        if measured:  # until it has ended: a program that ends before is counted over what it did
            self._spans.append((time.monotonic_ns(), _FOR_EVER))
        for line in self._driven:
            self._go(line, steps)
        self._tree.thaw()
        patience = max(self._patience, _SLOWER * steps * self._step_s)
        until = time.monotonic() + patience
        answers: dict[Line, dict[str, Any]] = {}
        gone, other = 0.0, False
        while len(answers) < len(self._driven):
            for line, said in self._board.heard(_WAKE_S):  # each of them waits for its answer
                self._answer(line, said)
                if line in self._driven:
                    answers[line] = said
                    other |= "stamps" not in said
            if other:
                raise OtherStepsError(self)
            if len(answers) == len(self._driven):
                break
            self._must_live()
            if any(line not in self._board.lines for line in self._driven):
                gone = gone or time.monotonic()
                if time.monotonic() - gone > self._patience:
                    raise ProfilerError(
                        f"{self.program.side}: a process of it takes no more turns (its output is in {self.folder})"
                    )
            if time.monotonic() > until:
                raise ProfilerError(
                    f"{self.program.side}: {steps} steps did not end within {patience:.0f} s: give them longer with "
                    f"--patience (its output is in {self.folder})"
                )
        self._tree.freeze()
        return self._turn_of([answers[line] for line in self._driven], measured=measured)

    def forget_turns(self) -> None:
        """What it has done until now counts as warm-up."""
        self._spans.clear()

    def _turn_of(self, answers: Sequence[Mapping[str, Any]], *, measured: bool) -> Turn:
        """The lead's steps; the last one until all ranks have ended theirs."""
        stamps = [int(stamp) for stamp in answers[0]["stamps"]]
        stamps[-1] = max(int(answer["stamps"][-1]) for answer in answers)
        self.steps += len(stamps) - 1
        self._step_s = (stamps[-1] - stamps[0]) / (len(stamps) - 1) / 1e9
        if measured:
            self._spans[-1] = stamps[0], stamps[-1]
        tokens = sum(int(answer["tokens"]) for answer in answers)
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
        with suppress(subprocess.TimeoutExpired):  # one that hangs in a driver ends when that lets it
            self._process.wait(_ENDS_S)
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

    def late(self, seconds: float) -> str:
        """What is the matter where it has not come to stand still for so long."""
        standing = sum("since" in line.who for line in self._board.lines)
        ranks = f"{standing} of {self.expected} ranks came to the end of a step"
        what = ranks if self.expected > 1 else "no step was seen"
        return (
            f"{what} within {seconds:.0f} s: mark its steps with profiler.step(), or give it longer with --patience "
            f"(its output is in {self.folder})"
        )

    def stepless(self) -> str:
        """What is the matter where it has ended before it stood still."""
        return (
            f"it ended and no step of it was seen: mark its steps with profiler.step(), or give it more of them "
            f"(its output is in {self.folder})"
        )

    def last_words(self) -> str:
        """The last line of its output; empty where it printed nothing."""
        return last_line(self.spec.out)


def spans_of(run: Path) -> list[tuple[int, int]] | None:
    """Begin and end (ns) of the turns that count in a run directory; None: it was not driven, all of it counts."""
    try:
        return [(int(begin), int(end)) for begin, end in json.loads((run / SPANS).read_text(encoding="ascii"))]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise ProfilerError(f"cannot read which steps of {run} count: {run / SPANS}: {error}") from error
