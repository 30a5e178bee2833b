"""Says which packages that a comparison of the bundled trainers needs are missing in this Python: a part of gpu.sh."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from typing import Final

PACKAGES: Final = {
    "annotated-types": "annotated_types",
    "markdown-it-py": "markdown_it",
    "mdurl": "mdurl",
    "nvidia-ml-py": "pynvml",
    "psutil": "psutil",
    "py-spy": "",
    "pydantic": "pydantic",
    "pydantic-core": "pydantic_core",
    "pygments": "pygments",
    "rich": "rich",
    "scipy": "scipy",
    "sentencepiece": "sentencepiece",
    "threadpoolctl": "threadpoolctl",
    "typing-inspection": "typing_inspection",
    "zstandard": "zstandard",
}
"""What a comparison of the bundled trainers needs beside torch and numba-cuda: package -> module; empty: a program."""


def missing_packages() -> str:
    """Why a comparison cannot run in this Python, in one line that names all that is missing; empty: it can."""
    missing = [name for name, module in PACKAGES.items() if not _is_installed(name, module)]
    if missing:
        return f"it lacks {', '.join(missing)}: put their wheels into the folder wheels (docs/gpu.md)"
    for name, module in PACKAGES.items():
        try:
            importlib.import_module(module or "sys")
        except (ImportError, OSError, SystemError) as error:  # of another Python or platform, or of unlike versions
            return f"{name} cannot be imported: {type(error).__name__}: {' '.join(str(error).split())}"
    return ""


def _is_installed(package: str, module: str) -> bool:
    if module:
        return importlib.util.find_spec(module) is not None
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    print(missing_packages())
