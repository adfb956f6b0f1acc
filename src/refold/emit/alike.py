"""Groups that compute alike share one kernel, which is written and compiled once.

A deep model repeats its blocks, and its modes share what does not depend on the mode. What a kernel
reads and writes is given at each call, so equal text is the same kernel.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from refold.codegen.kernel import GroupKernel
from refold.ir import Node
from refold.plan import Group

Named = tuple[str, Group]


@dataclass(frozen=True)
class Member:
    """A group, the name of its kernel, and what forward calls the values it reads and writes."""

    kernel: str
    group: Group
    names: Mapping[Node, str]


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


def kernels_of(groups: Sequence[Member], make: Callable[[Group, str], K]) -> list[K]:
    """One kernel for each name, of its first group, whose values name what it reads and writes."""
    unique: dict[str, Member] = {}
    for member in groups:
        unique.setdefault(member.kernel, member)
    times = Counter(member.kernel for member in groups)
    kernels = []
    for name, member in unique.items():
        kernel = make(member.group, name)
        kernel.rename(member.names)
        kernel.times = times[name]
        kernels.append(kernel)
    return kernels
