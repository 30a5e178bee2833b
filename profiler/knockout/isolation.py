"""Runs a command so that it can change nothing: files, other processes and the network stay as they are.

    python isolation.py COMMAND ARGS...

The command gets its own mount, PID, IPC, UTS and network namespaces. Every file system is covered by an overlay whose
changes go to memory, or is read-only; only the folders of `PROFILER_RUN_DIR` and `PROFILER_TURNS` are shared with the
outside. Only the loopback interface exists. Settings of the kernel are read-only, of the devices only accelerators and
those without content can be opened, and root loses the capabilities that change the machine. `PROFILER_TRIAL_FILES`
names a JSON file with a new text for files that the command then reads. When this process ends, by `kill -9` too, the
kernel ends all processes of the command, and the changes disappear with them: nothing has to be cleaned up.

This file is executed by itself, without the package, and without the environment's modules of Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import struct
import sys

TYPE_CHECKING = False  # typing takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

FAILED = 113
"""Exit code where the command was not started, since it cannot be isolated; the reason is on standard error."""
CHANGES_SHARE = 0.125
"""Share of the available memory that the changes of a command may take, with what it puts in /dev/shm. Two commands
run beside each other. A choice."""
SHARED_VARIABLES = {"PROFILER_RUN_DIR": False, "PROFILER_TURNS": True}
"""Variables with a path that the command shares with the outside; True: it is a file, whose folder is shared."""

FILES_VARIABLE = "PROFILER_TRIAL_FILES"

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY, _ATTR_NODEV = -100, 0x8000, 1, 4
_PIVOT_ROOT, _MOUNT_SETATTR = 155, 442
"""System calls for which the C library has no function: pivot_root(2) on x86-64, mount_setattr(2) everywhere."""
_PIVOT_ROOT_ARM = 41
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP = 1, 24
_CAPABILITIES = {
    "SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_ADMIN": 21, "SYS_BOOT": 22, "SYS_TIME": 25, "MKNOD": 27, "MAC_ADMIN": 33,
    "SYSLOG": 34, "WAKE_ALARM": 35, "BPF": 39,
}  # fmt: skip
"""Those that the command loses, since they change the machine: numbers of linux/capability.h."""
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_SYSTEM = frozenset(
    (
        "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
        "fusectl", "hugetlbfs", "mqueue", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
    )
)  # fmt: skip
"""File systems that hold no files of the user; they are shown as they are, read-only."""
_COPIED_BYTES = 1 << 20
"""Largest file that is copied where no overlay can cover its folder; larger ones are read-only."""
_MEMORY_FOLDER = "/dev/shm"
_KERNEL_FILES = tuple(f"/proc/{name}" for name in ("sys", "irq", "bus", "fs", "acpi", "scsi", "sysrq-trigger"))
"""Parts of /proc that root could change the machine by; they become read-only."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_ACCELERATORS = (
    "nvidia", "nvhost", "nvmap", "gdrdrv", "dxg", "dri", "kfd", "infiniband", "accel", "vfio", "davinci",
    "hisi", "habana",
)  # fmt: skip
"""Entries of /dev that can be opened, by their names and by how they begin; disks are not among them."""
_SOCKET_FOLDERS = ("/run", "/var/run")
_libc = ctypes.CDLL(None, use_errno=True)


class IsolationError(Exception):
    """The system refuses a step of the isolation."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {os.strerror(code)}")
        self.code = code


def _call(what: str, result: int) -> None:
    if result < 0:
        raise IsolationError(what, ctypes.get_errno())


def _mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    encoded = [os.fsencode(text) if text is not None else None for text in (source, target, kind)]
    _call(f"mount {kind or ''} {target}".replace("  ", " "), _libc.mount(*encoded, flags, os.fsencode(options)))


def _read_only(path: str, more: int = 0) -> None:
    """Make a mount and all below it read-only, with more attributes; needs Linux 5.12."""
    attributes = struct.pack("QQQQ", _ATTR_RDONLY | more, 0, 0, 0)
    arguments = _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE, attributes, ctypes.c_size_t(len(attributes))
    _call(f"mount_setattr {path}", _libc.syscall(_MOUNT_SETATTR, *arguments))


def _mounts() -> Iterator[tuple[str, str]]:
    """Yield the path and the type of each mount, those that cover others later."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields, _, rest = line.partition(" - ")
            path = fields.split()[4]
            for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                path = path.replace(code, character)
            yield path, rest.split()[0]


