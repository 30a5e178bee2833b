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
    found: dict[str, Used] = {}
    names = dict.fromkeys([*engine.places, *(one.place for one in worked)])
    for name in names:
        here = [one for one in worked if one.place == name]
        workers = engine.places.count(name) or len({one.process for one in here})
        share, why_not = _utilisation(name, here, engine, utilisation, wall)
        jobs = sum(len(one.outcomes) for one in here)
        found[name] = Used(jobs, sum(one.seconds for one in here) / (wall * workers), share, why_not)
    return found


def _utilisation(
    name: str, worked: Sequence[Worked], engine: Engine, utilisation: Utilisation, wall: float
) -> tuple[float | None, str]:
    if name.endswith(CPU):
        there = worked[0].cores if worked else cores()
        return sum(one.cpu_seconds for one in worked) / (wall * there), ""
    if name not in engine.places:
        return None, "it is of a cluster, and is not sampled from here"
    share = utilisation.mean(name)
    return share, "" if share is not None else utilisation.why or "no sample was taken"
