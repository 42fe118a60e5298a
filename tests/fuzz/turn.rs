//! Who may use the device now: the cases and queries that run at once, or one that makes it fail.
//!
//! ```text
//!  case, query        ─▶ beside() ─▶ any number of them at once
//!  case with a fault  ─▶ alone()  ─▶ waits for them, and they wait for it
//! ```
//!
//! The fault layer is one for the process, and so is the memory in use on the device. A case that
//! makes calls fail would meet others' joins, and would count their memory as what it left.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static DEVICE: RwLock<()> = RwLock::new(());

/// The right to use the device until it is dropped.
#[expect(dead_code, reason = "held, not read")]
pub enum Turn {
    Beside(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// Waits until nobody makes the device fail.
pub fn beside() -> Turn {
    Turn::Beside(DEVICE.read().unwrap_or_else(PoisonError::into_inner))
}

/// Waits until nobody uses the device.
pub fn alone() -> Turn {
    Turn::Alone(DEVICE.write().unwrap_or_else(PoisonError::into_inner))
}
