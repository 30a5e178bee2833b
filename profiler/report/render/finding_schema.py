"""Defines the schema of findings in JSON reports, from which the documentation is generated."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class SiteDocument(_Model):
    """A line of the program."""

    file: str
    line: int
    function: str
    source: str
    """Text of the line, without indentation; empty: it was not recorded."""


class GainDocument(_Model):
    """A prediction, or a measurement, of what a cure gives."""

    method: Literal["bound", "estimate", "replay", "knock-out"]
    """bound: the recorded step without the cost; estimate: the same, where a part of the cost is assumed; replay: the
    recorded steps simulated with the cure; knock-out: measured by `try`."""
    factor: float
    """How many times as many steps per second."""
    low: float
    """`low` and `high` are the 95% interval of `factor`."""
    high: float
    is_least: bool
    """Whether the cure also makes the rest of the step faster, by how much is not known."""
    is_most: bool
    """Whether it is the gain of leaving out work of which the program needs a part, such as evaluation."""


class FindingDocument(_Model):
    """One cause of slowness."""

    rule: str
    """Name of the rule that recognized it. Names are stable."""
    seconds: float = Field(ge=0)
    """Seconds per step that the cause costs."""
    share: float = Field(ge=0)
    """The same as a share of a step without waits for a core and recording."""
    low: float
    """`low` and `high` are the 95% interval of `share`, equal where the cost was recorded exactly."""
    high: float
    confidence: Literal["high", "medium", "low"]
    costs: dict[str, float]
    """`seconds` by category of the step."""
    is_of_run: bool
    """Whether `seconds` and `share` are of the whole run, and not of a step; both are 0 where a cause costs no time."""
    title: str
    """The cause in a sentence."""
    evidence: list[str]
    """Sentences with the figures that show it."""
    fix: str
    """What to do about it."""
    code: str
    """What to write instead; empty: no code says it."""
    sites: list[SiteDocument] = Field(max_length=3)
    """The lines that cause it, the largest cost first."""
    gains: list[GainDocument]
    """The most certain one first; empty: nothing is predicted."""
    left_out: float
    """Share of the recorded step that `share` and `gains` leave out: waits for a core, and the cost of recording."""
    overlaps: str
    """The rule of a larger finding about the same time; empty: none."""


class NotJudgedDocument(_Model):
    """A rule that cannot judge the run."""

    rule: str
    reason: str


class FindingsDocument(_Model):
    """The keys `findings` and `not_judged` of `run/1` and `monitor/1`."""

    findings: list[FindingDocument]
    """What makes the run slow, the largest gain first; findings about the same time as another stand last."""
    not_judged: list[NotJudgedDocument]
