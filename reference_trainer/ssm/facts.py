"""What the profiler is told of a sweep: what it is, and by what it may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.placement import Placement
from reference_trainer.ssm.settings import Settings

_PATHS: Final = ("results", "log")


def facts(
    settings: Settings, config: PerformanceConfig, placement: Placement, *, fixes: Sequence[str], **about: Any
) -> dict[str, Any]:
    """For `marks.describe`.

    :param fixes: that are on, by name.
    :param about: what is known beside the settings: the variant's label, jobs, engine, workers, start_s, ...
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
