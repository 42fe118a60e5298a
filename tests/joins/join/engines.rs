//! Every key type and shape over each engine by name: a Horton table, a direct table, a cache-line
//! table.
//!
//! ```text
//!  key_types, shapes ─▶ by themselves: the engine that suits device and keys
//!                    └▶ from here: each engine that the device can have ─▶ its tables were built
//! ```
//!
//! The other files run with the defaults of the device. On a CPU these are a Horton table for few
//! keys, a direct or a cache-line table for many. `tables.rs` compares the engines with each other.

use horton_join::table::multimap::IndexKind;
use horton_test_support::joins::with_engine;

use super::{key_types, shapes};

/// All key types.
fn key_types_over(engine: IndexKind) {
    with_engine(engine, || {
        key_types::integers_of_every_width_join();
        key_types::integers_too_far_apart_for_exact_normalized_keys_join();
        key_types::booleans_join();
        key_types::dates_times_timestamps_and_durations_join();
        key_types::timestamps_of_different_zones_join_as_instants();
        key_types::intervals_join();
        key_types::decimals_of_every_width_join();
        key_types::decimals_of_different_precision_join();
        key_types::floats_join_minus_zero_with_zero_and_nan_with_the_same_nan();
        key_types::minus_zero_inside_a_struct_is_what_the_stock_join_says();
        key_types::strings_of_every_layout_join();
        key_types::binaries_of_every_layout_join();
        key_types::dictionaries_join_by_value_and_a_null_value_is_null();
        key_types::dictionaries_of_integers_and_of_every_index_width_join();
        key_types::lists_of_every_layout_join();
        key_types::structs_join_field_by_field();
        key_types::maps_join_entry_by_entry();
        key_types::keys_of_the_null_type_match_only_where_nulls_do();
        key_types::a_side_of_nulls_alone_meets_the_nulls_of_the_other();
        key_types::a_null_in_one_of_two_columns_is_compared_with_that_column_alone();
        key_types::several_key_columns_join_on_all_of_them();
        key_types::eight_key_columns_of_mixed_types_join();
        key_types::key_expressions_join_by_their_values();
        key_types::partitioned_joins_fit_their_normalized_keys_to_each_partition();
    });
}

/// Sizes, orders, projections, limits.
fn shapes_over(engine: IndexKind) {
    with_engine(engine, || {
        shapes::empty_sides_join_as_the_stock_join_does();
        shapes::sides_without_any_batch_join_as_the_stock_join_does();
        shapes::one_row_joins_one_row();
        shapes::build_sides_of_many_small_batches_keep_their_rows_apart();
        shapes::output_batches_have_the_rows_they_should();
        shapes::probe_sides_around_chunk_boundaries_lose_no_row();
        shapes::probe_sides_around_the_boundaries_of_large_chunks_lose_no_row();
        shapes::batches_without_a_row_to_look_up_stand_between_others();
        shapes::a_sorted_probe_side_stays_sorted_and_matches_come_in_build_order();
        shapes::matches_of_one_probe_row_come_in_build_order_with_hashed_keys_too();
        shapes::embedded_projections_pick_reorder_and_repeat_columns();
        shapes::an_empty_projection_yields_row_counts_without_columns();
        shapes::fetch_returns_so_many_rows_and_they_are_the_first();
        shapes::fetch_of_nothing_returns_nothing();
        shapes::sliced_batches_with_offsets_join_by_their_own_rows();
        shapes::strings_whose_normalized_keys_collide_match_only_their_equals();
    });
}

#[test]
fn every_key_type_joins_over_horton_tables() {
    key_types_over(IndexKind::Horton);
}

#[test]
fn every_shape_joins_over_horton_tables() {
    shapes_over(IndexKind::Horton);
}

#[test]
fn every_key_type_joins_over_direct_tables() {
    key_types_over(IndexKind::Direct);
}

#[test]
fn every_shape_joins_over_direct_tables() {
    shapes_over(IndexKind::Direct);
}

#[test]
fn every_key_type_joins_over_tables_of_codes() {
    key_types_over(IndexKind::CacheLine);
}

#[test]
fn every_shape_joins_over_tables_of_codes() {
    shapes_over(IndexKind::CacheLine);
}
