"""In the worker: the kernel keeps a candidate to its own folder, before its first line runs.

Landlock forbids writes elsewhere, TCP, signals to others and looking into them; a seccomp filter
forbids sockets, tracing and what else reaches out of the process. Both hold for whatever the worker
starts, compilers among them: they run, and write below the folder. Everything may be read.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import platform
import struct
import sys
import tempfile

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # system calls, alike on all machines
_VERSION = 1  # a flag: asks for the version
_PATH_BENEATH = 1
_SCOPES = (1 << 0) | (1 << 1)  # abstract sockets, signals
_TCP = (1 << 0) | (1 << 1)  # bind, connect
_WRITE_FILE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
# write, remove and make whatever there is; renames between folders and truncation came later
_WRITES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_GPUS = ("/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dri/*")

_NO_NEW_PRIVILEGES = 38
_SET_FILTER, _ALL_THREADS = 1, 1
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # the second with EPERM
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_X32 = 0x40000000
_MACHINES = ("x86_64", "aarch64")
_ARCHITECTURES = (0xC000003E, 0xC00000B7)
_SECCOMP_CALLS = (317, 277)
# what is refused, and its number on each of the machines
_REFUSED = """
socket 41 198
ptrace 101 117
setpriority 141 140
pivot_root 155 41
chroot 161 51
mount 165 40
umount2 166 39
swapon 167 224
swapoff 168 225
reboot 169 142
init_module 175 105
delete_module 176 106
kexec_load 246 104
add_key 248 217
request_key 249 218
keyctl 250 219
unshare 272 97
perf_event_open 298 241
open_by_handle_at 304 265
setns 308 268
process_vm_readv 310 270
process_vm_writev 311 271
kcmp 312 272
finit_module 313 273
bpf 321 280
userfaultfd 323 282
pidfd_send_signal 424 424
io_uring_setup 425 425
open_tree 428 428
move_mount 429 429
fsopen 430 430
pidfd_getfd 438 438
process_madvise 440 440
mount_setattr 442 442
"""
_FOLDERS = {
    "TMPDIR": "tmp",
    "HOME": "home",
    "XDG_CACHE_HOME": "cache",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
}


def enter(folder: str) -> list[str]:
    """Keep this process, and what it starts, to a folder of its own; what could not be done."""
    for name, below in _FOLDERS.items():
        os.environ[name] = path = os.path.join(folder, below)
        os.makedirs(path, exist_ok=True)
    tempfile.tempdir = None  # read anew
    sys.dont_write_bytecode = True
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, *(ctypes.c_ulong(n) for n in (1, 0, 0, 0))):
        return ["no sandbox: the kernel does not let a process give up new privileges"]
    return [*_landlock(libc, folder), *_seccomp(libc)]


def _call(libc: ctypes.CDLL, *given: object) -> int:
    """A system call; numbers are passed as the kernel reads them."""
    return int(libc.syscall(*(ctypes.c_long(v) if isinstance(v, int) else v for v in given)))


def _landlock(libc: ctypes.CDLL, folder: str) -> list[str]:
    version = _call(libc, _CREATE, None, 0, _VERSION)
    if version < 1:
        return ["Landlock is not at hand: files, signals and other processes are not kept safe"]
    rights = _WRITES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    handled = struct.pack("<QQQ", rights, _TCP, _SCOPES)[:size]
    ruleset = _call(libc, _CREATE, handled, size, 0)
    if ruleset < 0:
        return ["Landlock is not at hand: the kernel refused the rules"]
    try:
        _allow(libc, ruleset, folder, rights)
        files = rights & (_WRITE_FILE | _TRUNCATE)
        for path in (*_DEVICES, *(found for g in _GPUS for found in glob.glob(g))):
            with contextlib.suppress(OSError):
                _allow(libc, ruleset, path, files)
        if _call(libc, _RESTRICT, ruleset, 0):
            return ["Landlock is not at hand: the kernel refused to restrict the process"]
    finally:
        os.close(ruleset)
    missing = []
    if version < 3:
        missing.append("Landlock is older than truncation: files elsewhere can be emptied")
    if version < 6:
        missing.append("Landlock is older than its scopes: signals to others are not refused")
    return missing


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("<Qi", rights, handle)
        if _call(libc, _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), f"no rule for {path}")
    finally:
        os.close(handle)


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _seccomp(libc: ctypes.CDLL) -> list[str]:
    if platform.machine() not in _MACHINES or sys.byteorder != "little":
        return [f"no seccomp filter for {platform.machine()}: sockets and tracing are not refused"]
    at = _MACHINES.index(platform.machine())
    refused = [int(line.split()[1 + at]) for line in _REFUSED.strip().splitlines()]
    text, number = program(_ARCHITECTURES[at], refused), _SECCOMP_CALLS[at]
    held = _Program(len(text) // 8, text)
    if _call(libc, number, _SET_FILTER, _ALL_THREADS, ctypes.byref(held)):
        return ["seccomp is not at hand: sockets and tracing are not refused"]
    return []


def program(machine: int, refused: list[int]) -> bytes:
    """A filter that refuses these system calls, and all of another machine's."""
    tests = [_step(_EQUAL, n, yes=len(refused) - i) for i, n in enumerate(refused)]
    steps = [
        _step(_LOAD, 4),
        _step(_EQUAL, machine, yes=0, no=len(refused) + 3),
        _step(_LOAD, 0),
        _step(_AT_LEAST, _X32, yes=len(refused) + 1),
        *tests,
        _step(_RETURN, _ALLOW),
        _step(_RETURN, _REFUSE),
    ]
    return b"".join(steps)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)
