"""The sweep: runs groups of jobs by an engine, writes the outcomes, and marks each finished combination as a step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig, refuse
from reference_trainer.program import check_output, obey
from reference_trainer.ssm import group_work, statistics
from reference_trainer.ssm.engine import Engine, Failure, open_engine
from reference_trainer.ssm.group_work import Group, GroupResult, JobWork, SweepContext, first_work, groups
from reference_trainer.ssm.placement import Placement, kind_of
from reference_trainer.ssm.plan import Plan, plan, variant_fixes
from reference_trainer.ssm.problem import Job
from reference_trainer.ssm.result_file import ResultFile
from reference_trainer.ssm.settings import UNUSED, Settings
from reference_trainer.ssm.statistics import Statistics
from reference_trainer.ssm.utilisation import Utilisation, used

_PATHS: Final = ("results", "log")


def facts(
    settings: Settings, config: PerformanceConfig, placement: Placement, *, fixes: Sequence[str], **about: Any
) -> dict[str, Any]:
    """Facts about the sweep for `marks.describe`.

    :param fixes: names of the fixes that are on.
    :param about: facts besides the settings: the variant's label, jobs, engine, workers, start_s, ...
    """
    stated = {name: str(value) if name in _PATHS else value for name, value in asdict(settings).items()}
    return {
        "trainer": "reference_trainer.ssm",
        "fixes": list(fixes),
        "device": placement.kind,
        "device_label": ", ".join(device.name for device in placement.devices),
        "work": "teacher-student sweep",
        "unit": "points",
        "point": "a value of a sequence that went through a student",
        "step": "combination of method, rank and dimension",
        "dtype": "float32 with TF32 products" if config.tf32 else "float32",
        "methods": ", ".join(settings.methods),
        "seeds": f"{settings.seeds[0]} to {settings.seeds[-1]}",
        "teacher_ranks": ", ".join(map(str, settings.teacher_ranks)),
        "student_dims": ", ".join(map(str, settings.student_dims)),
        "sequence_length": settings.sequence_length,
        "measurements": settings.measurements,
        "budget": f"{settings.optimizer} {settings.lr} from {settings.init_scale} to {settings.gd_loss} in "
        f"{settings.epochs} updates, guesses to {settings.gnc_loss} in {settings.max_guesses}",
        "settings": stated,
        "performance": asdict(config),
        **about,
    }


Combination = tuple[str, int, int]


class Steps:
    """Marks a step for each finished combination.

    :param jobs: all jobs that are to be done.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._left: Counter[Combination] = Counter(job[:3] for job in jobs)
        self._points: Counter[Combination] = Counter()

    def ended(self, jobs: Sequence[Job], points: int = 0) -> None:
        """Note that jobs of one combination are done or have failed for good.

        :param points: points that they processed.
        """
        combination = jobs[0][:3]
        self._left[combination] -= len(jobs)
        self._points[combination] += points
        if not self._left[combination]:
            marks.step(tokens=self._points[combination])


Progress = Callable[[str], None]

_PROGRESS_S: Final = 1.0


def sweep(
    settings: Settings,
    config: PerformanceConfig | None = None,
    progress: Progress | None = None,
    *,
    work: JobWork | None = None,
) -> Statistics:
    """Do all jobs that the results file does not contain yet.

    :param progress: receives a line about once per second.
    :param work: does the jobs of a group; None: `group_work.do_jobs`. Picklable, and importable by name in workers.
    :raises TrainerError: bad input, workers that cannot be started, no space for results.
    :raises KeyboardInterrupt: with a message about what is kept.
    """
    return _Sweep(settings, config or PerformanceConfig(), progress or _silent, work).run()


def label(settings: Settings) -> str:
    """The name of the variant, or the names of the fixes."""
    return settings.variant if settings.fixes is None else "+".join(settings.fixes) or "as-found"


def chosen(settings: Settings) -> tuple[tuple[str, ...], Plan]:
    """The requested fixes, and the plan that they make.

    :raises TrainerError: there is no such fix, variant or device, or they cannot be combined.
    """
    # A cluster has its own devices, so this machine's devices do not matter.
    kind = "" if settings.engine == "ray" else kind_of(settings.device)[0]
    names = variant_fixes(settings.variant, kind) if settings.fixes is None else settings.fixes
    return names, plan(names, kind)


