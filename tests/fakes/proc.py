"""A folder with the layout of /proc, for tests of what reads it."""

from __future__ import annotations

from pathlib import Path


class FakeProc:
    """Files of made-up processes below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def add(
        self,
        pid: int,
        parent: int = 1,
        *,
        name: str = "python",
        state: str = "S",
        arguments: tuple[str, ...] = ("python", "train.py"),
        environment: dict[str, str] | None = None,
        threads: dict[int, str] | None = None,
    ) -> Path:
        """A process below `parent`. `threads`: the content of each thread's schedstat (default: its main thread)."""
        folder = self.folder / str(pid)
        folder.mkdir()
        entries = [f"{key}={value}" for key, value in (environment or {}).items()]
        (folder / "environ").write_bytes("".join(f"{entry}\0" for entry in entries).encode())
        (folder / "cmdline").write_bytes("".join(f"{argument}\0" for argument in arguments).encode())
        (folder / "status").write_text(f"Name:\t{name}\nUid:\t1000\t1000\t1000\t1000\nVmHWM:\t  2048 kB\n")
        line = f"({name}) {state} {parent} 7 8 " + " ".join(str(field) for field in range(7, 53)) + "\n"
        (folder / "stat").write_text(f"{pid} {line}")
        for tid, schedstat in (threads or {pid: "1500000000 250000000 9"}).items():
            thread = folder / "task" / str(tid)
            thread.mkdir(parents=True)
            (thread / "stat").write_text(f"{tid} {line}")
            (thread / "schedstat").write_text(schedstat + "\n")
            (thread / "comm").write_text(name + "\n")
            (thread / "children").write_text("")
        siblings = self.folder / str(parent) / "task" / str(parent) / "children"
        if siblings.exists():
            siblings.write_text(f"{siblings.read_text()}{pid} ")
        return folder
