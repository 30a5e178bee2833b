"""What the case claimed, beside what was measured here, as it is."""

from __future__ import annotations

from profiler.core.device_names import HOST_DEVICE
from profiler.report import case
from profiler.report.blocks import Cell, Column, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.claims import ClaimRow, claim_rows
from profiler.report.subject import Subject, devices, views

TITLE = "Claimed and measured"
_COLUMNS = (Column("What"), Column("Claimed"), Column("Measured here"))


def build(subject: Subject) -> Section | None:
    """One table; every claim of the case has a row, measured or not."""
    rows = claim_rows(subject)
    if not rows:
        return None
    device = devices(views(subject))
    caption = f"Claimed by {case.SOURCE}, and measured on {device}"
    table = Table(caption, _COLUMNS, tuple(map(_cells, rows)))
    return Section("claims", TITLE, (Text(_of_what(device)), table))


def _cells(row: ClaimRow) -> tuple[Cell, ...]:
    other = "" if row.source == case.SOURCE else row.source
    return Cell(row.what, note=row.side or other), Cell(row.claimed), row.measured


def _of_what(device: str) -> str:
    text = f"The numbers of {case.SOURCE} were given for a GPU; the bundled trainer rebuilds its pattern."
    if device == HOST_DEVICE:
        return (
            f"{text} Everything measured here is of the {device}, which is not a GPU: counts and shares can be held "
            "against the claims, rates and times of the device cannot."
        )
    return f"{text} Everything measured here is of {device}, on this machine."


PLUGIN = SectionPlugin("claims", TITLE, 26, build)
