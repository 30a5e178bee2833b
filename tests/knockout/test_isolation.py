"""Isolated programs: they cannot change files, reach the network or other processes, and nothing of them is left."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiler.core.errors import ProfilerError
from profiler.knockout import isolation
from profiler.knockout.trial import check_isolation, isolated
from profiler.run import tables
from tests.check.speed.programs import until

ROOT = Path(__file__).resolve().parents[2]

try:
    check_isolation()
    REFUSED = ""
except ProfilerError as error:
    REFUSED = str(error)
allowed = pytest.mark.skipif(bool(REFUSED), reason=REFUSED or "allowed")

HARM = """
import os, pathlib, shutil, sys
here = pathlib.Path.cwd()
(here / "model.pt").write_text("changed")
(here / "log.txt").open("a").write("more")
shutil.rmtree(here / "checkpoints")
(here / "checkpoints").mkdir()
(here / "new").mkdir()
os.rename(here / "model.pt", here / "moved.pt")
pathlib.Path("/dev/shm/left-by-a-trial").write_text("x")
pathlib.Path("/tmp/left-by-a-trial").write_text("x")
assert list((here / "checkpoints").iterdir()) == []
print("harmed", os.getpid())
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder of a user, and a run directory beside it."""
    folder = tmp_path / "project"
    (folder / "checkpoints").mkdir(parents=True)
    for name in ("model.pt", "log.txt", "checkpoints/1.pt"):
        (folder / name).write_text(name)
    (tmp_path / "run").mkdir()
    return folder


def fingerprint(folder: Path) -> dict[str, tuple[str, int, int]]:
    """The content, mode and time of every file."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
    }


def start(here: Path, source: str, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, tables.ENV_RUN: str(here.parent / "run"), **variables}
    command = isolated((sys.executable, "-c", source))
    return subprocess.Popen(
        command, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def output(here: Path, source: str, **variables: str) -> str:
    with start(here, source, **variables) as process:
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 0, text
    return text


def test_the_variables_of_shared_folders_are_those_of_the_recorder() -> None:
    assert set(isolation.SHARED_VARIABLES) == {tables.ENV_RUN, tables.ENV_CONTROL}


@allowed
def test_no_file_changes(here: Path) -> None:
    before = fingerprint(here)
    assert "harmed 2" in output(here, HARM), "the program has a PID namespace of its own"
    assert fingerprint(here) == before
    assert not Path("/dev/shm/left-by-a-trial").exists()
    assert not Path("/tmp/left-by-a-trial").exists()


@allowed
def test_the_run_directory_is_shared_and_files_can_be_replaced(here: Path) -> None:
    files = here.parent / "files.json"
    files.write_text(json.dumps({str(here / "model.pt"): "of the trial"}))
    source = f"open('{here.parent}/run/kept', 'w').write(open('model.pt').read())"
    output(here, source, **{isolation.FILES_VARIABLE: str(files)})
    assert (here.parent / "run" / "kept").read_text() == "of the trial"
    assert (here / "model.pt").read_text() == "model.pt"


@allowed
def test_the_network_is_the_loopback_interface_only(here: Path) -> None:
    with socket.socket(socket.AF_UNIX) as outside, socket.create_server(("127.0.0.1", 0)) as server:
        outside.bind(str(here / "socket"))
        outside.listen()
        text = output(
            here,
            f"""
import socket
def refused(family, address):
    with socket.socket(family) as client:
        client.settimeout(5)
        try:
            client.connect(address)
        except OSError:
            return True
    return False
print("outside", refused(socket.AF_INET, ("192.0.2.1", 80)))
print("of the machine", refused(socket.AF_INET, {server.getsockname()!r}))
print("socket file", refused(socket.AF_UNIX, "socket"))
with socket.create_server(("127.0.0.1", 0)) as own:
    print("own", refused(socket.AF_INET, own.getsockname()))
""",
        )
    assert text.splitlines() == ["outside True", "of the machine True", "socket file True", "own False"]


@allowed
def test_settings_of_the_kernel_and_disks_cannot_be_written(here: Path) -> None:
    text = output(
        here,
        """
import os, socket
from pathlib import Path
def refused(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return True
    return False
disks = [path for path in Path("/dev").iterdir() if path.is_block_device()]
settings = ["/proc/sys/vm/swappiness", "/proc/sys/kernel/panic", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger"]
print([str(path) for path in [*settings, *disks, "/dev/kmsg"] if not refused(path)])
Path("/dev/null").write_text("x")
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print([number for number in (16, 17, 21, 22, 25, 27) if int(status["CapEff"], 16) >> number & 1])
try:
    socket.sethostname("of-a-trial")
except OSError:
    pass
""",
    )
    assert text.splitlines() == ["[]", "[]"]
    assert socket.gethostname() != "of-a-trial"


@allowed
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a socket")
def test_a_socket_that_is_a_mount_cannot_be_reached(here: Path) -> None:
    # as containers mount the socket of their daemon: in a mount namespace of its own, which ends with the shell
    (here / "mounted").touch()
    client = "import socket\ntry:\n    socket.socket(socket.AF_UNIX).connect('mounted')\n    print('reached')\n"
    client += "except OSError as error:\n    print(type(error).__name__)"
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind(str(here / "socket"))
        outside.listen()
        script = 'mount --bind socket mounted && "$1" -c "$2" && shift 2 && exec "$@"'
        command = [
            "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", sys.executable, client,
            *isolated((sys.executable, "-c", client)),
        ]  # fmt: skip
        environment = {**os.environ, tables.ENV_RUN: str(here.parent / "run")}
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["reached", "ConnectionRefusedError"]


@allowed
def test_processes_of_the_user_cannot_be_seen(here: Path) -> None:
    source = f"import os\ntry:\n    os.kill({os.getpid()}, 0)\n    print('seen')\nexcept OSError:\n    print('none')"
    assert os.getpid() < 10 or "none" in output(here, source)


@allowed
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_all_processes_end_with_the_first_one(here: Path, number: int) -> None:
    before = fingerprint(here)
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    child = f"import time; open('log.txt', 'w').write('x'); time.sleep(600)  # {mark}"
    source = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True).wait()"
    )

    def running() -> int:
        return subprocess.run(["pgrep", "-fc", mark], check=False, capture_output=True).stdout.strip() != b"0"

    with start(here, source) as process:
        until(lambda: len(subprocess.run(["pgrep", "-f", mark], capture_output=True, check=False).stdout.split()) >= 4)
        process.send_signal(number)
        process.wait(30)
        until(lambda: not running())
    assert fingerprint(here) == before


@allowed
def test_exit_codes_are_those_of_the_command(here: Path) -> None:
    for source, code in (("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 15)", 143)):
        with start(here, source) as process:
            process.communicate(timeout=60)
        assert process.returncode == code


def test_what_is_not_allowed_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusing = tmp_path / "isolation.py"
    refusing.write_text("import sys; sys.exit('isolation: new namespaces: Operation not permitted')")
    monkeypatch.setattr(isolation, "__file__", str(refusing))
    with pytest.raises(ProfilerError, match=r"nothing can be tried here.*Operation not permitted.*`compare`") as caught:
        check_isolation()
    assert caught.value.exit_code == 3
