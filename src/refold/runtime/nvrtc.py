"""CUDA where there is no nvcc: NVRTC, which comes with PyTorch, compiles what runs on a GPU, and a
C++ compiler the host's part, from the same source.

In the host's part kernels and what they call are declared alone. Whatever kernel it takes the
address of is undefined in its assembly: these are the kernels that NVRTC is asked for. A row of a
table stands at each address, from which the driver's handle is had (rf_handle, see device.cuh).
"""

import ctypes
import glob
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from typing import Any

import torch

from refold.runtime.nvcc import _refold_other_nvcc

# what CUDA's headers take from those of its compilers, which PyTorch does not bring
_REFOLD_NO_HEADERS = {
    "crt/host_config.h": "",
    "crt/host_defines.h": """#pragma once
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __forceinline__ inline
#define __host__
#define __device__
#define __global__
#define __shared__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __specialization_static
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __location__(a)
#define __annotate__(a)
#define CUDARTAPI
#define CUDARTAPI_CDECL
""",
    "cuda_fp16.h": "struct __half;\nstruct __half2;\n",
}
# what NVRTC has no headers of: names that the host's templates have
_REFOLD_NAMES = {
    "cuda_runtime.h": """#pragma once
typedef struct CUstream_st* cudaStream_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
""",
    "cstdint": """#pragma once
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;
#define INT32_MAX 2147483647
#define INT32_MIN (-INT32_MAX - 1)
#define UINT32_MAX 4294967295u
#define INT64_MAX 9223372036854775807l
#define INT64_MIN (-INT64_MAX - 1)
#define UINT64_MAX 18446744073709551615ul
#define offsetof(type, member) ((unsigned long)&((type*)0)->member)
""",
    "type_traits": """#pragma once
namespace std {
template <bool, class T, class> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class T, class U> struct is_same { static constexpr bool value = false; };
template <class T> struct is_same<T, T> { static constexpr bool value = true; };
template <class T> struct is_void : is_same<const volatile T, const volatile void> {};
}
""",
    "atomic": "#pragma once\nnamespace std { template <class T> struct atomic { atomic(T); }; }\n",
    **dict.fromkeys(("cstdarg", "cstdio", "mutex", "stdint.h", "stdlib.h"), ""),
}
# after the rows: their handles. Calls hold a lock (launch_on).
_REFOLD_HANDLES = r"""
typedef int Load(void**, const void*, void*, void*, unsigned, void*, void*, unsigned);
typedef int Find(void**, void*, const char*);
static void* libraries[2];
extern "C" const char* rf_handle(void* given, int code, void** handle) {
  static thread_local char text[128];
  Row& row = *static_cast<Row*>(given);
  int status = 0;
  if (row.handles[code] == nullptr) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) return "there is no driver";
    auto* load = reinterpret_cast<Load*>(dlsym(driver, "cuLibraryLoadData"));
    auto* find = reinterpret_cast<Find*>(dlsym(driver, "cuLibraryGetKernel"));
    if (load == nullptr || find == nullptr) return "the driver must be for CUDA 12.0 or later";
    const char* image = code ? rf_code1 : rf_code0;
    if (*image == 0) return "the kernels were compiled for another device";
    void*& library = libraries[code];
    if (library == nullptr)
      status = load(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (status == 0) status = find(&row.handles[code], library, row.name);
  }
  *handle = row.handles[code];
  if (status == 0) return nullptr;
  std::snprintf(text, sizeof text, "loading the kernels of NVRTC: CUresult %d", status);
  return text;
}
"""
# comments, strings, and what the end of a function's head and body is told by
_REFOLD_TOKENS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+'|::|[(){};:]|[\w>]\s*\{""", re.S
)


def _refold_nvrtc() -> tuple[str, str, str] | None:
    """NVRTC's library, the folder of CUDA's headers and CUDA's runtime to link with, of PyTorch's
    release where that is known. None where there are none, or nvcc is at hand."""
    spec = importlib.util.find_spec("nvidia")
    if spec is None or _refold_other_nvcc() is not None:
        return None
    release = (torch.version.cuda or "[0-9]*").partition(".")[0]
    names = f"lib/libnvrtc.so.{release}", "include/cuda_runtime.h", "lib/libcudart_static.a"
    for root in spec.submodule_search_locations or ():
        found = [sorted(glob.glob(f"{root}/*/{name}")) for name in names]
        found[2] = found[2] or sorted(glob.glob(f"{root}/*/lib/libcudart.so.{release}"))
        if all(found):
            library, header, runtime = (paths[-1] for paths in found)
            return library, os.path.dirname(header), runtime
    return None


