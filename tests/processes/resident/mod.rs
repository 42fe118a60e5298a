//! The memory that a join makes resident beside DataFusion's own: probe rows of 4 KB, dictionaries,
//! explosions.
//!
//! Each measurement is a process of its own: what one join left with the allocator is not the next
//! one's.

mod child;
mod pool;
mod probe;

use child::{Measured, Query, measured};

/// Ours over stock's, at most.
const MOST: f64 = 1.5;

/// Bytes of floors, of device memory and of noise.
const SLACK: usize = 24 << 20;

/// Runs `query` in both ways and compares what became resident; `None` in a child.
fn check(test: &str, query: Query) -> Option<Measured> {
    let [stock, ours] = measured(test, query)?;
    println!("{query:?}: stock {stock:?}, ours {ours:?}");
    assert!(ours.launches > 0 && stock.launches == 0, "{ours:?}");
    assert_eq!(ours.answer, stock.answer);
    let about = format!("{ours:?}, but stock {stock:?}");
    assert!(ours.peak as f64 <= MOST * stock.peak as f64, "{about}");
    let explained = MOST * stock.resident as f64 + ours.reserved as f64;
    assert!(ours.resident as f64 <= explained + SLACK as f64, "{about}");
    assert!(ours.reserved <= query.pool_bytes() / 2 + SLACK, "{about}");
    Some(ours)
}

#[test]
fn wide_probe_rows() {
    check("wide_probe_rows", Query::Wide);
}

#[test]
fn wide_probe_rows_of_many_partitions() {
    check("wide_probe_rows_of_many_partitions", Query::Streams);
}

#[test]
fn dictionaries_of_many_build_batches() {
    check("dictionaries_of_many_build_batches", Query::Batches);
}

#[test]
fn dictionaries_of_the_probe_side() {
    check("dictionaries_of_the_probe_side", Query::Dictionary);
}

#[test]
fn an_explosion_of_pairs() {
    check("an_explosion_of_pairs", Query::Explosion);
}

/// Bytes that a join made resident beyond what it had reserved; below zero if it reserved more.
fn unasked(test: &str, query: Query) -> Option<isize> {
    let [stock, ours] = measured(test, query)?;
    println!("{query:?}: stock {stock:?}, ours {ours:?}");
    assert!(ours.launches > 0, "{ours:?}");
    assert_eq!(ours.answer, stock.answer);
    let unasked = ours.resident as isize - ours.reserved as isize;
    assert!(unasked <= SLACK as isize, "{ours:?}");
    Some(unasked)
}

#[test]
fn what_a_short_build_takes_beyond_its_reservations() {
    unasked(
        "what_a_short_build_takes_beyond_its_reservations",
        Query::Build,
    );
}

/// The host's table is reserved until the device's is there, so this finds 60 bytes per row.
#[test]
fn what_a_build_takes_beyond_its_reservations_does_not_grow_with_its_rows() {
    let long = "what_a_build_takes_beyond_its_reservations_does_not_grow_with_its_rows";
    let short = "what_a_short_build_takes_beyond_its_reservations";
    let Some(of_long) = unasked(long, Query::LongBuild) else {
        return;
    };
    let of_short = unasked(short, Query::Build).unwrap_or_default();
    assert!(
        of_long <= of_short + SLACK as isize,
        "{of_short}, then {of_long}"
    );
}
