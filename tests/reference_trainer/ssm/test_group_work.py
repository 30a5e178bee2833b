"""The memory of a device is divided among its workers."""

from __future__ import annotations

import pytest

from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm import group_work
from reference_trainer.ssm.group_work import SweepContext
from reference_trainer.ssm.placement import WorkerSlot
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.settings import Settings
from tests.reference_trainer.ssm import fake_jobs


def test_memory_is_divided_anew_only_where_others_came(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[int] = []
    monkeypatch.setattr(group_work, "_sharing", {})
    monkeypatch.setattr(group_work, "apply", lambda config, device, *, sharing: requested.append(sharing))
    settings = Settings()
    context = SweepContext(settings, Plan(), PerformanceConfig(), work=fake_jobs.work)
    group, alone = settings.jobs()[:1], WorkerSlot("cpu", "cpu")
    group_work.prepare(context, alone)
    group_work.do(context, group, alone)
    assert requested == [1]
    for _ in range(3):
        group_work.do(context, group, alone._replace(sharing=4))
    assert requested == [1, 4]
    group_work.prepare(context, alone._replace(sharing=4))
    assert requested == [1, 4, 4], "another sweep may have other settings"