def engine_name(settings: Settings, plan: Plan) -> str:
    """The engine in use: `inline` (this process) unless the sweep is flat."""
    return settings.engine if plan.flat else "inline"


def _silent(line: str) -> None:
    """Ignore progress."""


@dataclass(slots=True)
class _Tally:
    """Results of this sweep so far."""

    worked: list[GroupResult] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    retried: int = 0

    @property
    def done(self) -> int:
        return sum(len(work_done.outcomes) for work_done in self.worked)


class _Sweep:
    """One run of a sweep."""

    def __init__(self, settings: Settings, config: PerformanceConfig, progress: Progress, work: JobWork | None) -> None:
        refuse(config, UNUSED)
        self._settings, self._config, self._say, self._work = settings, config, progress, work
        self._names, self._plan = chosen(settings)
        self._engine_name = engine_name(settings, self._plan)
        self._label = label(settings)
        self._jobs = settings.jobs()
        self._tally = _Tally()
        self._began = self._measured = time.perf_counter()
        self._last_progress = 0.0
        self._kind = settings.device
        self._steps = Steps(())

    def run(self) -> Statistics:
        """Run the sweep."""
        if self._settings.log is not None:
            check_output("--log", self._settings.log)
        results: ResultFile | None = None
        try:
            with ExitStack() as stack:
                results = ResultFile(self._settings.results, self._settings, tf32=self._config.tf32)
                stack.callback(results.close)
                return self._run(results, stack)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._kept(results)) from None

    def _run(self, results: ResultFile, stack: ExitStack) -> Statistics:
        if results.note:
            self._say(results.note)
        already_done = sum(job in results.done for job in self._jobs)
        todo = [job for job in self._jobs if job not in results.done]
        remaining = groups(todo, self._settings, self._plan)
        self._steps = Steps(todo)
        if already_done:
            self._say(f"{already_done} of {len(self._jobs)} jobs are in {results.path}")
        engine = stack.enter_context(closing(open_engine(self._engine_name, self._settings.address)))
        workers = self._settings.workers if self._plan.flat else None
        placement = engine.find_devices(self._settings.device, self._config, workers)
        placement = replace(placement, limit=len(remaining))
        self._kind = placement.kind
        for why in placement.left_out:
            self._say(f"left out: {why}")
        samples, short = first_work(remaining, self._settings, self._plan)
        context = SweepContext(self._settings, self._plan, self._config, samples, short, self._work)
        if remaining:
            engine.start(placement, partial(group_work.prepare, context))
        context = replace(context, samples=(), short=None)  # it is sent to a worker with every group
        start_s = time.perf_counter() - self._began
        about = {
            "variant": self._label,
            "jobs": len(self._jobs),
            "jobs_kept": already_done,
            "jobs_to_do": len(todo),
            "engine": self._engine_name,
            "workers": engine.workers,
            "start_s": start_s,
        }
        marks.describe(**facts(self._settings, self._config, placement, fixes=self._names, **about))
        self._say(
            f"{self._label} on {placement.kind}: {sum(map(len, remaining))} jobs in {len(remaining)} groups, "
            f"engine {self._engine_name}, workers: {engine.workers}"
        )
        utilisation = Utilisation(engine.device_names)
        self._measured = self._last_progress = time.perf_counter()
        marks.open_step()
        try:
            if remaining:
                with utilisation:
                    self._do(engine, partial(group_work.do, context), remaining, results)
        except (KeyboardInterrupt, TrainerError):
            with suppress(TrainerError):  # no space is left: the earlier outcomes are in the file
                results.conclude(
                    self._statistics(results, already_done, engine, utilisation, interrupted=True).as_json()
                )
            raise
        result = self._statistics(results, already_done, engine, utilisation)
        results.conclude(result.as_json())
        return result

    # ------------------------------------------------------------ the measured part

    def _do(self, engine: Engine, work: Any, remaining: Sequence[Group], results: ResultFile) -> None:
        retries = list(self._pass(engine, work, remaining, results, last=False))
        self._tally.retried = len(retries)
        if retries:
            # each by itself: one bad job must not fail its whole group
            for _ in self._pass(engine, work, [(job,) for job in retries], results, last=True):
                raise AssertionError("the second attempt must not ask for a third")

    def _pass(
        self, engine: Engine, work: Any, remaining: Sequence[Group], results: ResultFile, *, last: bool
    ) -> Iterator[Job]:
        """Do groups, and yield the jobs to retry."""
        for group, result in engine.run(work, remaining):
            obey()
            if not isinstance(result, Failure):
                self._keep(result, results)
            elif result.refused:  # for example no space for reports: other jobs would fail in the same way
                where = f", which are in {results.path}: the same command continues from there" if results.path else ""
                raise TrainerError(f"{result.reason}; the sweep ended after {self._tally.done} jobs{where}")
            elif last or (result.died and len(group) == 1):
                self._give_up(group, result, results)
            else:
                self._say(f"{_named(group)} failed, {result.reason}: trying once more")
                yield from group

    def _keep(self, worked: GroupResult, results: ResultFile) -> None:
        self._tally.worked.append(worked)
        with marks.region("checkpoint"):
            results.add(worked.outcomes, self._label)
        self._report()
        self._steps.ended(
            [outcome.job for outcome in worked.outcomes], sum(outcome.points for outcome in worked.outcomes)
        )

    def _give_up(self, group: Group, failure: Failure, results: ResultFile) -> None:
        already_done = f"in {results.path}" if results.path is not None else "kept only with --results"
        where = f"; its traceback is {already_done}" if failure.trace else ""
        self._say(f"{_named(group)} failed for good, {failure.reason}{where}")
        for job in group:
            self._tally.failures[job.name] = failure.reason
        results.fail(group, failure.reason, failure.trace)
        self._steps.ended(group)

    def _report(self) -> None:
        now = time.perf_counter()
        if now - self._last_progress > _PROGRESS_S:
            self._last_progress = now
            with marks.region("log"):
                rate = self._tally.done / (now - self._measured)
                self._say(f"{self._tally.done} jobs, {rate:,.1f} jobs/s")

    # ------------------------------------------------------------ the summary

    def _kept(self, results: ResultFile | None) -> str:
        if results is None or results.path is None:
            return f"interrupted after {self._tally.done} jobs; nothing is kept because --results was not given"
        done = sum(job in results.done for job in self._jobs)
        kept = f"{done} of {len(self._jobs)} jobs are in {results.path}"
        return f"interrupted: {kept}, the same command continues from there"

    def _statistics(
        self,
        results: ResultFile,
        already_done: int,
        engine: Engine,
        utilisation: Utilisation,
        *,
        interrupted: bool = False,
    ) -> Statistics:
        tally, wall = self._tally, time.perf_counter() - self._measured
        own_outcomes = [outcome for work_done in tally.worked for outcome in work_done.outcomes]
        attempted = len(own_outcomes) + len(tally.failures)
        done = {job: results.done[job] for job in self._jobs if job in results.done}
        return Statistics(
            variant=self._label,
            fixes=self._names,
            engine=self._engine_name,
            workers=engine.workers,
            device=self._kind,
            jobs=len(self._jobs),
            done=len(done),
            kept=already_done,
            failures=tally.failures,
            retried=tally.retried + engine.redone,
            success_rate=len(own_outcomes) / attempted if attempted else None,
            memory_per_job=statistics.mean_memory(own_outcomes),
            devices=used(tally.worked, engine, utilisation, wall),
            wall_s=wall,
            start_s=self._measured - self._began,
            jobs_per_s=len(own_outcomes) / wall if own_outcomes else None,
            points=sum(outcome.points for outcome in own_outcomes),
            interrupted=interrupted,
            cells=statistics.cells(done.values()),
        )


def _named(group: Group) -> str:
    return group[0].name if len(group) == 1 else f"{group[0].name} and {len(group) - 1} more of its group"
