"""What a sweep made of its devices: the jobs of each, how busy its workers were, and how busy it was itself."""

from __future__ import annotations

from collections.abc import Sequence

from reference_trainer.ssm.engine import Engine
from reference_trainer.ssm.group_work import Worked
from reference_trainer.ssm.placement import CPU, cores
from reference_trainer.ssm.statistics import Used
from reference_trainer.ssm.utilisation import Utilisation


def used(worked: Sequence[Worked], engine: Engine, utilisation: Utilisation, wall: float) -> dict[str, Used]:
    """By device."""
    result: dict[str, Used] = {}
    names = dict.fromkeys([*engine.device_names, *(group.slot for group in worked)])
    for name in names:
        here = [group for group in worked if group.slot == name]
        workers = engine.device_names.count(name) or len({group.process for group in here})
        share, why_not = _utilisation(name, here, engine, utilisation, wall)
        jobs = sum(len(group.outcomes) for group in here)
        result[name] = Used(jobs, sum(group.seconds for group in here) / (wall * workers), share, why_not)
    return result


def _utilisation(
    name: str, worked: Sequence[Worked], engine: Engine, utilisation: Utilisation, wall: float
) -> tuple[float | None, str]:
    if name.endswith(CPU):
        there = worked[0].cores if worked else cores()
        return sum(group.cpu_seconds for group in worked) / (wall * there), ""
    if name not in engine.device_names:
        return None, "it is of a cluster, and is not sampled from here"
    share = utilisation.mean(name)
    return share, "" if share is not None else utilisation.why or "no sample was taken"
