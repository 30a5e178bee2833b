"""Small synthetic data in the formats that public programs read. The values are random numbers with a fixed seed."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.clinic.data import characters, mnist, words

_SEED: Final = 20


def images(folder: Path, each: int = 8, size: int = 64) -> None:
    """Folders train and val with two classes of PNG files."""
    _pictures([folder / part / label for part in ("train", "val") for label in ("cat", "dog")], each, size)


def photographs(folder: Path, each: int = 8, size: int = 256) -> None:
    """Folders train and test with PNG files, as in the data set BSDS300."""
    _pictures([folder / "train", folder / "test"], each, size)


def _pictures(folders: list[Path], each: int, size: int) -> None:
    from PIL import Image

    values = np.random.default_rng(_SEED)
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(each):
            pixels = values.integers(0, 256, (size, size, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")


def planetoid(folder: Path, nodes: int = 800, features: int = 40, classes: int = 4) -> None:
    """The eight files of the citation graph Cora in the format of Planetoid (Yang and others, 2016)."""
    import scipy.sparse

    raw = folder / "Cora" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(_SEED)
    train, test = 40, 100
    x = (values.random((nodes, features)) < 0.1).astype(np.float32)
    x[:, 0] = 1
    y = np.eye(classes, dtype=np.int32)[values.integers(0, classes, nodes)]
    graph = {node: values.integers(0, nodes, 4).tolist() for node in range(nodes)}
    rest = nodes - test
    parts: dict[str, Any] = {
        "x": scipy.sparse.csr_matrix(x[:train]), "y": y[:train], "allx": scipy.sparse.csr_matrix(x[:rest]),
        "ally": y[:rest], "tx": scipy.sparse.csr_matrix(x[rest:]), "ty": y[rest:], "graph": graph,
    }  # fmt: skip
    for name, value in parts.items():
        (raw / f"ind.cora.{name}").write_bytes(pickle.dumps(value))
    (raw / "ind.cora.test.index").write_text("".join(f"{node}\n" for node in range(rest, nodes)), encoding="utf-8")


def cora(folder: Path, nodes: int = 2708, features: int = 1433) -> None:
    """The archive of the citation graph Cora, and a module `requests` that answers every request with it."""
    folder.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(_SEED)
    names = ("Case_Based", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods", "Theory")
    content = io.StringIO()
    for node in range(nodes):
        row = (values.random(features) < 0.01).astype(int)
        row[node % features] = 1
        content.write("\t".join([str(node), *map(str, row), names[values.integers(len(names))]]) + "\n")
    edges = values.integers(0, nodes, (5429, 2))
    cites = "".join(f"{a}\t{b}\n" for a, b in edges)
    with tarfile.open(folder / "cora.tgz", "w:gz") as archive:
        for name, body in (("cora/cora.content", content.getvalue()), ("cora/cora.cites", cites)):
            entry = tarfile.TarInfo(name)
            entry.size = len(body.encode())
            archive.addfile(entry, io.BytesIO(body.encode()))
    answer = f"""
import types
def get(*_, **__):
    return Answer()
class Answer:
    status_code = 200
    def __init__(self):
        self.raw = open({str(folder / "cora.tgz")!r}, "rb")
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.raw.close()
"""
    (folder / "requests.py").write_text(answer, encoding="utf-8")


def small_mnist(folder: Path) -> None:
    """MNIST's files with 256 images for training and 128 for testing."""
    mnist(folder, train=256, test=128)


MAKERS: Final[dict[str, Callable[[Path], None]]] = {
    "mnist": small_mnist, "images": images, "words": words, "characters": characters, "planetoid": planetoid,
    "cora": cora, "photographs": photographs,
}  # fmt: skip
"""The functions by name."""
