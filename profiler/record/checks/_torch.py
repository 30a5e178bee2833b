"""What torch says of itself, asked in a process of its own: a driver that hangs stops only that."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, Final

from profiler.record.checks._child import ChildError, answer_of

SECONDS: Final = 45.0
"""Importing torch from a cold disk takes 20 s and more."""
_ASK: Final = """
import importlib.util, json, sys
spec = importlib.util.find_spec("torch")
if spec is None:
    print(json.dumps({"missing": True})); sys.exit()
import torch
said = {"version": torch.__version__, "file": torch.__file__, "cuda": torch.version.cuda, "hip": torch.version.hip,
        "kineto": torch.profiler.kineto_available()}
said["activities"] = [str(one).rpartition(".")[2] for one in torch.profiler.supported_activities()]
try:
    said["gpus"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if said["gpus"]:
        torch.zeros(1, device="cuda").item()
except Exception as error:
    said["error"] = " ".join(str(error).split())[:200]
print("\\n" + json.dumps(said))
"""
_known: dict[str, Mapping[str, Any] | ChildError] = {}
_asking = threading.Lock()


def said(python: str) -> Mapping[str, Any]:
    """Of the torch in `python`; asked once.

    :raises ChildError: no answer.
    """
    with _asking:
        if python not in _known:
            try:
                _known[python] = json.loads(answer_of([python, "-c", _ASK], SECONDS).strip().splitlines()[-1])
            except ChildError as error:
                _known[python] = error
            except (ValueError, IndexError):
                _known[python] = ChildError("its answer cannot be read")
        answer = _known[python]
    if isinstance(answer, ChildError):
        raise answer
    return answer
