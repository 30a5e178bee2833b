"""Recognizes matrix products in float32 on a GPU whose tensor cores could compute them in a lower precision."""

from __future__ import annotations

import re
from typing import Final

from profiler.analyse.finding import Confidence
from profiler.diagnose.rule import Rule, RunClaim, StepCosts

_MUCH: Final = 0.2
"""Share of the time from which they are told. A choice: half of it gives 10% where products become twice as fast."""
_TENSOR_CORES: Final = re.compile(
    r"\b(V100S?|Quadro GV100|T4G?|TITAN (V|RTX)|RTX|A\d{1,4}[GX]?|L2|L4|L20|L40[SG]?|H\d{2,3}|GH200|GB10|G?B\d{3})\b"
)
"""Names of NVIDIA's GPUs since Volta that have tensor cores. GeForce GTX 16 and the T400 to T2000 for workstations, all
of the Turing generation, have none."""


def judge(costs: StepCosts) -> RunClaim | None:
    """The time of such products. How much faster they become depends on their sizes and on the device, and whether the
    training allows it is for its owner to tell: no gain is predicted."""
    share = costs.analysis.float32_products
    names = sorted({str(device.get("name") or "") for device in costs.analysis.info.devices})
    if share < _MUCH or len(names) != 1 or not _TENSOR_CORES.search(names[0]):
        return None
    values = {"device": names[0], "products": share}
    return RunClaim(share * costs.seconds, share, values=values, confidence=Confidence.MEDIUM)


PLUGIN = Rule(
    "precision-unused",
    "Matrix products are computed in float32 without tensor cores",
    ("{products:share} of the time the {device} computes products and convolutions in float32.",),
    "Try autocast, or on GPUs since Ampere torch.set_float32_matmul_precision('high'), and compare the loss.",
    judge,
    code='with torch.autocast("cuda"): loss = criterion(model(inputs), labels)',
    threshold=_MUCH,
    threshold_source="_MUCH is a choice. The names of kernels tell their precision.",
)
