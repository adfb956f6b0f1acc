"""What `make test` leaves to `make test-all` of the tests of kernels for themselves and of the
emulator; see tiers.py."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tiers_of_judge import Row

WIDEST = torch.backends.cpu.get_cpu_capability()  # of the vectors that this processor has

KERNELS: Mapping[str, Row] = {
    "tests/emulator/test_attention_dropout.py::test_results_and_gradients": Row(
        "Two kernels are compiled for the emulator for each; that of later keys has other sizes of"
        " queries and keys, of several tiles each.",
        ("130 and 70 of 16 causal", "33 and 65 of 24 masked", "40 and 41 of 32 far"),
    ),
    "tests/kernels/test_cuda_attention_dropout.py::test_without_spills": Row(
        "nvcc takes ten seconds for each. A spill costs speed, no result."
    ),
    "tests/kernels/test_cuda_attention_dropout.py::test_the_host_runs_what_calls_them": Row(
        "nvcc takes ten seconds for each; both are called by the same lines.", ("False",)
    ),
    "tests/emulator/test_judged.py::test_writes_are_followed": Row(
        "Each is judged for half a minute; its parameters are pooled and packed, as others' are.",
        ("s1_avgpool_gelu_max",),
    ),
    "tests/emulator/test_judged.py::test_kernels_that_look_at_nothing_are_caught": Row(
        "It is judged once more; test_look.py has the same fault without a judge."
    ),
    "tests/test_flat.py::test_a_long_row_of_places": Row(
        "Each is compiled for the emulator; one is transposed, of features that fill no tile, one"
        " has two phases along the width.",
        ("transposed-1", "transposed, two taps a phase-1"),
    ),
    "tests/test_flat.py::test_of_fp32_class": Row(
        "The same kernels of other pieces; test_convolutions.py has patches of fp32 class."
    ),
    "tests/test_flat.py::test_what_follows_on_each_element": Row(
        "Each is compiled for the emulator.", ("broad-97-False",)
    ),
    "tests/test_flat_last.py::test_they_hand_images_on_with_their_channels_last": Row(
        "The same kernels of other sizes.", ("",)
    ),
    "tests/test_flat_last.py::test_one_side_may_lie_otherwise": Row(
        "The others' kernels read, or store, so, too.", ("True",)
    ),
    "tests/test_flat_last.py::test_volumes_and_transposed_ones": Row("Taps of other kinds."),
    "tests/test_flat_last.py::test_special_values": Row(
        "They are computed again by one function, which test_convolutions.py asks of each value."
    ),
    "tests/test_flat_last.py::test_what_wants_them_channels_first_does_not_keep_them": Row(
        "Each is compiled; both are planned alike.", ("False",)
    ),
    "tests/test_flat_last.py::test_a_shortcut_may_lie_otherwise": Row(
        "It is read as an image is that lies otherwise, and a long body is the other cases' loop."
    ),
    "tests/test_flat.py::test_each_image_has_a_scale_of_its_own": Row(
        "Each is compiled for the emulator; the scale is read in one place.", ("ieee",)
    ),
    "tests/test_flat.py::test_the_same_bits_again": Row(
        "Each is run by emulated threads, in the order of one loop.", ("tf32",)
    ),
    "tests/test_flat.py::test_a_fault_is_seen": Row(
        "Each is compiled for the emulator; one reads sums before they are there.",
        ("sums are read before they are there",),
    ),
    "tests/test_flat.py::test_random_convolutions": Row(
        "Each is six kernels, compiled for the emulator."
    ),
    "tests/test_strips.py::test_dark_places_beside_bright_ones_keep_their_bits": Row(
        "Each is compiled for the emulator; one has two taps a step in two pieces.",
        ("8-slim-20-kernel0-ieee",),
    ),
    "tests/test_strips.py::test_kernels_that_fill_two_thirds_of_shared_memory": Row(
        "As other strips, but for their size."
    ),
    "tests/test_strips.py::test_two_phases_whose_rows_start_anywhere": Row(
        "Each is compiled twice; phases of narrower tiles stay, and random ones."
    ),
    "tests/kernels/test_cuda_compile.py::test_kernels_compile_without_spills_as_recorded": Row(
        "A minute of nvcc. A spill costs speed, no result; the emulator finds what is wrong."
    ),
    "tests/kernels/test_cuda_compile.py::test_kernels_of_ampere_fit_smaller_gpus": Row(
        "Half a minute of nvcc for each."
    ),
    "tests/test_turned.py::test_kernels_compute_the_same": Row(
        "Nine models are compiled for the emulator; plans and what is written around them stay."
    ),
    "tests/test_recomputed.py::test_kernels_compute_the_same": Row(
        "Five models are compiled for the emulator; the rows that have to stay exact are one."
    ),
    "tests/kernels/test_cuda_emitted.py::test_it_compiles": Row(
        "nvcc takes ten seconds for each; test_nvrtc.py has NVRTC compile one, and nvcc has a"
        " convolution and rows."
    ),
    "tests/kernels/test_cuda_emitted.py::test_convolutions_compile": Row(
        "nvcc takes six seconds for each.", ("64-tf32-broad-cuda:sm_80",)
    ),
    "tests/kernels/test_cuda_emitted.py::test_convolutions_of_other_forms_compile": Row(
        "nvcc takes twelve seconds for each."
    ),
    "tests/kernels/test_cuda_emitted.py::test_convolutions_of_strips_compile": Row(
        "nvcc takes six seconds for each; the emulator runs them."
    ),
    "tests/kernels/test_cuda_rows_compile.py::test_rows_and_columns_compile_without_spills": Row(
        "nvcc takes some seconds for each. A spill costs speed, no result."
    ),
    **{
        f"tests/kernels/test_cuda_rows_compile.py::test_{name}": Row(
            "nvcc takes two seconds. What it looks for costs speed, no result."
        )
        for name in ("rows_that_are_held_are_read_once", "rows_that_are_held_fit")
    },
    "tests/kernels/test_cuda_rows_compile.py::test_nothing_is_read_before_the_previous_kernel_has_"
    "ended": Row("nvcc takes two seconds for each: rows, which read most.", ("LayerNorm",)),
    "tests/gpu/test_rows.py::test_other_dtypes": Row(
        "Each is compiled; values of 16 bits are read by one header.", ("Softmax-torch.bfloat16-1",)
    ),
    "tests/gpu/test_matmul.py::test_scales": Row(
        "Each is run by emulated threads; parts of a sum are split as the whole is, and a large"
        " factor of either side as of the other.",
        ("scale0-ieee_tall", "scale2-direct_tall", "scale3-*", "!*-direct_tall_8"),
    ),
    "tests/gpu/test_batches.py::test_exceptional_values_stay_in_their_product": Row(
        "Each is run by emulated threads; products are told apart alike in all of Hopper's.",
        ("ieee_tall", "ieee_generic"),
    ),
    "tests/kernels/test_cuda_rows_compile.py::test_other_dtypes_compile_without_spills": Row(
        "nvcc takes some seconds for each."
    ),
    "tests/kernels/test_cuda_rows_compile.py::test_rows_and_columns_compile_for_sm_80": Row(
        "nvcc takes some seconds for each."
    ),
    "tests/kernels/test_cuda_channels_compile.py::test_held_channels_compile_without_spills": Row(
        "nvcc takes some seconds for each."
    ),
    "tests/kernels/test_cuda_rows_compile.py::test_nor_is_what_products_read": Row(
        "nvcc takes ten seconds for each."
    ),
    "tests/test_devices.py::test_products_compile_from_the_headers_of_ampere": Row(
        "nvcc takes ten seconds for each, and all compile what sm_80 does."
    ),
    "tests/test_devices.py::test_each_family_compiles": Row(
        "nvcc takes five seconds for each, and all compile the same headers."
    ),
    "tests/kernels/test_cpu_product.py::test_products_of_every_size": Row(
        "Tails of every kind stay; sizes that are like others go.",
        ("*", "!*-2-*", "!*-3-*", "!*-64-*", "!*-200-*", "!*-2", "!*-3", "!*-64", "!*-1200"),
    ),
    "tests/kernels/test_cpu_product.py::test_products_of_16_bits_round_once": Row(
        "For PyTorch's own vectors, as they ship; products of float32 stay for all.",
        ("*", "!DEFAULT-*"),
    ),
    "tests/kernels/test_cpu_product.py::test_products_of_float64": Row(
        "Optimized as it ships, for each width of vectors; products of float32 stay for all.",
        ("DEFAULT-*",),
    ),
    "tests/kernels/test_functions.py::test_functions_are_accurate": Row(
        "Each is compiled: our functions in every width, PyTorch's in the widest.",
        ("ours-*", f"pytorchs-{WIDEST}"),
    ),
    "tests/kernels/test_vectors.py::test_every_function_has_the_bits_of_pytorchs": Row(
        "Each is compiled: the widest, which is taken where there is a choice.", (WIDEST,)
    ),
    "tests/kernels/test_cpu_product.py::test_each_number_of_rows_by_two_threads": Row(
        "Without vectors it takes ten times as long; products of each size stay.", ("AVX*",)
    ),
    "tests/emulator/test_modules.py::test_model_computes_the_same": Row(
        "Each is compiled and run by thousands of emulated threads.",
        (
            *("BatchNormTrain-cuda:sm_90", "CausalAttention-cuda:sm_90", "Residual-cuda:sm_90"),
            *("Chain-cuda:sm_80", "LongLines-cuda:sm_90"),
        ),
    ),
    **{
        f"tests/emulator/test_modules.py::{name}": Row("Compiled, and run by emulated threads.")
        for name in (
            "test_threads_of_one_stream_keep_their_workspace_apart",
            "test_rows_of_a_batch_are_split_on_their_way_where_they_may_be",
        )
    },
    "tests/emulator/test_kernels.py::test_products_as_they_are": Row(
        "The same schedules run in tests/gpu; of five processors some share tiles.",
        ("generic-5",),
    ),
    "tests/emulator/test_kernels.py::test_products_with_a_fault": Row(
        "Each is compiled: one of what a GPU's threads wait for, for each kind of kernels.",
        ("shares are added before*", "a stage is read while it is copied"),
    ),
    "tests/emulator/test_kernels.py::test_rows_with_a_fault": Row(
        "Each is compiled.", ("warps read parts*", "an empty part*")
    ),
    "tests/emulator/test_look.py::test_a_write_is_followed_one_call_late_and_told": Row(
        "Each is compiled.", ("rows-64", "product-64")
    ),
    "tests/test_strip_statistics.py::test_statistics_are_those_of_the_values": Row(
        "Each is compiled for the emulator; of groups all is asked that follows.", ("groups",)
    ),
    "tests/test_strip_statistics.py::test_every_tile_takes_them": Row(
        "Each is compiled for the emulator; the other tests take one tile."
    ),
    "tests/test_strip_statistics.py::test_values_are_stored_beside_them": Row(
        "Each is compiled for the emulator; batch norm stores values, too."
    ),
    "tests/test_strip_statistics.py::test_an_origin_far_away_does_not_cancel": Row(
        "Each is compiled for the emulator; a fault is seen near zero, too."
    ),
    "tests/test_strip_statistics.py::test_of_equal_values_they_are_exact": Row(
        "It is compiled for the emulator."
    ),
    "tests/test_strip_statistics.py::test_what_is_not_finite_is_where_eager_has_it": Row(
        "Each is compiled for the emulator."
    ),
    "tests/test_strip_statistics.py::test_a_fault_is_seen": Row(
        "Six faults are compiled for the emulator; the test that finds them has a case here."
    ),
    "tests/test_patch_channels.py::test_channels_are_passed_over_in_the_kernel": Row(
        "Each is compiled, and run by emulated threads; infinite values are a logsumexp's.",
        ("features64-softmax-*-ieee",),
    ),
    "tests/test_patch_channels.py::test_operands_follow": Row(
        "Each is compiled; each is read as a pointwise kernel reads it.", ("logsumexp-shape0",)
    ),
    "tests/test_patch_channels.py::test_operands_of_the_whole_result_come_before": Row(
        "It is compiled for the emulator."
    ),
    "tests/test_patch_channels.py::test_what_is_not_finite_is_where_channels_have_it": Row(
        "Each is compiled, and what is computed again is the same: infinite values stay."
    ),
    "tests/test_patch_channels.py::test_infinite_values_are_passed_over": Row(
        "Each is compiled for the emulator.", ("logsumexp-inf",)
    ),
    "tests/test_patch_channels.py::test_what_follows_reads_what_passes_have_found": Row(
        "It is compiled for the emulator."
    ),
    "tests/test_patch_channels.py::test_a_fault_is_seen": Row(
        "Each is compiled; others are seen by the same comparison.", ("a warp is left out",)
    ),
    "tests/test_patch_statistics.py::test_statistics_are_those_of_the_values": Row(
        "Each is compiled for the emulator; of groups all is asked that follows.", ("groups",)
    ),
    "tests/test_patch_statistics.py::test_batch_statistics_are_followed": Row(
        "It is compiled for the emulator; strips have the same life, and groups these kernels."
    ),
    "tests/test_flat.py::test_special_values": Row(
        "Each is run by emulated threads, and what is computed again is so for any of them.",
        ("ieee-images-*", "tf32-kernels-nan"),
    ),
    "tests/test_flat.py::test_a_dark_place_keeps_its_bits": Row(
        "Each is run by emulated threads; between the least and the usual nothing changes.",
        ("*-1e-30", "ieee-0.00390625"),
    ),
    "tests/test_patch_statistics.py::test_every_tile_takes_them": Row(
        "Each is compiled for the emulator; the other tests take one tile."
    ),
    "tests/test_patch_statistics.py::test_values_are_stored_beside_them": Row(
        "Each is compiled for the emulator; batch norm stores values, too."
    ),
    "tests/test_patch_statistics.py::test_an_origin_far_away_does_not_cancel": Row(
        "Each is compiled for the emulator; a fault is seen near zero, too."
    ),
    "tests/test_patch_statistics.py::test_of_equal_values_they_are_exact": Row(
        "It is compiled for the emulator."
    ),
    "tests/test_patch_statistics.py::test_what_is_not_finite_is_where_eager_has_it": Row(
        "It is compiled for the emulator."
    ),
    "tests/test_patch_statistics.py::test_a_fault_is_seen": Row(
        "Seven faults are compiled for the emulator; the test that finds them has a case here."
    ),
    "tests/test_strips.py::test_windows_of_a_result_are_one_kernel": Row(
        "Each is compiled, and run by emulated threads; the tests of rows have the other tiles.",
        ("slim-64-*-ieee",),
    ),
    "tests/test_strips.py::test_what_is_not_finite_is_where_windows_have_it": Row(
        "Each is compiled; sums have what is not finite as the largest do.", ("True",)
    ),
    "tests/test_strips.py::test_a_fault_is_seen": Row(
        "Each is compiled; others are seen by the same comparison.",
        ("a window's rows are not joined",),
    ),
    "tests/test_strips.py::test_rows_of_any_start_and_end": Row(
        "Each is compiled, and run by emulated threads: each tile with each body.",
        (
            *("slim-70-size2-Long-tf32", "joined-64-size7-Long-ieee"),
            "broad-140-size11-Short-tf32",
        ),
    ),
    "tests/test_strips.py::test_operands_of_wide_rows_that_start_anywhere": Row(
        "It is compiled, and run by emulated threads; other wide rows have its kernel."
    ),
    "tests/test_strips.py::test_phases_of_narrower_tiles": Row(
        "Each is compiled, and run by emulated threads; random ones have phases in TF32.",
        ("conv1-64-False-ieee",),
    ),
    "tests/test_strip_channels.py::test_channels_are_reduced_in_the_kernel": Row(
        "Each is compiled, and run by emulated threads; operands follow sums.",
        ("slim-min-conv0-*-ieee",),
    ),
    "tests/test_strip_channels.py::test_operands_of_places_follow": Row(
        "Each is compiled; each is read as a pointwise kernel reads it, and patches have one."
    ),
    "tests/test_strip_channels.py::test_what_is_not_finite_is_where_channels_have_it": Row(
        "Each is compiled; windows of strips have it, and patches pass infinite values over."
    ),
    "tests/test_strip_channels.py::test_a_fault_is_seen": Row(
        "Each is compiled; others are seen by the same comparison.", ("a warp is left out",)
    ),
}
