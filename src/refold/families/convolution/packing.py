"""The C++ functions by which emitted Python packs the kernels of convolutions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from refold.families.convolution.cuda_kernel import MODES
from refold.families.family import Entries
from refold.plan import Group
from refold.plan.convolution import CONVOLUTION


def entries(groups: Iterable[Group], float32: str) -> Iterator[Entries]:
    """Those that some convolutions need. float32: of products."""
    for kind in sorted({g.kernel.kind for g in groups if g.kernel is not None and g.kernel.packs}):
        form = CONVOLUTION + kind
        text = _PACK.replace("@FORM@", form).replace("@MODE@", MODES[kind])
        yield (f"{form}_bytes", form), text


_PACK = """\
static PyObject* @FORM@_bytes(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, 2)) return nullptr;
  const long rows = rf_size(args[0]), depth = rf_size(args[1]);
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromSize_t(rf::packed_bytes<rf::@MODE@>(rows, depth));
}

static PyObject* @FORM@(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, 6)) return nullptr;
  float *x = rf_pointer<float>(args[0]), *packed = rf_pointer<float>(args[1]);
  const long rows = rf_size(args[2]), depth = rf_size(args[3]), stream = rf_size(args[4]);
  const long device = rf_size(args[5]);
  if (PyErr_Occurred()) return nullptr;
  const rf::OnDevice here(static_cast<int>(device));
  const auto on = reinterpret_cast<cudaStream_t>(stream);
  return rf_result(rf::pack<rf::@MODE@>(x, packed, rows, depth, on));
}
"""
