"""Every candidate file against its reference: rejected by the intended test, or accepted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from judge_paths import CANDIDATES, REFERENCES

from refold.judge import Limits, Status, judge
from refold.judge.tests.registry import CLOCK_TESTS


@dataclass(frozen=True)
class Case:
    file: str
    reference: str
    test: str = ""  # the test that must reject it; empty: must be accepted
    status: Status = Status.ACCEPTED
    gpu: bool = False
    timed: bool = False
    short: bool = False  # little time, for candidates that use it up
    small: bool = False  # little memory
    sanitized: bool = False  # the one test that --quick leaves out
    both: bool = False  # on the CPU, and again where there is a GPU


S = Status
TABLE = (
    Case("reject_01_zeros", "softmax", "numerics", S.WRONG_NUMERICS, both=True),
    Case("reject_02_mean", "softmax", "numerics", S.WRONG_NUMERICS),
    Case("reject_03_previous", "linear", "cache", S.CHEATS),
    Case("reject_04_stale_empty", "linear", "poison", S.WRONG_NUMERICS),
    Case("reject_05_frame_walk", "linear", "isolation", S.CHEATS, both=True),
    Case("reject_06_answering_subclass", "linear", "plain output", S.CHEATS),
    Case("reject_07_patched_tools", "linear", "isolation", S.CHEATS),
    Case("reject_08_rebound_globals", "linear", "isolation", S.CHEATS),
    Case("reject_09_slowed_reference", "linear", "isolation", S.CHEATS),
    Case("reject_10_side_stream", "linear", "stream", S.CHEATS, gpu=True),
    Case("reject_11_thread", "linear", "stream", S.CHEATS),
    Case("reject_12_lazy_subclass", "linear", "plain output", S.CHEATS),
    Case("reject_13_pointer_cache", "linear", "cache", S.CHEATS, both=True),
    Case("reject_14_fingerprint_cache", "linear", "cache", S.CHEATS),
    Case("reject_15_replay_after_calls", "linear", "cache", S.CHEATS),
    Case("reject_16_stale_graph", "linear", "cache", S.CHEATS, gpu=True),
    Case("reject_17_baked", "linear", "contract", S.STALE_WEIGHTS),
    Case("reject_18_stale_fold", "rowsum", "reload", S.STALE_WEIGHTS, both=True),
    Case("reject_19_tf32", "linear", "numerics", S.WRONG_NUMERICS),
    Case("reject_19_tf32", "affine", "lattice", S.WRONG_NUMERICS),
    Case("reject_19_fp16", "linear", "numerics", S.WRONG_NUMERICS, both=True),
    Case("reject_20_bf16_accumulator", "linear", "numerics", S.WRONG_NUMERICS),
    Case("reject_21_tail", "linear", "shapes", S.WRONG_NUMERICS, both=True),
    Case("reject_22_one_shape", "linear", "shapes", S.CRASHED),
    Case("reject_23_input_mutated", "linear", "mutation", S.MUTATES, both=True),
    Case("reject_23_weight_mutated", "linear", "mutation", S.MUTATES, both=True),
    Case("reject_23_shared_buffer", "linear", "aliasing", S.MUTATES, both=True),
    Case("reject_24_no_statistics", "norm", "modes", S.WRONG_MODE),
    Case("reject_24_eval_ignored", "norm", "modes", S.WRONG_MODE, both=True),
    Case("reject_25_race", "linear", "repeat", S.NONDETERMINISTIC),
    Case("reject_25_failed_launch", "linear", "poison", S.WRONG_NUMERICS, gpu=True),
    Case("attack_hang", "linear", "contract", S.TIMED_OUT, short=True),
    Case("attack_import_hang", "linear", "contract", S.TIMED_OUT, short=True),
    Case("attack_exit", "linear", "contract", S.CRASHED),
    Case("attack_segfault", "linear", "contract", S.CRASHED),
    Case("attack_fork_bomb", "linear", "contract", S.CRASHED),
    Case("attack_memory", "linear", "contract", S.CRASHED, small=True),
    Case("attack_flood", "linear", "contract", S.CRASHED),
    Case("attack_forged_frame", "linear", "contract", S.CRASHED),
    Case("attack_late_replay", "linear", "timed outputs", S.CHEATS, timed=True, both=True),
    Case("attack_clock_only", "linear", "timed outputs", S.CHEATS, timed=True),
    Case("attack_patched_lap", "linear", "isolation", S.CHEATS, timed=True),
    Case("attack_tf32_when_large", "linear", "numerics", S.WRONG_NUMERICS, both=True),
    Case("attack_scaled_cheat", "linear", "numerics", S.WRONG_NUMERICS),
    Case("attack_dead_bias", "linear", "contract", S.WRONG_NUMERICS, both=True),
    Case("attack_wrong_gradient", "linear", "modes", S.WRONG_MODE, both=True),
    Case("attack_seed_thief", "linear", "mutation", S.MUTATES),
    Case("attack_flag", "linear", "flags", S.MUTATES, both=True),
    Case("attack_renamed", "linear", "contract", S.WRONG_CONTRACT),
    Case("attack_softmax_no_max", "softmax", "hostile values", S.WRONG_NUMERICS),
    Case("attack_transposed", "linear", "layout", S.WRONG_NUMERICS, both=True),
    Case("attack_native_overrun", "linear", "memory", S.MUTATES),
    Case("attack_native_overread", "linear", "memory", S.WRONG_NUMERICS),
    Case("attack_native_static", "linear", "numerics", S.WRONG_NUMERICS),
    Case("attack_native_pointer_cache", "linear", "cache", S.CHEATS),
    Case("attack_native_deferred", "linear", "stream", S.CHEATS),
    Case("attack_memo_version", "linear", "cache", S.CHEATS, both=True),
    Case("attack_seed_table", "linear", "numerics", S.WRONG_NUMERICS, both=True),
    Case("attack_buffer_ring", "linear", "aliasing", S.MUTATES, both=True),
    Case("attack_spoofed_class", "linear", "plain output", S.CHEATS),
    Case("attack_shadowed_method", "linear", "isolation", S.CHEATS),
    Case("attack_fake_clock_module", "linear", "isolation", S.CHEATS),
    Case("attack_traceback_hijack", "linear", "timed outputs", S.CHEATS, timed=True),
    Case("attack_tight_loop", "linear", "timed outputs", S.CHEATS, timed=True, both=True),
    Case("attack_reads_parent", "linear", "isolation", S.CHEATS),
    Case("attack_flush_denormal", "linear", "flags", S.MUTATES),
    Case("attack_spinner", "linear", "timed outputs", S.CHEATS, timed=True),
    Case("attack_cuda_overrun", "linear", "memory", S.CRASHED, gpu=True, sanitized=True),
    Case("attack_graph_output", "linear", "aliasing", S.MUTATES, gpu=True),
    Case("reject_26_tf32_argmax", "argmax", "numerics", S.WRONG_NUMERICS),
    Case("reject_26_tf32_round", "quantize", "numerics", S.WRONG_NUMERICS),
    Case("reject_27_average_a_call_late", "average", "numerics", S.WRONG_NUMERICS),
    Case("reject_28_stale_beside_state", "average", "reload", S.STALE_WEIGHTS),
    Case("reject_29_half_loss", "loss", "numerics", S.WRONG_NUMERICS),
    Case("reject_30_half_sums", "linear_float16", "numerics", S.WRONG_NUMERICS, both=True),
    Case("reject_31_float32_inside", "linear_float64", "numerics", S.WRONG_NUMERICS, both=True),
    Case("reject_32_no_noise", "noise", "numerics", S.WRONG_NUMERICS, both=True),
    Case("reject_32_half_below_noise", "noise", "numerics", S.WRONG_NUMERICS),
    Case("reject_33_second_output_late", "several", "timed outputs", S.CHEATS, timed=True),
    Case("reject_34_other_write", "in_place", "mutation", S.MUTATES),
    Case("reject_35_half_beside_fill", "least", "numerics", S.WRONG_NUMERICS),
    Case("reject_36_dropout_late", "dropout", "timed outputs", S.CHEATS, timed=True),
    Case("reject_37_integer_pointer_cache", "embedding", "cache", S.CHEATS),
    Case("reject_38_keyed_by_one_input", "gated", "cache", S.CHEATS),
    Case("reject_39_strides_of_the_other", "gated", "layout", S.WRONG_NUMERICS),
    Case("reject_40_gradient_of_weights_lost", "linear", "modes", S.WRONG_MODE, both=True),
    Case("reject_40_gradient_of_input_lost", "linear", "modes", S.WRONG_MODE),
    Case("reject_41_gradient_in_eval", "norm", "modes", S.WRONG_MODE),
    Case("reject_42_late_statistics", "norm", "modes", S.WRONG_MODE),
    Case("reject_43_inference_tensor", "linear", "plain output", S.WRONG_CONTRACT, both=True),
    Case("reject_44_function_mode", "linear", "flags", S.MUTATES),
    Case("reject_44_global_hook", "linear", "flags", S.MUTATES),
    Case("reject_45_generator_of_python", "linear", "mutation", S.MUTATES),
    Case("reject_46_baked_mask", "buffers", "contract", S.STALE_WEIGHTS),
    Case("reject_47_baked_number", "named", "shapes", S.WRONG_NUMERICS),
    Case("reject_48_kept_constant", "pair", "aliasing", S.MUTATES),
    Case("reject_49_one_output_twice", "pair", "aliasing", S.MUTATES),
    Case("reject_50_copy_is_itself", "linear", "reload", S.MUTATES),
    Case("attack_nice", "linear", "isolation", S.CHEATS),
    Case("attack_nice", "linear", "timed outputs", S.CHEATS, timed=True),
    Case("attack_stops_server", "linear", "isolation", S.CHEATS, timed=True),
    Case("reject_51_statistics_now_and_then", "norm", "modes", S.WRONG_MODE),
    Case("reject_52_slow_baked", "slow", "numerics", S.WRONG_NUMERICS),
    Case("reject_53_thawed", "frozen", "numerics", S.WRONG_NUMERICS),
    Case("reject_54_frozen_for_good", "frozen", "modes", S.WRONG_MODE),
    Case("reject_57_counted_fold", "rowsum", "uncounted writes", S.STALE_WEIGHTS),
    Case("reject_57_counted_pack", "linear", "uncounted writes", S.STALE_WEIGHTS),
    Case("reject_55_weights_laid_in_rows", "linear", "reload", S.WRONG_NUMERICS),
    Case("reject_56_input_as_scratch", "gated", "aliasing", S.WRONG_NUMERICS),
    Case("attack_logging_frame", "linear", "isolation", S.CHEATS),
    Case("attack_patches_late", "linear", "isolation", S.CHEATS, timed=True),
    Case("accept_01_copy", "linear", timed=True, both=True),
    Case("accept_02_sequential", "linear"),
    Case("accept_03_split_k", "linear"),
    Case("accept_04_three_products", "linear"),
    Case("accept_05_epilogue", "linear", both=True),
    Case("accept_06_more_accurate", "linear", both=True),
    Case("accept_07_dispatch", "linear"),
    Case("accept_08_followed_fold", "rowsum", both=True),
    Case("accept_09_joined_stream", "linear", gpu=True),
    Case("accept_10_graph_copied", "linear", gpu=True),
    Case("accept_11_other_order", "linear"),
    Case("accept_12_exact_rewrite", "rowsum", both=True),
    Case("accept_13_argmax_other_order", "argmax"),
    Case("accept_14_round_other_order", "quantize"),
    Case("accept_15_lazy_pack", "linear", timed=True, both=True),
    Case("accept_16_thread_pool", "linear", timed=True),
    Case("accept_17_compiled", "linear"),
    Case("accept_18_native", "linear", timed=True),
    Case("accept_19_graph_by_shape", "linear", gpu=True, timed=True),
    Case("accept_20_cuda", "linear", gpu=True, sanitized=True),
    Case("accept_21_moving_average", "average", timed=True, both=True),
    Case("accept_22_loss", "loss", both=True),
    Case("accept_23_expanded_mask", "masked"),
    Case("accept_24_widened", "linear_float16", both=True),
    Case("accept_25_float64", "linear_float64", both=True),
    Case("accept_26_number_other_order", "parameter"),
    Case("accept_27_tied_other_order", "tied"),
    Case("accept_28_named_tuple", "linear"),
    Case("accept_29_slow_other_order", "slow"),
    Case("accept_31_frozen", "frozen"),
    Case("accept_32_assert", "loss"),
    Case("accept_30_nested", "nested", timed=True, both=True),
)
LIMITS = Limits(import_seconds=120, call_seconds=20)
SHORT = Limits(import_seconds=10, call_seconds=6)
SMALL = Limits(import_seconds=120, call_seconds=30, memory_bytes=1500 << 20)


def test_rewritten_reference(tmp_path: Path) -> None:
    """A reference that is made slow on disk, before eager's worker reads it for the clock."""
    reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
    reference.write_text((REFERENCES / "linear.py").read_text())
    text = (CANDIDATES / "accept_01_copy.py").read_text()
    change = f"pathlib.Path({str(reference)!r}).open('a').write('import time')"
    candidate.write_text(text + f"\n\nimport pathlib\n\n{change}\n")
    verdict = judge(reference, candidate, quick=True, device="cpu", limits=LIMITS)
    assert verdict.status is Status.CHEATS, verdict.failures
    assert {f.test for f in verdict.failures} >= {"isolation", "timed outputs"}


