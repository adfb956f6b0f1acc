"""What `make test` leaves to `make test-all` of the backend's tests; see tiers.py."""

from __future__ import annotations

from collections.abc import Mapping

from tiers_of_judge import Row

BACKEND: Mapping[str, Row] = {
    "tests/backend/test_encoder.py::test_an_encoder_layer_is_taken_apart": Row(
        "Each is traced four times; one has a mask and padding.", ("none", "both", "later")
    ),
    **{
        f"tests/backend/test_kept.py::{name}": Row("Each is compiled, by Inductor too.")
        for name in (
            "test_sizes_that_vary_are_found",
            "test_another_option_is_another_choice",
            "test_what_failed_is_not_kept",
            "test_kernels_that_cannot_be_loaded_are_chosen_anew",
            "test_parts_are_found_by_another_process",
        )
    },
    **{
        f"tests/backend/test_whole.py::{name}": Row("Each is compiled, by Inductor too.")
        for name in (
            "test_training",
            "test_copies_and_pickles",
            "test_hooks_and_traces_are_seen",
            "test_where_nothing_is_gained_the_reason_is_told",
            "test_a_mode_that_no_file_serves_is_compiled_graph_by_graph",
            "test_what_torch_compile_does_not_run_is_kept",
        )
    },
    "tests/backend/test_loop.py::test_two_hundred_steps": Row("600 steps of three loops."),
    "tests/backend/test_loop.py::test_gradients_of_fifty_steps": Row("Each is compiled."),
    "tests/backend/test_distributed.py::test_two_processes_train_as_one": Row(
        "Two processes for each."
    ),
    "tests/backend/test_distributed.py::test_the_run_on_several_gpus_by_two_processes_here": Row(
        "A minute: two processes compile a model twice."
    ),
    "tests/backend/test_semantics.py::test_what_is_retained_is_not_written_over": Row(
        "It is compiled by Inductor; another test retains gradients of ours."
    ),
    "tests/backend/test_accurate.py::test_it_can_be_turned_off": Row("It is compiled."),
    "tests/backend/test_trainers.py::test_accelerate": Row("Its graphs are compiled."),
    "tests/backend/test_trainers.py::test_lightning": Row("Its graphs are compiled."),
    "tests/backend/test_library.py::test_a_model_computes_the_same": Row(
        "Each is traced and planned, some for half a minute.",
        ("inference-two_towers", "training-encoder"),
    ),
    "tests/backend/test_library.py::test_the_same_tokens_are_generated": Row("Minutes for each."),
    "tests/backend/test_models.py::test_steps_of_a_model": Row("Half a minute or more for each."),
    "tests/backend/test_models.py::test_generation": Row("Two minutes for each."),
    **{
        f"tests/backend/test_parts.py::{name}": Row("Each is compiled, by Inductor too.")
        for name in (
            "test_what_is_drawn_is_drawn_as_by_inductor",
            "test_sizes_that_vary_in_parts",
            "test_a_part_reads_what_is_written_later",
        )
    },
    "tests/backend/test_parts.py::test_parts_between_batches_where_all_is_slower": Row(
        "It is compiled three times.", ("True",)
    ),
    "tests/backend/test_failures.py::test_an_error_of_ours_is_told_once_and_left_as_a_script": Row(
        "Four compilations and two processes."
    ),
    "tests/backend/test_failures.py::test_emitted_functions_have_all_that_they_name": Row(
        "Each is compiled, by Inductor too; the CPU's are run by all other tests, and sm_90's have"
        " what sm_80's have.",
        ("cuda:sm_90",),
    ),
    "tests/backend/test_failures.py::test_explain_tells_of_each_graph": Row(
        "Compiled forward and backward; test_semantics.py compares what is told there."
    ),
    "tests/backend/test_failures.py::test_a_measured_graph_is_inductors_where_ours_is_not_faster": (
        Row("Compiled twice by Inductor, and timed.")
    ),
    "tests/backend/test_semantics.py::test_gradients_are_accumulated_and_retained": Row(
        "Compiled forward and backward, as others that stay."
    ),
    **{
        f"tests/backend/test_semantics.py::{name}": Row(
            "Each is compiled, by Inductor too at times."
        )
        for name in (
            "test_sizes_become_free_when_they_first_vary",
            "test_graph_breaks_keywords_and_tied_weights",
            "test_frozen_parts_and_hooks",
            "test_incoming_gradients",
            "test_autocast",
            "test_random_numbers_are_those_of_torch_compile",
            "test_checkpoints",
            "test_what_is_written_to_an_argument",
            "test_a_model_that_dynamo_cannot_trace_runs",
        )
    },
}