def _refold_declared(source: str) -> str:
    """The source with what runs on a GPU declared alone, but for constants."""
    parts, at = [], 0
    for found in re.finditer(r"\b(?:RF_FN|__global__)\b", source):
        line = source[source.rfind("\n", 0, found.start()) + 1 : found.start()]
        if found.start() < at or re.search(r"//|\bconstexpr\b|^#define $", line):
            continue
        begin, end = _refold_body(source, found.end())
        parts += [source[at:begin], ";" if end > begin else ""]
        at = end
    return "".join(parts) + source[at:]


def _refold_body(source: str, start: int) -> tuple[int, int]:
    """Where a function's body, or a constructor's list before it, begins and ends; the same twice
    where there is none. start: in its head."""
    parentheses = braces = 0
    begin, in_list = None, False
    for token in _REFOLD_TOKENS.finditer(source, start):
        text = token[0]
        if text in "()":
            parentheses += 1 if text == "(" else -1
        elif text == "}":
            braces -= 1
            if not braces and not in_list:
                return begin or 0, token.end()
        elif text[-1] == "{" and text[0] not in "/\"'":
            begin = token.end() - 1 if begin is None else begin
            # in the list a name's braces hold what a member is made from
            in_list = in_list and (braces > 0 or len(text) > 1)
            braces += 1
        elif not parentheses and not braces and begin is None and text in ";:":
            if text == ";":
                return token.start(), token.start()
            begin, in_list = token.start(), True
    raise RuntimeError("error: a function of the kernels' source has no end")


