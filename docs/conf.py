"""Configuration of the documentation site: `make docs` writes it to docs/_build/html."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from profiler import __version__  # noqa: E402

project = "training-profiler"
author = copyright = "The training-profiler authors"  # noqa: A001 - Sphinx reads this name
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_argparse_cli", "reference"]
exclude_patterns = ["_build", "_ext"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = [
    "myst.xref_missing"
]  # links to files outside of docs/; tests/test_project.py checks that they exist

autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["torch", "numba", "sentencepiece"]

html_theme = "furo"  # uses the fonts of the system, and asks nothing of a network
html_title = f"training-profiler {release}"
html_show_sphinx = False
html_copy_source = False
