"""What `make test` leaves to `make test-all` of the judge's tests; see tiers.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """kept: patterns of ids (`*` stands for anything) of the cases that the shorter command runs;
    one that begins with `!` takes cases out again. The last one that fits decides."""

    why: str
    kept: tuple[str, ...] = ()


# candidates of the corpus: those of classes that others have, too, and honest ones that stay
_LIKE_OTHERS = """
    a_key_after_the_call absent_weights_reset ascending_ids autocast_backward_halved
    autocast_weights_kept backward_by_old_weights_in_eval batch_of_93 backward_needs_the_module
    backward_of_64_rows backward_scratch_shared batch_of_384 changes_directory
    channels_last_in_half complex_fold_trusts_versions constant_inputs cotangent_of_one_column
    count_read_once dict_in_another_order doubles_folded_once equal_inputs eval_gives_nothing
    files_left_open flag_of_its_own float32_inside_a_double floor_of_silence
    folded_under_inference functional_call_in_part garbage_while_it_folds
    gradient_laid_as_the_input gradient_of_eval gradient_of_one_more_axis gradient_of_zero_rows
    gradient_without_conjugate gradients_never_zeros half_when_inputs_want halves_of_doubles
    hooks_of_all_modules hooks_with_keywords hushes_warnings ids_of_another_width
    infinity_of_a_weight_clamped input_written_under_autocast keeps_a_little
    keys_beyond_a_block leaves_alone_want
    marks_the_dict mask_of_the_first_sample mean_of_no_rows memo_of_doubles mode_by_the_call
    number_of_zero once_a_backward one_hot_rows optional_together packed_beside_a_state
    padding_masks part_held_in_a_tuple patches_autograd penalty_of_weights_lost
    pixels_of_16_bits pops_the_dict power_is_whole prints_few_digits right_for_some_batches
    rounded_without_bias_under_autocast rows_of_the_same_values same_storage_same_tensor
    saved_by_the_thread scale_of_zero short_sequences slope_built_in sorted_rows
    sparse_gradient_of_equal_ids statistics_with_a_graph switch_built_in tangents_are_lost
    tangents_are_zero threads_left_waiting turns_the_input values_of_eval variance_clamped
    default_of_the_constructor finite_at_one first_call_of_one halves_rounded_up
    infinities_of_both_signs layer_begun_stays names_of_the_constructor number_drawn_of_nothing
    threshold_itself_taken two_infinities_of_one_sign windows_are_square
    vmap_takes_the_first wants_gradients_anyway wants_the_inputs_gradient weights_misaligned
    weights_of_one_value whole_numbers_of_eight_bits width_of_the_class writes_and_restores
"""
_HONEST = """
    answers_narrower cotangent_clamped dict_last_value float32_inside_float64
    fold_keyed_by_object generator_reseeded ids_of_32_bits keywords_exchanged
    momentum_built_in optional_switch_ignored parameters_exchanged pickled_without_bias
    saved_by_the_class signals_its_parent squares_overflow tails_cut
    weights_of_first_backward
"""
JUDGE: Mapping[str, Row] = {
    "tests/judge/test_side_by_side.py::test_both_find_what_they_find_alone": Row(
        "One for either test; the others differ in what is kept.",
        ("keeps_everything", "wrong_now_and_then_honest"),
    ),
    "tests/judge/test_candidates.py::test_candidate": Row(
        "All that must be rejected, by the one test that finds it. What must be accepted goes"
        " through every test, ten times as long; so do copies, a style, and a file of refold's own"
        " with folds in test_cli.py.",
        ("*", "!accept_*"),
    ),
    "tests/judge/test_copies.py::test_copy": Row(
        "Each goes through every test: here one that writes, one that remembers, one that shares."
        " What is drawn and what is left out have candidates of their own.",
        ("in_place", "running", "tied"),
    ),
    "tests/judge/test_corpus.py::test_corpus": Row(
        "Nearly all that are broken, of every class, and the honest twins of one in five: copies"
        " and styles go through every test.",
        (
            "*",
            "!*_honest",
            *(f"!{name}" for name in _LIKE_OTHERS.split()),
            *(f"{name}_honest" for name in _HONEST.split()),
        ),
    ),
    "tests/judge/test_forkserver.py::test_a_server_imports_ahead_when_it_is_idle": Row(
        "The compiler takes seconds to import; others stand for it.",
        ("*", "!the compiler"),
    ),
    "tests/judge/test_second.py::test_what_the_second_process_finds": Row(
        "A whole judgement; that both processes make tests, and all, is shown without."
    ),
    "tests/judge/test_second.py::test_wrong_everywhere_is_wrong_numerics": Row(
        "A whole judgement; that what plain calls showed is told is shown without."
    ),
    "tests/judge/test_memory.py::test_the_judge_holds_few_outputs": Row(
        "Half a minute of a processor, with large outputs; others of the file have small ones."
    ),
    "tests/judge/test_modules.py::test_the_rounding_of_results_in_float64_is_no_error": Row(
        "All tests of the judge take half a minute; numerics is the first that would be wrong.",
        ("numerics",),
    ),
    "tests/judge/test_task_kinds.py::test_a_fold_is_counted_apart": Row(
        "All tests of the judge, of a file that test_candidates.py judges; kinds are told there."
    ),
    "tests/judge/test_parts.py::test_truths_beyond_their_share_of_memory_are_made_again": Row(
        "Two whole judgements."
    ),
    "tests/judge/test_device_tools.py::test_sanitizer_errors_are_the_candidates_own": Row(
        "Five runs of a tool of GPUs, each with workers of its own."
    ),
    "tests/judge/test_stamps.py::test_it_is_told": Row(
        "Each stamp is one comparison of its own; those stay that no life tells.",
        ("keeps_the_last_input", "hushed_from_the_import_on"),
    ),
    "tests/judge/test_styles.py::test_style": Row(
        "Each goes through every test.", ("own_backward",)
    ),
}
