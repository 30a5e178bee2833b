"""Whether runs can be written, and how much room there is for them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from profiler.core.capability import NO, PARTLY, YES, Answer
from profiler.core.units import size
from profiler.record.checks import Place

_LITTLE: Final = 1 << 30
"""Bytes free below which a long recording at level standard may fill the disk."""


class DiskCheck:
    """A file without a name in the folder of runs, or in the nearest one above it that is there."""

    name = "disk"
    title = "room for runs"
    order = 50
    needed = True
    patience_s = 5.0

    def look(self, place: Place) -> Answer:
        runs = place.runs.absolute()
        folder = next((one for one in (runs, *runs.parents) if one.exists()), Path("/"))
        try:
            if not folder.is_dir():
                return Answer(NO, f"{folder} is no folder", "give another: run --out DIR")
            with TemporaryFile(dir=folder) as file:
                file.write(bytes(1 << 12))
                file.flush()
                os.fsync(file.fileno())
            free = shutil.disk_usage(folder).free
        except OSError as error:
            return Answer(NO, f"{folder} cannot be written: {error.strerror}", "give another: run --out DIR")
        if free < _LITTLE:
            return Answer(
                PARTLY, f"{size(free)} free at {folder}: long recordings may not fit", "give another: run --out DIR"
            )
        return Answer(YES, f"{size(free)} free at {folder}")


PLUGIN = DiskCheck()
