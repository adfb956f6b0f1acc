"""Which tests `make test` leaves to `make test-all`: the one table that decides it.

A row names a test and says which of its cases the shorter command keeps (by their ids, as pytest
prints them), or that it keeps none; and why that is enough. What has no row is in both. Tests that
are named on the command line (`tests/x.py::test_y`) always run.

docs/testing.md says what each part costs; tests/faults.py shows what the shorter command finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from tiers_of_backend import BACKEND
from tiers_of_judge import JUDGE, Row
from tiers_of_kernels import KERNELS

# models of the zoo: between them every family of kernels, every template, statistics, folds,
# convolutions with their sums, attention, recurrence, masks, lookups, results of several kinds
ZOO = (
    *("Mlp", "SumChain", "PoolChain", "BatchNormTrain", "Attention", "CausalAttention"),
    *("GroupAndInstanceNorm", "Reductions", "RmsNormAndGlu", "MaskAndWhere", "BooleanMasks"),
    *("BiasFreeMatvec", "Embedding", "WholeSum", "TwoHeads", "ConvolutionSums", "ResidualBlock"),
    *("Loop", "RowsInPieces", "LastToken", "LongRows", "Classes", "TiedWeights"),
)
TABLE: Mapping[str, Row] = {
    "tests/test_cli.py::test_what_lies_beside_a_reference_lies_beside_the_file": Row(
        "It is compiled and judged; tests/test_build.py imports a file beside another."
    ),
    "tests/test_written.py::test_optimize_leaves_what_forward_writes": Row(
        "Each is compiled graph by graph, by Inductor too; what is put back is found by one walk.",
        ("a parameter", "a plain attribute"),
    ),
    "tests/test_written.py::test_optimize_for_training_leaves_what_forward_writes": Row(
        "The same, with the backward."
    ),
    "tests/test_written.py::test_a_call_of_another_form_writes_once": Row(
        "Each is captured and compiled.", ("an argument", "what a container holds")
    ),
    "tests/ir/test_op_kernels.py::test_in_float64_no_number_is_shorter": Row(
        "Each is compiled; texts of the table are written for both, the headers of a GPU are not.",
        ("pointwise-cuda:sm_90",),
    ),
    "tests/test_nvrtc.py::test_every_family_is_compiled_as_by_nvcc": Row(
        "Two minutes of two compilers; one family's kernels are compiled, loaded and started."
    ),
    "tests/test_changed.py::test_a_change_that_stays_gets_kernels": Row(
        "Kernels are made anew for each, by the same code.",
        ("a layer appended", "a hook", "a child's forward patched", "a parametrization"),
    ),
    "tests/test_holders.py::test_what_is_held_is_followed": Row(
        "Each is compiled, a third by torch.compile; what is followed is found by one walk.",
        (
            *("a closure's dict-number-module", "slots-number-module"),
            *(
                "a global object-number-file",
                "an array-tensor-module",
                "a tensor's number-*-module",
            ),
        ),
    ),
    "tests/test_first_call.py::test_calls_behind_the_first_are_fast": Row(
        "Each is compiled; the other is one more way to set.", ("Begins",)
    ),
    **{
        f"tests/test_first_call.py::test_{name}": Row("It is compiled, one of them three times.")
        for name in ("set_and_set_back", "a_counter", "collected_inside", "collected_outside")
    },
    "tests/test_asked.py::test_what_forward_asks_for_is_seen": Row(
        "Each is compiled twice; code is read by one walk.",
        ("getattr", "requires_grad", "a function by a computed name"),
    ),
    "tests/test_grad_modes.py::test_results_are_of_the_mode_that_forward_enters": Row(
        "Each is compiled; the others differ in a decorator.", ("Inference",)
    ),
    "tests/test_asked.py::test_what_goes_on_at_each_call_does_so": Row(
        "Some are compiled by torch.compile, too.", ("an iterator", "an object's number")
    ),
    "tests/test_asked.py::test_random_numbers_that_are_not_pytorchs_are_drawn_at_each_call": Row(
        "They are compiled by torch.compile."
    ),
    "tests/test_held_code.py::test_a_part_that_is_held_elsewhere_is_the_one_that_is_called": Row(
        "Each is compiled; what holds the part is looked into by one walk.",
        ("a closure over a part-replaced", "no place of its own-replaced"),
    ),
    "tests/test_held_code.py::test_what_a_held_function_reads_is_followed": Row(
        "Each is compiled twice; what functions read is found by one walk.",
        ("a number that it closes over", "a global number", "another module's setting"),
    ),
    "tests/test_holders.py::test_a_cached_property_is_followed": Row(
        "Files run the same runtime, and graphs are Dynamo's.", ("module",)
    ),
    "tests/test_modes.py::test_each_part_has_its_own_mode": Row(
        "Each is compiled three times; parts that drop are served as any other.", ("dropping",)
    ),
    "tests/test_modes.py::test_modes_that_forward_sets_are_those_of_later_calls": Row(
        "Each is compiled, some by torch.compile, too.", ("a part, when it has run",)
    ),
    "tests/test_build.py::test_it_runs_without_a_compiler": Row(
        "Each is built; what a wider processor has is chosen by one line.", ("avx2",)
    ),
    "tests/test_random_layouts.py::test_the_zoo": Row(
        "Each is called as often; masks, images and signals stay.", ("MaskAndWhere", "Signals")
    ),
    "tests/test_random_layouts.py::test_random_models": Row(
        "Further seeds; these have models of both kinds.", ("models-80", "images-80")
    ),
    "tests/test_results_memory.py::test_results_lie_as_eagers_do_whatever_order_the_arguments_"
    "lie_in": Row(
        "Each is compiled: as they lie and turned, and of one rank more.",
        ("in rows-3", "transposed-3", "in rows-4"),
    ),
    "tests/test_norm_rows.py::test_long_rows_of_cuda": Row(
        "It is compiled for the emulator; test_equal_rows.py has long rows in one pass."
    ),
    "tests/test_memory.py::test_memory_is_taken_over_where_it_is_spent": Row(
        "Each is compiled: where it is taken, and where it is not.", ("nothing", "a later row")
    ),
    "tests/test_equal_rows.py::test_kernels_of_cuda": Row(
        "Each is compiled for the emulator; on the CPU there are more.", ("standardised",)
    ),
    "tests/test_demo.py::test_a_forked_command_prints_and_ends_as_a_started_one": Row(
        "Two processes import PyTorch; the command line's tests start the same command."
    ),
    "tests/test_logs.py::test_without_switches_it_says_what_a_user_must_know": Row(
        "A process that imports PyTorch and compiles, as the one with switches does."
    ),
    "tests/test_masks.py::test_a_mask_is_what_it_is_for_eager": Row(
        "Each is compiled, and looks at masks as the decoder does.", ("a decoder's",)
    ),
    "tests/test_page_code.py::test_the_code_runs": Row(
        "Each is compiled, in a process of its own. What logs.md shows test_logs.py runs."
    ),
    **{
        f"tests/test_site.py::test_{name}": Row("Half a minute or more for each.")
        for name in ("its_links_lead_somewhere", "the_package", "a_notebook", "a_script", "types")
    },
    "tests/test_models.py::test_model_computes_the_same": Row(
        "Each is compiled, and most share rules and kernels. Random models run all the rest. Sums"
        " of convolutions take half a minute: their rules are proved, their plans run by PyTorch."
        " Three are like others here, and test_dtypes.py has them in 16 bits or float64. So is the"
        " block of a residual network: test_random_convolutions.py has its kernels. test_cli.py has"
        " the chain of sums judged, test_plan_reference.py the plan of the other chain, whose"
        " kernels are the sums', and test_life.py ties weights.",
        (
            *(*ZOO, "!ConvolutionSums", "!Attention", "!GroupAndInstanceNorm", "!MaskAndWhere"),
            *("!ResidualBlock", "!TwoHeads", "!RmsNormAndGlu", "!SumChain", "!PoolChain"),
            "!TiedWeights",
        ),
    ),
    "tests/test_models.py::test_model_is_written_for_cuda": Row(
        "Each is captured. The emulator and the golden files read the same text.",
        (*ZOO, "Scores", "OtherWayRound", "OneSquare", "TransformerBlock", "Recurrent"),
    ),
    "tests/test_plan_reference.py::test_plans_of_the_zoo": Row(
        "Each is captured; those stay that other tests capture, too.",
        tuple(f"{name}-*" for name in ZOO),
    ),
    "tests/test_prices.py::test_the_least_price_decides_and_counts_what_is_started": Row(
        "Each is captured; those stay that other tests capture, too.",
        tuple(f"{name}-*" for name in ZOO),
    ),
    "tests/test_dtypes.py::test_model_computes_the_same": Row(
        "Each is compiled: each dtype in one or more. Random models in bfloat16 have reductions"
        " and masks in 16 bits.",
        (
            *("Mlp-torch.float16", "BatchNormTrain-torch.bfloat16"),
            "GroupAndInstanceNorm-torch.float64",
        ),
    ),
    "tests/test_dtypes.py::test_several_dtypes_in_one_model": Row(
        "Each is compiled: two dtypes of each model.",
        ("*", "!*-dtype1", "!*-dtype2", "!*-dtype4", "!*-dtype5"),
    ),
    "tests/test_fidelity.py::test_an_encoder_that_leaves_places_out_is_kept": Row(
        "Each is captured.", ("False",)
    ),
    "tests/test_examples.py::test_the_example_is_what_refold_writes": Row(
        "The golden files are the same texts at small sizes.", ("s0_*",)
    ),
    "tests/test_build.py::test_what_is_damaged_is_compiled_where_there_is_a_compiler": Row(
        "Two processes and a compilation; what is damaged is refused and told in others."
    ),
    "tests/test_random_models.py::test_random_models": Row("Eight of 24 seeds.", ("0",)),
    "tests/test_random_models.py::test_random_models_of_other_dtypes": Row(
        "Ten seeds in the dtype that is widened and rounded most.", ("torch.bfloat16",)
    ),
    "tests/test_random_models.py::test_random_models_of_images": Row("Eight of 16 seeds.", ("0",)),
    "tests/test_random_models.py::test_random_models_compiled": Row("One of four.", ("1000",)),
    "tests/test_gpu_plans.py::test_model_computes_the_same": Row(
        "Most are captured for test_models.py, too.",
        (
            *("ResidualBlock", "NormThenConvolution", "PooledConvolution", "GatedSums"),
            *("Scores", "LongRows"),
        ),
    ),
    "tests/test_families.py::test_samples_compute_the_same_on_a_gpu": Row(
        "The emulator compiles all samples for 40 s; its tests of the zoo have every family, too."
    ),
    "tests/test_attention_calls.py::test_scores_that_float32_tells_apart_no_more": Row(
        "Two kernels are emulated for each; the largest overflow.", ("10000.0-0.001",)
    ),
    "tests/test_attention_calls.py::test_weights_beside_sums_of_other_arithmetic": Row(
        "The emulator compiles kernels for one comparison."
    ),
    "tests/test_emitted_module.py::test_optimizing_leaves_modes_and_buffers_as_they_were": Row(
        "Inductor compiles the model, too.", ("eager",)
    ),
    "tests/test_unchanged.py::test_a_pytorch_without_these_functions_will_do": Row(
        "Compiled again, in a process of its own."
    ),
    "tests/test_soak.py::test_random_programs": Row(
        "Programs of random models; test_soak_findings.py has what was found in others.",
        ("random-*",),
    ),
    "tests/test_extending.py::test_the_page_works": Row(
        "A copy of the source is changed, compiled and run; both test that all differences fit."
    ),
    "tests/test_families.py::test_samples_compute_the_same": Row(
        "The samples are compiled once for each dtype; test_dtypes.py has models in the others.",
        ("dtype0-*",),
    ),
    "tests/test_random_convolutions.py::test_results_of_any_width": Row(
        "Of each kind of strips the least width, those on either side of a tile's, and several;"
        " volumes are joined before any product.",
        ("*-4-4", "*-7-5", "*-61-4", "*-66-5", "*-130-4", "!('tf32', 'joined volumes')-*"),
    ),
    "tests/test_random_convolutions.py::test_a_dark_place_keeps_its_bits": Row(
        "Each is run by emulated threads; its pieces are those of the product, not of the form.",
        ("('ieee', 'steps of 1')", "('tf32', 'phases')"),
    ),
    "tests/test_random_convolutions.py::test_a_fault_is_seen": Row(
        "The other faults are of the same kernels and seen by the same comparison.",
        ("a stage is read before it is there", "a row is read before it is there"),
    ),
    "tests/test_convolutions.py::test_images_of_any_size": Row(
        "Small places beside large ones are another test's, and a value too large for its parts.",
        ("1.0",),
    ),
    "tests/test_convolutions.py::test_special_values_are_where_the_definition_has_them": Row(
        "An infinity of either sign goes the same way; a large value is one that rounds to none."
        " The classes of one schedule differ in their products alone. Those of a weight meet"
        " an image's in one product: two kernels have them.",
        (
            *("*", "!*--inf-*", "!image-1e+38-strips*", "!weight-*", "weight-inf-ieee"),
            *("!*-patches of fp32 class", "image-nan-patches of fp32 class", "weight-nan-strips"),
        ),
    ),
    "tests/test_convolutions.py::test_columns_of_any_size_keep_their_bits": Row(
        "Each is run by emulated threads; test_strips.py has strips beside dark places.",
        ("ieee", "patches"),
    ),
    "tests/test_equal_rows.py::test_kernels_of_the_cpu": Row(
        "Each is compiled: plain and down, by a root, by a deviation, and of several axes.",
        (
            *("several axes", "standardised", "standardised by hand", "standardised columns"),
            *("layer norm", "range", "over the deviation"),
        ),
    ),
    "tests/test_behind_rows.py::test_what_follows_from_rows_is_computed_with_them": Row(
        "Each is compiled: all for the CPU, for a GPU what no other kernels compute.",
        ("*-cpu", "again and again-*", "softmax between views-*", "all of an image-*"),
    ),
    **{
        f"tests/test_numbers.py::{name}": Row("Its kernels are compiled.")
        for name in (
            "test_a_number_that_counts_gets_no_kernels_for_each_step",
            "test_a_position_is_as_free_as_a_size",
            "test_a_number_that_is_no_size_takes_the_original",
            "test_a_float_is_as_exact_as_in_eager",
            "test_a_float_that_is_no_mere_factor_takes_the_original",
            "test_a_float_beside_values_of_16_bits_takes_the_original",
            "test_a_whole_number_that_is_an_attribute_varies",
            "test_an_attribute_that_is_no_mere_factor_is_as_it_was",
        )
    },
    "tests/test_left_alone.py::test_what_forward_sets_is_not_set_by_optimize": Row(
        "Each is compiled; where there are kernels for training, evaluation has its own, too.",
        ("True",),
    ),
    "tests/test_norm_rows.py::test_kernels_of_the_cpu": Row(
        "Each is compiled: one of each kind of axes, and what is written by hand.",
        ("group norm", "batch norm", "by hand"),
    ),
    "tests/test_norm_rows.py::test_kernels_of_cuda": Row(
        "Each is compiled; test_equal_rows.py has such rows on the emulator."
    ),
    "tests/test_biases.py::test_kernels_add_it": Row(
        "Each is compiled: each reader, both kinds of convolutions and both layouts of images.",
        ("*-False-False", "*-True-True"),
    ),
    "tests/test_recurrent.py::test_shapes_strides_and_values": Row(
        "Each is compiled: one of each cell, with and without what else there is.",
        (*("LSTM-settings1-5-False-False", "GRU-settings2-8-False-False"),),
    ),
    "tests/test_library.py::test_processes_compile_one_after_another_whoever_was_killed": Row(
        "Processes that are started, compile and are killed."
    ),
    "tests/test_channels_last.py::test_results_lie_as_eager_lays_them_for_both_layouts": Row(
        "Each is compiled.", ("torch.channels_last",)
    ),
    "tests/test_channels_last.py::test_transforms_of_images_see_the_original": Row(
        "Each is compiled; axes are told apart by one comparison.", ("axes0",)
    ),
    "tests/test_tune.py::test_candidates_are_whole_modules_each_with_its_schedule": Row(
        "Each writes a file for each schedule; TF32 has those of full accuracy.",
        ("dtype0-ieee-Ieee", "dtype2-*"),
    ),
    "tests/test_subclass.py::test_a_class_is_not_asked_for_its_twin": Row(
        "Two are compiled; what a class does when it is derived from counts once.",
        ("*", "!Registered"),
    ),
    "tests/test_build.py::test_a_wheel_of_several_models": Row(
        "pip installs it for a process of its own; files that are built run in others."
    ),
    "tests/test_plans.py::test_sums_behind_batch_norm_run_none_in_eval_mode": Row(
        "Each is captured.", ("VolumeMean",)
    ),
    "tests/test_tune_images.py::test_a_way_that_is_not_accurate_is_out": Row(
        "Each is compiled.", ("False",)
    ),
    "tests/test_random_convolutions.py::test_random_convolutions": Row(
        "Eight of 304: each is compiled, and run by thousands of emulated threads.", ("3",)
    ),
    "tests/test_random_convolutions.py::test_random_convolutions_of_all_forms": Row(
        "16 of 384: each is compiled, and run by emulated threads.", ("patches*-1", "direct-0")
    ),
    "tests/test_random_convolutions.py::test_random_convolutions_on_the_cpu": Row(
        "Eight of 128: each is compiled.", ("13",)
    ),
    "tests/test_examples.py::test_the_kernels_compile": Row("nvcc takes a minute for both."),
    "tests/test_pages_browser.py::test_nothing_overlaps_or_is_cut": Row("A browser looks at each."),
    "tests/test_pages_browser.py::test_a_fault_is_seen": Row("A browser looks at each."),
    "tests/test_pages.py::test_a_page_is_one_file_and_needs_nothing": Row(
        "The browser's test reads the same pages.", ("explain", "suite")
    ),
    "tests/test_suite_ray.py::test_a_worker_and_a_node_are_lost_and_no_row_is": Row(
        "Starts a cluster of two nodes."
    ),
    "tests/test_suite.py::test_killed_at_random_moments_and_resumed_the_rows_are_the_same": Row(
        "Ten kills take half a minute.", ("3",)
    ),
    "tests/test_suite.py::test_models_are_optimized_judged_and_the_run_goes_on": Row(
        "Models are optimized and judged; the others need none."
    ),
    "tests/test_build.py::test_files_for_gpus_are_built_where_there_is_none": Row(
        "nvcc takes four seconds for each."
    ),
    "tests/test_cli.py::test_optimize_writes_a_faster_accepted_file": Row(
        "Inductor compiles the model, too; test_baselines.py has it among the sides.", ("eager",)
    ),
    "tests/test_tune.py::test_a_direct_product_is_given_x_as_it_is": Row(
        "nvcc compiles both; tests/gpu runs such products on the emulator."
    ),
    "tests/test_tiers.py::test_a_seeded_fault_changes_a_text_that_is_there": Row(
        "A line that was changed for good reason is no fault; `make faults` asks for it, too."
    ),
    **BACKEND,
    **JUDGE,
    **KERNELS,
}

# files whose extensions are compiled as they ship also by the shorter command; see compiler.py
AS_SHIPPED = ("tests/test_cli.py", "tests/kernels/test_cpu_product.py")


def is_kept(node: str) -> bool:
    """Does the shorter command run a test, by its node id?"""
    name, _, rest = node.partition("[")
    row = TABLE.get(name)
    if row is None:
        return True
    kept = False
    for pattern in row.kept:
        if _fits(rest.removesuffix("]"), pattern):
            kept = not pattern.startswith("!")
    return kept


def _fits(case: str, pattern: str) -> bool:
    return fnmatchcase(case, pattern.removeprefix("!").replace("[", "[[]"))


def mistakes(nodes: Iterable[str]) -> list[str]:
    """Rows that say nothing of any of these tests, which are all that there are in some files."""
    nodes = list(nodes)
    files = {n.partition("::")[0] for n in nodes}
    found = []
    for name, row in TABLE.items():
        if name.partition("::")[0] not in files:
            continue
        ids = [r.removesuffix("]") for n, _, r in (n.partition("[") for n in nodes) if n == name]
        if not ids:
            found.append(f"{name}: there is no such test")
        for p in row.kept:
            if not any(_fits(i, p) for i in ids):
                found.append(f"{name}: no case has an id like {p!r}")
    return found
