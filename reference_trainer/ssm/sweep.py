"""The sweep: runs groups of jobs by an engine, writes the outcomes, and marks each finished combination as a step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from functools import partial
from statistics import fmean
from typing import Any, Final

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig, perf_config, refuse
from reference_trainer.program import check_output, obey
from reference_trainer.ssm import group_work
from reference_trainer.ssm.engine import Engine, Failure, open_engine
from reference_trainer.ssm.group_work import Group, GroupResult, JobWork, SweepContext, first_work, groups
from reference_trainer.ssm.placement import Placement, kind_of
from reference_trainer.ssm.plan import Plan, plan, variant_fixes
from reference_trainer.ssm.problem import Job
from reference_trainer.ssm.result_file import ResultFile
from reference_trainer.ssm.settings import UNUSED, Settings
from reference_trainer.ssm.statistics import Statistics, Utilization, cells, used

Progress = Callable[[str], None]

_PROGRESS_S: Final = 1.0
_ROUNDING: Final = 0.01
"""Relative difference of losses and updates that rounding explains: sums of fp32 and fp64 draws differ by 2e-3."""
_LOST: Final = 1e-4
"""Absolute difference of losses, for those that are small differences of larger numbers."""


def sweep(
    settings: Settings,
    config: PerformanceConfig | None = None,
    progress: Progress | None = None,
    *,
    work: JobWork = group_work.do_jobs,
) -> Statistics:
    """Do all jobs that the results file does not contain yet.

    :param progress: receives a line about once per second.
    :param work: does the jobs of a group. Picklable, and importable by name in workers.
    :raises TrainerError: bad input, workers that cannot be started, no space for results.
    :raises KeyboardInterrupt: with a message about what is kept.
    """
    config = config or perf_config.current
    refuse(config, UNUSED)
    if settings.log is not None:
        check_output("--log", settings.log)
    running = None
    try:
        running = _Sweep(settings, config, progress or (lambda _: None), work)
        with closing(running.results):
            return running.run()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(running.kept() if running else "interrupted after 0 jobs") from None


def chosen(settings: Settings) -> tuple[tuple[str, ...], Plan]:
    """The requested fixes, and the plan that they make."""
    # A cluster has its own devices, so this machine's devices do not matter.
    kind = "" if settings.engine == "ray" else kind_of(settings.device)
    names = variant_fixes(settings.variant, kind) if settings.fixes is None else settings.fixes
    result = plan(names, kind)
    if settings.batch_size is not None and not (result.batched_draws and settings.gnc):
        missing = "the method --gnc" if result.batched_draws else "the fix 'batched-draws'"
        raise TrainerError(f"--batch-size has no effect without {missing}: add it, or leave --batch-size out")
    return names, result


class _Sweep:
    """One run of a sweep."""

    def __init__(self, settings: Settings, config: PerformanceConfig, progress: Progress, work: JobWork) -> None:
        self._settings, self._config, self._say, self._work = settings, config, progress, work
        self._names, self._plan = chosen(settings)
        self._engine_name = settings.engine if self._plan.flat else "inline"
        self._label = settings.variant if settings.fixes is None else "+".join(settings.fixes) or "as-found"
        self._jobs = settings.jobs()
        self.results = ResultFile(settings.results, settings, tf32=config.tf32)  # after bad settings were refused
        self._todo = [job for job in self._jobs if job not in self.results.done]
        self._left = Counter(job[:3] for job in self._todo)
        """By combination, the number of jobs that have not ended."""
        self._points: Counter[tuple[str, int, int]] = Counter()
        """By combination, the points that its jobs processed."""
        self._worked: list[GroupResult] = []
        self._failures: dict[str, str] = {}
        self._failed_attempts: Counter[str] = Counter()
        """By name of the device, the attempts of jobs that ended with an error."""
        self._retries: list[Job] = []
        self._began = self._measured = time.perf_counter()
        self._last_progress = 0.0

    @property
    def _done(self) -> int:
        """The number of jobs that this sweep has done."""
        return sum(len(group.outcomes) for group in self._worked)

    def run(self) -> Statistics:
        if self.results.note:
            self._say(self.results.note)
        if before := len(self._jobs) - len(self._todo):
            self._say(f"{before} of {len(self._jobs)} jobs are in {self.results.path}")
        with closing(open_engine(self._engine_name, self._settings.address)) as engine:
            remaining = groups(self._todo, self._settings, self._plan)
            workers = self._settings.workers if self._plan.flat else None
            placement = engine.find_devices(self._settings.device, self._config, workers)
            for why in placement.left_out:
                self._say(f"left out: {why}")
            placement = replace(placement, limit=len(remaining))
            work = self._start(engine, placement, remaining)
            utilization = Utilization(engine.device_names)
            summary = partial(self._statistics, placement.kind, engine, utilization)
            self._measured = self._last_progress = time.perf_counter()
            marks.open_step()
            try:
                if remaining:
                    with utilization:
                        self._pass(engine, work, remaining)
                        if self._retries:  # each by itself: one bad job must not fail its whole group
                            self._pass(engine, work, [(job,) for job in self._retries], last=True)
            except (KeyboardInterrupt, TrainerError):
                with suppress(TrainerError):  # no space is left: the earlier outcomes are in the file
                    self.results.conclude(summary(interrupted=True).as_json())
                raise
            result = summary(interrupted=False)
            self._state_results()
            self.results.conclude(result.as_json())
            return result

    def kept(self) -> str:
        """What is kept of a sweep that is interrupted."""
        if self.results.path is None:
            return f"interrupted after {self._done} jobs; nothing is kept because --results was not given"
        done = sum(job in self.results.done for job in self._jobs)
        kept = f"{done} of {len(self._jobs)} jobs are in {self.results.path}"
        return f"interrupted: {kept}, the same command continues from there"

    def _start(self, engine: Engine, placement: Placement, remaining: Sequence[Group]) -> Any:
        """Start the workers, describe the sweep to the profiler, and return the work of a group."""
        context = SweepContext(self._settings, self._plan, self._config, self._work)
        if remaining:
            samples, short = first_work(remaining, self._settings, self._plan)
            engine.start(placement, partial(group_work.prepare, context, samples, short))
        self._describe(engine, placement)
        self._say(
            f"{self._label} on {placement.kind}: {len(self._todo)} jobs in {len(remaining)} groups, "
            f"engine {self._engine_name}, workers: {engine.workers}"
        )
        return partial(group_work.do, context)

    def _describe(self, engine: Engine, placement: Placement) -> None:
        """State the facts of the sweep to the profiler."""
        settings = self._settings
        budget = f"{settings.optimizer} {settings.lr} from {settings.init_scale} to {settings.gd_loss}"
        guesses = f"guesses to {settings.gnc_loss} in {settings.max_guesses}"
        stated = {name: str(value) if name in ("results", "log") else value for name, value in asdict(settings).items()}
        marks.describe(
            trainer="reference_trainer.ssm",
            variant=self._label,
            fixes=list(self._names),
            device=placement.kind,
            device_label=", ".join(device.name for device in placement.devices),
            work="teacher-student sweep",
            unit="points",
            point="a value of a sequence that went through a student",
            step="combination of method, rank and dimension",
            dtype="float32 with TF32 products" if self._config.tf32 else "float32",
            methods=", ".join(settings.methods),
            seeds=f"{settings.seeds[0]} to {settings.seeds[-1]}",
            teacher_ranks=", ".join(map(str, settings.teacher_ranks)),
            student_dims=", ".join(map(str, settings.student_dims)),
            sequence_length=settings.sequence_length,
            measurements=settings.measurements,
            budget=f"{budget} in {settings.epochs} updates, {guesses}",
            settings=stated,
            performance=asdict(self._config),
            jobs=len(self._jobs),
            jobs_kept=len(self._jobs) - len(self._todo),
            jobs_to_do=len(self._todo),
            engine=self._engine_name,
            workers=engine.workers,
            start_s=time.perf_counter() - self._began,
        )

    def _pass(self, engine: Engine, work: Any, remaining: Sequence[Group], *, last: bool = False) -> None:
        """Do groups. A job that fails is tried once more in the last pass."""
        for group, result in engine.run(work, remaining):
            obey()
            if not isinstance(result, Failure):
                self._keep(group, result)
                continue
            self._failed_attempts[result.device] += len(group)
            if result.refused:  # for example no space for reports: other jobs would fail in the same way
                path = self.results.path
                where = f", which are in {path}: the same command continues from there" if path else ""
                raise TrainerError(f"{result.reason}; the sweep ended after {self._done} jobs{where}")
            if last or (result.died and len(group) == 1):
                self._give_up(group, result)
            else:
                self._say(f"{_named(group)} failed, {result.reason}: trying once more")
                self._retries += group

    def _keep(self, group: Group, worked: GroupResult) -> None:
        self._worked.append(worked)
        with marks.region("checkpoint"):
            self.results.add(worked.outcomes, self._label)
        now = time.perf_counter()
        if now - self._last_progress > _PROGRESS_S:
            self._last_progress = now
            with marks.region("log"):
                self._say(f"{self._done} jobs, {self._done / (now - self._measured):,.1f} jobs/s")
        self._end(group, sum(outcome.points for outcome in worked.outcomes))

    def _give_up(self, group: Group, failure: Failure) -> None:
        kept = f"in {self.results.path}" if self.results.path is not None else "kept only with --results"
        where = f"; its traceback is {kept}" if failure.trace else ""
        self._say(f"{_named(group)} failed for good, {failure.reason}{where}")
        self._failures.update((job.name, failure.reason) for job in group)
        self.results.fail(group, failure.reason, failure.trace)
        self._end(group)

    def _end(self, group: Group, points: int = 0) -> None:
        """Note that jobs of one combination are done or have failed for good; the last ones of it end a step."""
        combination = group[0][:3]
        self._left[combination] -= len(group)
        self._points[combination] += points
        if not self._left[combination]:
            marks.step(tokens=self._points[combination])

    def _state_results(self) -> None:
        """State the outcomes for `compare`, in the order of the jobs, whichever worker was done first."""
        fits = [self.results.done[job].fit for job in self._jobs if job in self.results.done]
        if not fits:
            return
        marks.result("guesses", [fit.guesses for fit in fits])
        # rounding may reach the requested loss an update earlier, and the updates after that are others
        marks.result("updates", [float(fit.epochs) for fit in fits], rtol=_ROUNDING, atol=1)
        for name in ("train_loss", "generalization_loss"):
            values = [getattr(fit, name) for fit in fits]
            marks.result(name.replace("_", " "), values, rtol=_ROUNDING, atol=_LOST)

    def _statistics(self, kind: str, engine: Engine, utilization: Utilization, *, interrupted: bool) -> Statistics:
        wall = time.perf_counter() - self._measured
        own_outcomes = [outcome for group in self._worked for outcome in group.outcomes]
        attempted = len(own_outcomes) + len(self._failures)
        failed = self._failed_attempts.copy()
        for group, device in engine.redone:
            failed[device] += len(group)
        done = [self.results.done[job] for job in self._jobs if job in self.results.done]
        return Statistics(
            variant=self._label,
            fixes=self._names,
            engine=self._engine_name,
            workers=engine.workers,
            device=kind,
            jobs=len(self._jobs),
            done=len(done),
            kept=len(self._jobs) - len(self._todo),
            failures=self._failures,
            retried=len(self._retries) + len(engine.redone),
            success_rate=len(own_outcomes) / attempted if attempted else None,
            memory_per_job=fmean(outcome.memory_bytes for outcome in own_outcomes) if own_outcomes else None,
            devices=used(self._worked, failed, engine, utilization, wall),
            wall_s=wall,
            start_s=self._measured - self._began,
            jobs_per_s=len(own_outcomes) / wall if own_outcomes else None,
            points=sum(outcome.points for outcome in own_outcomes),
            interrupted=interrupted,
            cells=cells(done),
        )


def _named(group: Group) -> str:
    return group[0].name if len(group) == 1 else f"{group[0].name} and {len(group) - 1} more of its group"
