//! Tests that measure the device's memory run alone, the others side by side.
//!
//! ```text
//!  test A   side_by_side() ├──────────────────────┤
//!  test B   side_by_side()    ├───────────┤
//!  test C   alone()           · · · · · · · · · · ·├───────┤
//! ```
//!
//! A test's turn lasts until its thread ends, so what it leaves on the device counts as its own.
//! The test harness gives every test a thread. With one thread for all, nobody is there to meet.

use std::cell::RefCell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static QUIET: RwLock<()> = RwLock::new(());

/// The way in which this thread's test runs.
enum Turn {
    None,
    SideBySide(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held, not read")] RwLockWriteGuard<'static, ()>),
}

thread_local! {
    static TURN: RefCell<Turn> = const { RefCell::new(Turn::None) };
}

/// Lets no test that runs [`alone`] meet this thread's.
///
/// Call it on the test's own thread: one that the test waits for must not wait for a turn.
pub fn side_by_side() {
    TURN.with_borrow_mut(|turn| {
        if matches!(turn, Turn::None) {
            *turn = Turn::SideBySide(QUIET.read().unwrap_or_else(PoisonError::into_inner));
        }
    });
}

/// Waits until no other test runs, and lets none begin as long as the guard lives.
#[must_use]
pub fn alone() -> Alone {
    TURN.with_borrow_mut(|turn| {
        assert!(!matches!(turn, Turn::Alone(_)), "it is alone");
        // Its own turn beside others would keep it waiting.
        *turn = Turn::None;
        *turn = Turn::Alone(QUIET.write().unwrap_or_else(PoisonError::into_inner));
    });
    Alone(())
}

/// No other test runs.
#[derive(Debug)]
pub struct Alone(());

impl Drop for Alone {
    fn drop(&mut self) {
        TURN.set(Turn::None);
    }
}
