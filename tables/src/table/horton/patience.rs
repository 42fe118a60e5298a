//! The patience of displacement: when it gives up, for all tables that displace items in rounds.
//!
//! ```text
//!  items left   900 ▶ 210 ▶ 41 ▶ 7 ▶ 2 ▶ 1 ▶ 1 ▶ 1 ▶ … ▶ 0
//!                └ more than FEW_ITEMS: 32 rounds without progress end it
//!                                └ at most FEW_ITEMS: 300 do
//! ```
//!
//! The last few wander through the table until one finds a free slot, and their rounds cost next to
//! nothing beside another attempt. (131,072 Horton buckets of 4 slots at load 0.91, one bad seed of
//! 200: one build in twelve had wandered for 32 rounds.)

/// Rounds before an attempt counts as failed.
pub(crate) const ROUNDS: u32 = 800;

/// Rounds without progress after which an attempt counts as failed.
const STALLED_ROUNDS: u32 = 32;

/// The same while only a [`FEW_ITEMS`] are left.
const PATIENT_ROUNDS: u32 = 300;

/// Items that are few.
const FEW_ITEMS: usize = 64;

/// The fewest items that were left after any round, and after which.
pub(crate) struct Patience {
    fewest: usize,
    since: u32,
}

impl Patience {
    /// Returns the patience before the first round.
    pub fn new(left: usize) -> Self {
        Self {
            fewest: left,
            since: 0,
        }
    }

    /// Returns whether to give up after a round that leaves so many items.
    pub fn ends(&mut self, round: u32, left: usize) -> bool {
        if left < self.fewest {
            (self.fewest, self.since) = (left, round);
        }
        let patience = match left {
            0..=FEW_ITEMS => PATIENT_ROUNDS,
            _ => STALLED_ROUNDS,
        };
        round - self.since > patience
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW_ITEMS, PATIENT_ROUNDS, Patience, STALLED_ROUNDS};

    /// Returns the round after which `left` items, as many as before the first, are given up.
    fn given_up(left: usize) -> Option<u32> {
        let mut patience = Patience::new(left);
        (0..2 * PATIENT_ROUNDS).find(|round| patience.ends(*round, left))
    }

    #[test]
    fn few_items_have_more_time_than_many() {
        assert_eq!(given_up(FEW_ITEMS), Some(PATIENT_ROUNDS + 1));
        assert_eq!(given_up(FEW_ITEMS + 1), Some(STALLED_ROUNDS + 1));
    }

    #[test]
    fn progress_gives_new_time() {
        let mut patience = Patience::new(1000);
        assert!((0..500).all(|round| !patience.ends(round, 999 - round as usize)));
    }
}
