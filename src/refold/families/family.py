"""What a family of kernels is: one record, whose functions stand in the family's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from refold.codegen.cpp import Cpp
from refold.codegen.cuda import CudaKernel
from refold.codegen.kernel import Form
from refold.devices import DeviceModel
from refold.families.samples import Sample
from refold.families.view import View
from refold.ir import Node
from refold.plan import Group
from refold.plan.draft import Draft
from refold.price import Charge, Parametric, Price
from refold.schedule import Schedule, ScheduleChooser

Sizes = tuple[int, int, int]  # rows, columns, depth of a product


@dataclass(frozen=True)
class Claim:
    """The draft in which a family computes a node: a new one, or one that shares its passes.

    nodes: what joins it, the node and perhaps what follows it, inputs first. family: whose kernel
    the draft is with them.
    """

    draft: Draft
    nodes: tuple[Node, ...]
    family: str


def _nothing(draft: Draft, view: View) -> Sequence[Node]:
    return ()


def _none(group: Group) -> Sequence[Node]:
    return ()


def _has_one(group: Group, device: DeviceModel, choose: ScheduleChooser | None) -> Group:
    return group


@dataclass(frozen=True)
class Family:
    """A kind of kernels. The planner asks families in the order of `FAMILIES`.

    name: of its folder; its kernels are called so in emitted files.
    claim: may a node that no open draft can take begin a kernel of this family, or share one?
    grow: may a draft of this family that makes an input of a node compute the node, too? It gives
    the name of the family whose kernel the draft is then.
    form: the text of its kernels, for every target. cpp: its template for the CPU. cuda: what makes
    its kernels for CUDA, from a group and a name. Where one is None, it claims nothing for such
    devices.
    charges: what a node adds to a call if a kernel of this family computes it, its inputs being
    there and all fused that may be: a guide for the search, which has no plan. None for nodes of
    other families.
    price: what a planned kernel takes on a device. Both follow from the same facts.
    samples: what it computes and refuses; its tests are made of them.
    fusible_inputs: the values that a draft reads and whose elements its kernel could compute
    itself.
    whole: compositions (`planner/lower.py`) that its kernels take whole.
    takes_statistics: does a kernel of the family that computes a convolution on a device take the
    mean and the variance of each channel of an image, too (`planner/statistics.py`)?
    overwrites: the operands of a group whose memory its one full-size result may take, because the
    kernel reads each element before it writes that of the same place: it spares memory that is
    touched anew.
    lays_out: may a kernel on a GPU read and store images as a group with `images` says?
    schedules: those that its kernels have on a device; none where the sizes of a call decide.
    schedule: a group with its schedules on a device, the likely best ones, or what is given for the
    sizes of products.
    to_tune: kind and sizes of a group that timing may schedule better than the rule does.
    entries: functions for CUDA that Python calls and kernels of the family share, of some groups
    and the accuracy of their products of float32.
    """

    name: str
    claim: Callable[[Node, View], Claim | None]
    grow: Callable[[Draft, Node, View], str | None]
    form: Form
    charges: Callable[[Node, DeviceModel, Parametric], Charge | None]
    price: Callable[[Group, DeviceModel], Price]
    samples: tuple[Sample, ...]
    cpp: Cpp | None = None
    cuda: Callable[[Group, str], CudaKernel] | None = None
    fusible_inputs: Callable[[Draft, View], Sequence[Node]] = _nothing
    whole: frozenset[str] = frozenset()
    takes_statistics: Callable[[Node, DeviceModel], bool] = lambda conv, device: False
    overwrites: Callable[[Group], Sequence[Node]] = _none
    lays_out: Callable[[Group], bool] = lambda group: False
    schedules: Callable[[DeviceModel], Sequence[Schedule]] = lambda device: ()
    schedule: Callable[[Group, DeviceModel, ScheduleChooser | None], Group] = _has_one
    to_tune: Callable[[Group], tuple[str, Sizes] | None] = lambda group: None
    entries: Callable[[Iterable[Group], str], Iterable[str]] = lambda groups, float32: ()