class _Changes:
    """A tmpfs that holds what the command changes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._count = 0
        with open("/proc/meminfo", encoding="ascii") as file:
            available = next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
        size = int(CHANGES_SHARE * available)
        _mount("tmpfs", path, "tmpfs", _NODEV, f"size={size},mode=0755")

    def cover(self, lower: str, target: str) -> None:
        """Mount at `target` what is in the folder `lower`, with its own changes."""
        try:
            self._overlay(lower, target)
        except IsolationError as error:
            if error.code != errno.EINVAL or not any(path.startswith(lower.rstrip("/") + "/") for path, _ in _mounts()):
                raise
            # in a user namespace no overlay may show a folder without the mounts below it
            self._cover_entries(lower, target)

    def _overlay(self, lower: str, target: str) -> None:
        self._count += 1
        upper, work = f"{self.path}/upper{self._count}", f"{self.path}/work{self._count}"
        self._make_like(lower, upper)
        os.mkdir(work)  # noqa: PTH102 - no pathlib: it costs more than all of this
        for character in "\\:,":
            lower = lower.replace(character, "\\" + character)
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        if _is_user_namespace():
            options += ",userxattr"
        _mount("overlay", target, "overlay", _NODEV, options)

    def _cover_entries(self, lower: str, target: str) -> None:
        """Mount at `target` a new folder with each entry of `lower`: folders covered, large files read-only."""
        self._count += 1
        folder = f"{self.path}/folder{self._count}"
        self._make_like(lower, folder)
        _mount(folder, target, None, _BIND)
        mounted = {path for path, _ in _mounts()}
        with os.scandir(lower) as entries:
            for entry in entries:
                copy = f"{target}/{entry.name}"
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), copy)  # noqa: PTH115, PTH211
                elif entry.is_dir():
                    os.mkdir(copy)  # noqa: PTH102
                    if entry.path not in mounted and os.access(entry.path, os.R_OK | os.X_OK):
                        self.cover(entry.path, copy)
                elif entry.is_file() and os.access(entry.path, os.R_OK):
                    self._copy(entry.path, copy)

    def show(self, target: str) -> None:
        """Mount at `target` an empty folder for everybody."""
        self._count += 1
        folder = f"{self.path}/empty{self._count}"
        os.mkdir(folder)  # noqa: PTH102
        os.chmod(folder, 0o1777)  # noqa: PTH101
        _mount(folder, target, None, _BIND)

    def _copy(self, file: str, copy: str) -> None:
        with open(copy, "xb") as target:
            if os.stat(file).st_size <= _COPIED_BYTES:  # noqa: PTH116
                with open(file, "rb") as source:
                    target.write(source.read())
                os.chmod(copy, os.stat(file).st_mode & 0o7777)  # noqa: PTH101, PTH116
                return
        _bind_read_only(file, copy)

    def _make_like(self, lower: str, folder: str) -> None:
        status = os.stat(lower)  # noqa: PTH116
        os.mkdir(folder)  # noqa: PTH102
        os.chmod(folder, status.st_mode & 0o7777)  # noqa: PTH101
        with contextlib.suppress(OSError):  # a user that is not mapped into this namespace
            os.chown(folder, status.st_uid, status.st_gid)


def _is_user_namespace() -> bool:
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return file.read().split()[2] != str(0xFFFFFFFF)


def _new_namespaces() -> None:
    """Unshare; where we are not root, in a user namespace of our own, in which we are the same user."""
    user, group = os.getuid(), os.getgid()
    flags = _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS
    if _libc.unshare(flags) == 0:
        return
    _call("new namespaces", _libc.unshare(flags | _NEWUSER))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = bytearray(struct.pack("16sH14x", b"lo", 0))
        fcntl.ioctl(control, _SIOCGIFFLAGS, request)
        (flags,) = struct.unpack_from("H", request, 16)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _shared_folders() -> Iterator[str]:
    for name, is_file in SHARED_VARIABLES.items():
        path = os.environ.get(name)
        if path:
            yield os.path.dirname(path) if is_file else path  # noqa: PTH120


def _folders_of_others() -> Iterator[str]:
    """Yield folders that need an overlay of their own, since in a user namespace none can copy what others own."""
    if _is_user_namespace():
        folders = dict.fromkeys([os.environ.get("TMPDIR", "/tmp"), "/tmp", "/var/tmp", os.getcwd()])  # noqa: PTH109
        yield from (folder for folder in folders if os.path.isdir(folder) and folder != "/")  # noqa: PTH112


def _new_root(changes: _Changes) -> str:
    """Mount all file systems again below a new root, so that none of them can be changed; return the root."""
    root = f"{changes.path}/root"
    os.mkdir(root)  # noqa: PTH102
    mounts = [(path, kind) for path, kind in _mounts() if path not in ("/", changes.path)]
    mounts += [(path, "") for path in _folders_of_others() if path not in dict(mounts)]
    changes.cover("/", root)
    whole = ["/proc", "/dev"]
    for path, kind in mounts:
        if any(path == top or path.startswith(top + "/") for top in whole):
            continue
        target = root + path
        if not os.path.exists(path) or not os.path.exists(target):  # noqa: PTH110 - another mount covers it
            continue
        if kind in _SYSTEM or not os.path.isdir(path):  # noqa: PTH112
            # a socket of the outside could be connected to through a read-only mount
            is_plain = os.path.isdir(path) or os.path.isfile(path)  # noqa: PTH112, PTH113
            _bind_read_only(path if is_plain else "/dev/null", target)
            whole.append(path)
            continue
        try:
            changes.cover(path, target)
        except IsolationError:  # a file system on which there can be no overlay
            if any(path == folder or path.startswith(folder + "/") for folder in _SOCKET_FOLDERS):
                changes.show(target)
            else:
                _bind_read_only(path, target)
            whole.append(path)
    _show_devices(root)
    if os.path.isdir(root + _MEMORY_FOLDER):  # noqa: PTH112
        changes.show(root + _MEMORY_FOLDER)
    for folder in _shared_folders():
        os.makedirs(root + folder, exist_ok=True)  # noqa: PTH103
        _mount(folder, root + folder, None, _BIND)
    return root


def _show_devices(root: str) -> None:
    """Show /dev with all its names, of which only a few can be opened: a read-only mount lets devices be written."""
    _mount("/dev", f"{root}/dev", None, _BIND | _REC)
    _read_only(f"{root}/dev", _ATTR_NODEV)
    with os.scandir("/dev") as entries:
        for entry in entries:
            if entry.name in _DEVICES or entry.name.startswith(_ACCELERATORS):
                _mount(entry.path, root + entry.path, None, _BIND | _REC)


def _bind_read_only(path: str, target: str) -> None:
    _mount(path, target, None, _BIND | _REC)
    _read_only(target)


def _enter(root: str, folder: str) -> None:
    """Make `root` the root of all paths, with a /proc of this PID namespace, and go back to `folder`."""
    _mount("proc", f"{root}/proc", "proc", _NODEV | _NOSUID | _NOEXEC)
    for path in _KERNEL_FILES:
        if os.path.exists(root + path):  # noqa: PTH110
            _bind_read_only(root + path, root + path)
    os.chdir(root)
    number = _PIVOT_ROOT if os.uname().machine == "x86_64" else _PIVOT_ROOT_ARM
    _call("pivot_root", _libc.syscall(number, b".", b"."))
    _call("umount /", _libc.umount2(b".", _DETACH))
    os.chdir(folder)


def _replace_files() -> None:
    name = os.environ.pop(FILES_VARIABLE, "")
    if name:
        with open(name, encoding="utf-8") as file:
            texts = json.load(file)
        for path, text in texts.items():
            with open(path, "w", encoding="utf-8") as changed:
                changed.write(text)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)


def _drop_capabilities() -> None:
    for name, number in _CAPABILITIES.items():
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            code = ctypes.get_errno()
            # an older kernel has fewer capabilities; who is not root has none to drop after the start of the command
            if code == errno.EPERM and os.geteuid() == 0:
                raise IsolationError(f"drop {name}", code)


def _exit_with(status: int) -> NoReturn:
    """End as a child with this status of wait ended."""
    code = os.waitstatus_to_exitcode(status)
    os._exit(128 - code if code < 0 else code)


def _first_process(changes_at: str, folder: str, command: list[str]) -> NoReturn:
    """Run the first process of the PID namespace: set everything up, start the command, and wait for it."""
    _die_with_parent()
    try:
        _mount(None, "/", None, _REC | _PRIVATE)
        _enter(_new_root(_Changes(changes_at)), folder)
        _replace_files()
        _loopback()
        _drop_capabilities()
    except (IsolationError, OSError) as error:
        _fail(error)
    child = os.fork()
    if child == 0:
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(126 if error.errno == errno.EACCES else 127)
    # the first process of a PID namespace waits for all others
    pid, status = os.wait()
    while pid != child:
        pid, status = os.wait()
    _exit_with(status)


def _fail(error: Exception) -> NoReturn:
    print(f"isolation: {error}", file=sys.stderr, flush=True)
    os._exit(FAILED)


def main(command: list[str]) -> NoReturn:
    """Run the command in its own namespaces, and end as it ends."""
    folder = os.getcwd()  # noqa: PTH109
    try:
        _new_namespaces()
    except (IsolationError, OSError) as error:
        _fail(error)
    _die_with_parent()  # again: a new user namespace has cleared it
    changes = f"{os.environ['PROFILER_RUN_DIR']}/changes"
    os.makedirs(changes, exist_ok=True)  # noqa: PTH103
    child = os.fork()
    if child == 0:
        _first_process(changes, folder, command)
    _, status = os.waitpid(child, 0)
    _exit_with(status)


if __name__ == "__main__":
    main(sys.argv[1:])