def parameters() -> list[object]:
    return [
        pytest.param(
            case,
            id=f"{case.file}-{case.test or 'accepted'}" + ("-gpu" if case.gpu else ""),
            marks=[pytest.mark.gpu] if case.gpu else [],
        )
        for case in (*TABLE, *(replace(c, gpu=True, both=False) for c in TABLE if c.both))
    ]


@pytest.mark.parametrize("case", parameters())
def test_candidate(case: Case) -> None:
    verdict = judge(
        REFERENCES / f"{case.reference}.py",
        CANDIDATES / f"{case.file}.py",
        quick=not case.sanitized,
        full=not case.test,  # what is honest goes through every test, whatever the machine
        only=[case.test, *CLOCK_TESTS][: 3 if case.timed else 1]
        if case.test
        else ("memory" if case.sanitized else None),
        timing=case.timed,
        device="cuda" if case.gpu else "cpu",
        limits=SHORT if case.short else SMALL if case.small else LIMITS,
    )
    if case.sanitized:
        assert not [n for n in verdict.notes if "compute-sanitizer" in n], verdict.notes
    if not case.test:
        assert verdict.accepted, verdict.failures
        assert verdict.failures == ()
        return
    assert not verdict.accepted, verdict.notes
    assert case.test in {f.test for f in verdict.failures}, verdict.failures
    named = {f.status for f in verdict.failures if f.test == case.test}
    assert case.status in named, verdict.failures
