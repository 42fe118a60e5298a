//! Distinct MT19937 keys, some for tables and some that are in none.

use horton_tables::table::horton::MISS;
use rand_mt::Mt;

/// Distinct keys for the largest table, and others that are in none.
pub struct Keys {
    present: Vec<u32>,
    absent: Vec<u32>,
}

/// Keys to look up and the values to find; answer `i` is `values[i % values.len()]`.
pub struct Probe {
    pub keys: Vec<u32>,
    /// Distinct keys that are asked for again and again; `None` if none is in the table.
    pub present: Option<u32>,
}

impl Probe {
    /// Returns the right answer to key `i` in a table of keys to their positions.
    pub fn answer(&self, i: usize) -> u32 {
        self.present
            .map_or(MISS, |count| (i % count as usize) as u32)
    }
}

impl Keys {
    /// Draws `present` keys, and at least one other.
    pub fn draw(present: usize, absent: usize) -> Self {
        let mut random = Mt::new(5489);
        let mut seen = vec![0u64; 1 << 26];
        let mut draw = |count: usize| {
            let mut keys = Vec::with_capacity(count);
            while keys.len() < count {
                let key = random.next_u32();
                let (word, bit) = (&mut seen[key as usize / 64], 1u64 << (key % 64));
                if *word & bit == 0 {
                    *word |= bit;
                    keys.push(key);
                }
            }
            keys
        };
        Self {
            present: draw(present),
            absent: draw(absent.max(1)),
        }
    }

    /// Returns all keys of tables.
    #[allow(dead_code, reason = "programs that upload them once")]
    pub fn all(&self) -> &[u32] {
        &self.present
    }

    /// Returns all keys that are in none.
    #[allow(dead_code, reason = "programs that upload them once")]
    pub fn others(&self) -> &[u32] {
        &self.absent
    }

    /// Returns the first `count` keys.
    pub fn first(&self, count: usize) -> &[u32] {
        &self.present[..count]
    }

    /// Returns `n` keys of which all are among the first `count`; repeats stand `count` apart.
    pub fn hits(&self, count: usize, n: usize) -> Probe {
        Probe {
            keys: cycle(self.first(count), n),
            present: Some(count as u32),
        }
    }

    /// Returns `n` keys that are in no table.
    pub fn misses(&self, n: usize) -> Probe {
        Probe {
            keys: cycle(&self.absent, n),
            present: None,
        }
    }

    /// Returns each of the first `count` keys four times, a quarter of the rows apart.
    pub fn four_times(&self, count: usize) -> Vec<u32> {
        cycle(self.first(count), 4 * count)
    }

    /// Returns `rows` keys of which every `1 / share`-th is one hot key.
    pub fn with_hot_key(&self, rows: usize, share: f64) -> Vec<u32> {
        let mut keys = self.first(rows).to_vec();
        let hot = keys[0];
        let mut credit = 0.0;
        for key in &mut keys {
            credit += share;
            if credit >= 1.0 {
                credit -= 1.0;
                *key = hot;
            }
        }
        keys
    }
}

fn cycle(keys: &[u32], n: usize) -> Vec<u32> {
    keys.iter().cycle().take(n).copied().collect()
}
