"""Puts what `try` measured about findings before their predicted gains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from profiler.analyse.finding import Finding, Gain, GainMethod
from profiler.run.trials import Trial


def with_trials(findings: Iterable[Finding], trials: Sequence[Trial]) -> tuple[Finding, ...]:
    """The findings with measured gains where there are some, those with the largest gain first."""
    measured = [_with_trial(finding, trials) for finding in findings]
    return tuple(sorted(measured, key=lambda finding: (bool(finding.overlaps), -finding.gain, finding.rule.name)))


def _with_trial(finding: Finding, trials: Sequence[Trial]) -> Finding:
    site = f"{finding.sites[0].file}:{finding.sites[0].line}" if finding.sites else ""
    for trial in trials:
        if (trial.rule, trial.site) == (finding.rule.name, site) and None not in (trial.factor, trial.low, trial.high):
            ends = trial.factor or 1.0, trial.low or 1.0, trial.high or 1.0
            gain = Gain(GainMethod.KNOCK_OUT, *ends, is_least=trial.is_least)
            return replace(finding, gains=(gain, *finding.gains))
    return finding
