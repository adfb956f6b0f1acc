"""CUDA's kernels on the host, thread by thread, for machines without a GPU."""

from tests.emulator.translate import SOURCES, Unknown, compile_source, link

__all__ = ["SOURCES", "Unknown", "compile_source", "link"]
