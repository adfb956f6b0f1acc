"""The C++ functions by which emitted Python packs the sides of products on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from refold.families.family import Entries
from refold.families.matmul.cuda_kernel import mode_of
from refold.plan import Group
from refold.plan.product import PACKED, TRANSPOSED


def entries(groups: Iterable[Group], float32: str) -> Iterator[Entries]:
    """Those that some products need, of an accuracy."""
    forms = {form for g in groups if g.kernel is not None for _, form in g.kernel.packs}
    if PACKED in forms:
        yield ("packed_bytes", "pack"), _PACK.replace("@MODE@", mode_of(float32))
    if TRANSPOSED in forms:
        yield (
            ("transposed_bytes", "pack_transposed"),
            _PACK_TRANSPOSED.replace("@MODE@", mode_of(float32)),
        )


_PACK = """\
static PyObject* packed_bytes(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, 2)) return nullptr;
  const long rows = rf_size(args[0]), depth = rf_size(args[1]);
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromSize_t(rf::packed_bytes<rf::@MODE@>(rows, depth));
}

static PyObject* pack(PyObject*, PyObject* const* args, Py_ssize_t n) {
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


_PACK_TRANSPOSED = """\
static PyObject* transposed_bytes(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, 3)) return nullptr;
  const long batches = rf_size(args[0]), depth = rf_size(args[1]), cols = rf_size(args[2]);
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromSize_t(rf::transposed_bytes<rf::@MODE@>(batches, depth, cols));
}

static PyObject* pack_transposed(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, 7)) return nullptr;
  float *x = rf_pointer<float>(args[0]), *packed = rf_pointer<float>(args[1]);
  const long batches = rf_size(args[2]), depth = rf_size(args[3]), cols = rf_size(args[4]);
  const long stream = rf_size(args[5]), device = rf_size(args[6]);
  if (PyErr_Occurred()) return nullptr;
  const rf::OnDevice here(static_cast<int>(device));
  const auto on = reinterpret_cast<cudaStream_t>(stream);
  return rf_result(rf::pack_transposed<rf::@MODE@>(x, packed, batches, depth, cols, on));
}
"""