def _refold_compiled_apart(
    found: tuple[str, str, str], name: str, source: str, flags: Sequence[str], folder: str
) -> str:
    """Compile CUDA for this Python into a folder; the path of the library. found: see
    `_refold_nvrtc`. flags: nvcc's, of which the machine code's are heeded. Raises RuntimeError with
    what was said."""
    library, include, runtime = found
    code = re.findall(r",code=(\w+)", " ".join(flags))
    own = next(c for c in code if c.startswith("sm_"))
    number = re.sub(r"\D", "", own) + "0"
    defined = [f"-D__CUDA_ARCH_LIST__={number}", f"-DTORCH_EXTENSION_NAME={name}"]
    headers = [f"-isystem{h}" for h in (include, sysconfig.get_path("include"))]
    files = {**_REFOLD_NO_HEADERS, "host.cpp": _refold_declared(source)}
    os.makedirs(os.path.join(folder, "crt"), exist_ok=True)
    for file, text in files.items():
        with open(os.path.join(folder, file), "w") as opened:
            opened.write(text)
    shared = ["-std=c++17", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-w"]
    told = [*shared, "-DRF_APART", *defined, "-I.", *headers]
    _refold_by_compiler([*told, "-S", "host.cpp", "-o", "host.s"], folder)
    with open(os.path.join(folder, "host.s")) as opened:
        kernels = _refold_undefined(opened.read())
    options = [f"--gpu-architecture={own}", "-std=c++17", "-default-device", f"-I{include}"]
    options += [*defined, "--disable-warnings"]
    images = _refold_by_nvrtc(library, source, options, kernels)
    rows = ['#include <dlfcn.h>\n#include <cstdio>\nextern "C" {']
    rows.append("struct Row { const char* name; void* handles[2]; };")
    for i, image in enumerate(images if any("compute_" in c for c in code) else (images[0], b"")):
        with open(os.path.join(folder, f"code{i}"), "wb") as binary:
            binary.write(image + b"\0")
        lines = [".pushsection .rodata", ".balign 64", f".hidden rf_code{i}", f".globl rf_code{i}"]
        lines += [f"rf_code{i}:", f'.incbin \\"code{i}\\"', ".popsection"]
        rows.append('asm("' + "\\n".join(lines) + '");')
        rows.append(f"extern const char rf_code{i}[];")
    rows += [f'Row {kernel} = {{"{kernel}", {{}}}};' for kernel in kernels]
    with open(os.path.join(folder, "rows.cpp"), "w") as opened:
        opened.write("\n".join([*rows, "}", _REFOLD_HANDLES]))
    linked = ["host.s", "rows.cpp", runtime, "-ldl", "-lpthread", "-lrt"]
    if not runtime.endswith(".a"):  # of CUDA 12
        linked += ["-Xlinker", "-rpath", "-Xlinker", os.path.dirname(runtime)]
    _refold_by_compiler([*shared, "-shared", *linked, "-o", f"{name}.so"], folder)
    shutil.rmtree(os.path.join(folder, "crt"))
    return os.path.join(folder, f"{name}.so")


def _refold_by_compiler(arguments: Sequence[str], folder: str) -> None:
    """Run the C++ compiler in a folder. Raises RuntimeError."""
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    if not compiler or shutil.which(compiler[0]) is None:
        raise RuntimeError(f"error: there is no {' '.join(compiler) or 'C++ compiler'}")
    done = subprocess.run(
        [*compiler, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)


def _refold_undefined(assembly: str) -> list[str]:
    """Our functions that assembly refers to and lacks: the kernels, by their mangled names."""
    used = set(re.findall(r"(?<![\w.$])_ZN2rf\w+(?![\w.$])", assembly))
    held = re.findall(r"(?m)^(_ZN2rf\w+):|\.(?:local|l?comm)\s+(_ZN2rf\w+)", assembly)
    return sorted(used.difference(*held))


def _refold_by_nvrtc(
    library: str, source: str, options: Sequence[str], kernels: Sequence[str]
) -> tuple[bytes, bytes]:
    """The machine code and the PTX of kernels. Raises RuntimeError with what NVRTC said."""
    for part in glob.glob(os.path.join(os.path.dirname(library), "libnvrtc-builtins.so.*")):
        ctypes.CDLL(part, ctypes.RTLD_GLOBAL)  # NVRTC looks for it by its name alone
    nvrtc = ctypes.CDLL(library)
    program = ctypes.c_void_p()

    def strings(given: Sequence[str]) -> Any:
        return (ctypes.c_char_p * len(given))(*(text.encode() for text in given))

    def had(what: str) -> bytes:
        size = ctypes.c_size_t()
        asked(f"Get{what}Size", ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        asked(f"Get{what}", text)
        return text.raw

    def asked(what: str, *arguments: object) -> None:
        status = getattr(nvrtc, f"nvrtc{what}")(program, *arguments)
        if status:
            log = had("ProgramLog").rstrip(b"\0") if what == "CompileProgram" else b""
            raise RuntimeError(log.decode(errors="replace") or f"error: nvrtc{what}: {status}")

    names, texts = strings(list(_REFOLD_NAMES)), strings(list(_REFOLD_NAMES.values()))
    given = source.encode(), b"kernels.cu", len(names), texts, names
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), *given):
        raise RuntimeError("error: NVRTC takes no source")
    try:
        spelt = {kernel: _refold_spelt(kernel).encode() for kernel in kernels}
        for expression in spelt.values():
            asked("AddNameExpression", expression)
        asked("CompileProgram", len(options), strings(options))
        for kernel, expression in spelt.items():
            lowered = ctypes.c_char_p()
            asked("GetLoweredName", expression, ctypes.byref(lowered))
            if lowered.value != kernel.encode():
                raise RuntimeError(f"error: NVRTC names {kernel} {lowered.value!r}")
        return had("CUBIN"), had("PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _refold_spelt(mangled: str) -> str:
    """A kernel's mangled name as C++ has it, without what it returns and takes."""
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_char_p
    whole: str = library.__cxa_demangle(mangled.encode(), None, None, None).decode()
    depth, end = 0, len(whole)
    while end and (depth or end == len(whole)):
        end -= 1
        depth += {")": 1, "(": -1}.get(whole[end], 0)
    return whole[:end].removeprefix("void ")
