//! What a join makes resident beside DataFusion's own: probe rows of 4 KB, dictionaries, explosions.
//!
//! Each measurement is a process of its own: what one join left with the allocator is not the next one's.

mod child;
mod pool;
mod probe;

use child::{POOL_BYTES, Query, measured};

/// Ours over stock's, at most.
const MOST: f64 = 1.5;

/// Bytes of floors, of device memory and of noise.
const SLACK: usize = 24 << 20;

/// Runs `query` in both ways and compares what became resident.
fn check(test: &str, query: Query) {
    let Some([stock, ours]) = measured(test, query) else {
        return;
    };
    println!("{query:?}: stock {stock:?}, ours {ours:?}");
    assert!(ours.launches > 0 && stock.launches == 0, "{ours:?}");
    assert_eq!(ours.answer, stock.answer);
    let about = format!("{ours:?}, but stock {stock:?}");
    assert!(ours.peak as f64 <= MOST * stock.peak as f64, "{about}");
    let explained = MOST * stock.resident as f64 + ours.reserved as f64;
    assert!(ours.resident as f64 <= explained + SLACK as f64, "{about}");
    assert!(ours.reserved <= POOL_BYTES / 2 + SLACK, "{about}");
}

#[test]
fn wide_probe_rows() {
    check("wide_probe_rows", Query::Wide);
}

#[test]
fn dictionaries_of_the_probe_side() {
    check("dictionaries_of_the_probe_side", Query::Dictionary);
}

#[test]
fn an_explosion_of_pairs() {
    check("an_explosion_of_pairs", Query::Explosion);
}
