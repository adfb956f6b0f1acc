"""What the GPU ran at, read by ``nvidia-smi``; nothing is ever set."""

from __future__ import annotations

import subprocess

import torch

_FIELDS = "clocks.sm,power.draw,clocks_throttle_reasons.active,temperature.gpu"
_NAMES = ("SM clock MHz", "power W", "throttle reasons", "temperature C")


def read(device: torch.device) -> tuple[str, ...]:
    """SM clock, power, throttle reasons and temperature; one word of why not; () on the CPU."""
    if device.type != "cuda":
        return ()
    return query(_uuid())


def query(uuid: str = "") -> tuple[str, ...]:
    """The four values of one device (by default the first listed), or why there are none."""
    command = ["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
    if uuid:
        command.append(f"--id={uuid}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return (type(error).__name__,)
    lines = done.stdout.strip().splitlines() or [""]
    values = tuple(v.strip() for v in lines[0].split(","))
    if done.returncode or len(values) != len(_NAMES):
        return (f"exit code {done.returncode}, {lines[0][:80]!r}",)
    return values


def note(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    """One line for `Timing.note`."""
    if len(before) != len(_NAMES) or len(after) != len(_NAMES):
        short = min(before, after, key=len)
        return f"no clocks of the device: nvidia-smi: {', '.join(short)}"
    pairs = zip(_NAMES, before, after, strict=True)
    return "device, before and after: " + ", ".join(f"{n} {a} -> {b}" for n, a, b in pairs)


def _uuid() -> str:
    """Of the current device, where PyTorch tells it."""
    try:
        uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    except (AttributeError, RuntimeError):
        return ""
    return f"GPU-{uuid}"
