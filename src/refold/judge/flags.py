"""Global switches of PyTorch that a forward must leave as it found them."""

from __future__ import annotations

from typing import Any

import torch


def snapshot() -> dict[str, Any]:
    """Every switch by name."""
    backends = torch.backends
    return {
        "threads": torch.get_num_threads(),
        "interop threads": torch.get_num_interop_threads(),
        "grad enabled": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "cuda.matmul.allow_tf32": backends.cuda.matmul.allow_tf32,
        "cudnn.allow_tf32": backends.cudnn.allow_tf32,
        "cudnn.benchmark": backends.cudnn.benchmark,
        "cudnn.deterministic": backends.cudnn.deterministic,
        "cudnn.enabled": backends.cudnn.enabled,
        "mkldnn.enabled": backends.mkldnn.enabled if hasattr(backends.mkldnn, "enabled") else None,
        "fp16 reduced reduction": str(backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        "bf16 reduced reduction": str(backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast cpu": torch.is_autocast_enabled("cpu"),
        "autocast cuda": torch.is_autocast_enabled("cuda"),
        "anomaly": torch.is_anomaly_enabled(),
        "flush denormal": float(torch.tensor([1e-40]) * 1.0) == 0.0,
    }


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """``name: before -> after`` for each switch that moved."""
    return [f"{k}: {v} -> {after[k]}" for k, v in before.items() if after[k] != v]
