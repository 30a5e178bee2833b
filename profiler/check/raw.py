"""Rounds as plain JSON values and back: what a report keeps, so that its verdict can be computed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler.check.model import Conditions, Round, Turn


def round_to_json(one: Round) -> dict[str, Any]:
    """Times in ns."""
    return {
        "number": one.number,
        "kind": one.kind,
        "slots": list(one.slots),
        "seconds": round(one.seconds, 3),
        "conditions": {
            "load": one.conditions.load,
            "steal": one.conditions.steal,
            "throttled": list(one.conditions.throttled),
            "cores": one.conditions.cores,
        },
        "turns": [
            {"side": turn.side, "begin": turn.begin, "steps": list(turn.steps), "tokens": turn.tokens}
            for turn in one.turns
        ],
    }


def round_from_json(value: Mapping[str, Any]) -> Round:
    """:raises KeyError, TypeError: it is no round."""
    conditions = value["conditions"]
    turns = (
        Turn(str(turn["side"]), int(turn["begin"]), tuple(map(int, turn["steps"])), int(turn["tokens"]))
        for turn in value["turns"]
    )
    return Round(
        int(value["number"]),
        str(value["kind"]),
        tuple(map(str, value["slots"])),
        tuple(turns),
        float(value["seconds"]),
        Conditions(conditions["load"], conditions["steal"], tuple(conditions["throttled"]), conditions.get("cores")),
    )
