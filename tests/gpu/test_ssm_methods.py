"""Both methods on a real GPU: as found and with all cures, what the fp64 reference gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reference_trainer.ssm.group_work import do_jobs
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import GD, GNC
from tests.reference_trainer.ssm.method_reference import reference
from tests.reference_trainer.ssm.test_methods import ALL, SMALL, fits, jobs, same

pytestmark = pytest.mark.gpu
DEVICE = "cuda:0"


@pytest.mark.parametrize("plan", [Plan(), replace(Plan(), batched_seeds=True, batched_draws=True), ALL])
@pytest.mark.parametrize("method", [GD, GNC])
def test_same_as_the_reference(method: str, plan: Plan) -> None:
    same(fits(method, plan, device=DEVICE), [reference(job, SMALL) for job in jobs(method)])


def test_memory_is_that_of_the_device() -> None:
    found = do_jobs(jobs(GNC), SMALL, ALL, DEVICE)
    assert {outcome.device for outcome in found} == {DEVICE}
    assert all(outcome.memory_bytes > 0 for outcome in found)
