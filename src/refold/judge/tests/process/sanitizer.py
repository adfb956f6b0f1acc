"""compute-sanitizer around one small call of the candidate, where CUDA and the tool are there."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from refold.judge import draws
from refold.judge.verdict.session import Session
from refold.judge.wire.host import Host, Raised, WorkerDied

_ERROR = re.compile(r"^=+ ((?:Invalid|Misaligned|Illegal|Out-of|Stack overflow).*)", re.MULTILINE)
_PATIENCE = 300.0  # seconds; memcheck slows kernels by tens
# PyTorch's cache hides neighbours: each tensor gets an allocation of its own.
_EXTRA = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def memcheck(session: Session) -> str:
    """The first error of the candidate, or nothing; what could not be done becomes a note."""
    if session.device.type != "cuda":
        return ""
    tool = shutil.which("compute-sanitizer")
    if tool is None or session.quick:
        why = "--quick" if tool else "it is not on PATH"
        session.notes.append(f"memory: compute-sanitizer did not run: {why}")
        return ""
    return inspect(session, tool)


def inspect(session: Session, tool: str) -> str:
    """As `memcheck`, on whatever device the session has."""
    inputs = _small(session)
    error, note = _once(session, tool, str(session.candidate.resolve()), "ModelNew", inputs)
    if error:
        reference = session.reference
        path = str(reference.path.resolve())
        theirs, _ = _once(session, tool, path, reference.class_name, inputs)
        if theirs:
            error, note = "", f"memory: compute-sanitizer objects to the reference too: {theirs}"
    if note:
        session.notes.append(note)
    return error


def _small(session: Session) -> list[Any]:
    """The smallest odd batch that the reference takes, else its own inputs."""
    cases = dict(draws.shapes(session.inputs(), True))
    for name in ("batch 3", "batch 1"):
        if name in cases and session.truth(cases[name]).eager is not None:
            return cases[name]
    return session.inputs()


def _once(
    session: Session, tool: str, path: str, class_name: str, inputs: list[Any]
) -> tuple[str, str]:
    """One call in a worker of its own under memcheck: its first error, and a note."""
    with tempfile.TemporaryDirectory(prefix="refold-") as folder:
        log = Path(folder) / "log"
        under = (tool, "--tool", "memcheck", "--report-api-errors", "no", "--log-file", str(log))
        ended = False
        why = "it did not end"
        with Host(session.limits, session.threads, under, _EXTRA) as host:
            try:
                host.request(
                    "load",
                    session.limits.import_seconds,
                    path=path,
                    class_name=class_name,
                    sets=dict(session.reference.sets),
                    init=session.oracle.init,
                    seed=session.seed,
                    device=str(session.device),
                    threads=session.threads,
                    watch=False,
                )
                state = session.state(session.base_state)
                host.request("load_state", _PATIENCE, state=state, how="strict")
                host.request("put", _PATIENCE, slot="x", inputs=inputs)
                host.request("call", _PATIENCE, slot="x", seed=session.seed + 7)
            except (Raised, WorkerDied) as error:
                why = str(error)[:200]
            if host.alive:
                ended = host.leave(_PATIENCE)
        text = log.read_text(errors="replace") if log.is_file() else ""
    found = _ERROR.search(text)
    if found:
        return found.group(1).strip(), ""
    if not ended or "ERROR SUMMARY: 0 errors" not in text:
        last = text.strip().splitlines()[-1:] or [why]
        return "", f"memory: compute-sanitizer gave no result: {last[0][:200]}"
    return "", ""
