"""Groups that compute alike share one kernel, which is written and compiled once.

A deep model repeats its blocks, and its modes share what does not depend on the mode. What a kernel
reads and writes is given at each call, so equal text is the same kernel.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from refold.codegen.kernel import GroupKernel
from refold.plan import Group

Named = tuple[str, Group]
K = TypeVar("K", bound=GroupKernel)


def shared_names(groups: Sequence[Named], text: Callable[[Group, str], str]) -> dict[str, str]:
    """For each group's name that of the first whose kernel is the same.

    text: the C++ of a group's kernel under a given name; comments name the group's operands.
    """
    first: dict[str, str] = {}
    same = {}
    for name, group in groups:
        code = re.sub(r"(?m) *//.*$", "", text(group, "kernel"))
        same[name] = first.setdefault(code, name)
    return same


def kernels_of(groups: Sequence[Named], make: Callable[[Group, str], K]) -> list[K]:
    """One kernel for each name, of its first group."""
    unique: dict[str, Group] = {}
    for name, group in groups:
        unique.setdefault(name, group)
    times = Counter(name for name, _ in groups)
    kernels = [make(group, name) for name, group in unique.items()]
    for kernel in kernels:
        kernel.times = times[kernel.name]
    return kernels
