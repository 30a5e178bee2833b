"""A run in one file: a .zip of its directory, unpacked for as long as it is read."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from profiler.core.errors import ProfilerError
from profiler.run import tables


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """The run directory that `archive` holds, in a temporary folder that goes away again.

    The run may lie at the top of the archive or in one folder. Entries that point outside of it are kept inside
    (`zipfile` drops `..` and absolute paths). A fault found in the run is told of the archive.

    :raises ProfilerError: not a .zip, a damaged one, or one without a run or with several.
    """
    with TemporaryDirectory(prefix="profiler-") as temporary:
        try:
            with zipfile.ZipFile(archive) as file:
                file.extractall(temporary)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise ProfilerError(f"{archive} is damaged, or not a .zip that can be read: {error}") from error
        except OSError as error:
            raise ProfilerError(f"cannot unpack {archive}: {error.strerror or error}") from error
        runs = [file.parent for file in Path(temporary).rglob(tables.MANIFEST)]
        if len(runs) != 1:
            raise ProfilerError(f"{archive} holds {len(runs)} runs: give a .zip of one run directory")
        try:
            yield runs[0]
        except ProfilerError as error:
            raise ProfilerError(str(error).replace(str(runs[0]), str(archive)), error.exit_code) from error
