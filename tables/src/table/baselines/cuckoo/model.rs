//! The cuckoo table in plain Rust over the same words as the device buffer: a test oracle.
//!
//! Serial insertion with the breadth-first search for the shortest chain of moves (Horton paper,
//! section 3.3), item by item. [`check`](CuckooModel::check) says what is wrong with a table,
//! wherever it was built.

use std::collections::{HashSet, VecDeque};

use crate::table::horton::model::Census;
use crate::table::primitives::bucket::{EMPTY_WORD, Layout, MAX_VALUE, key_of, value_of, word_of};
use crate::table::primitives::hash;

use super::config::Placement;

/// Buckets that a search looks at before it gives up.
const NODES: usize = 4096;

/// A cuckoo table in host memory.
#[derive(Debug, Clone)]
pub struct CuckooModel {
    /// Shape and seed.
    pub layout: Layout,
    /// `layout.words()` words, bucket after bucket.
    pub words: Vec<u64>,
    /// True if the item is there whose word is that of an empty slot; it stands in no bucket.
    pub sentinel: bool,
}

/// A bucket that a search has reached: from which node, and from which word, whose item leads
/// there.
#[derive(Debug, Clone, Copy)]
struct Node {
    bucket: u32,
    before: Option<(usize, usize)>,
}

impl CuckooModel {
    /// Returns a table of distinct `items` (key, value), or how many of them were left when one
    /// found no slot.
    ///
    /// # Errors
    /// The number of items without a slot.
    pub fn build(
        layout: Layout,
        placement: Placement,
        items: &[(u32, u32)],
    ) -> Result<Self, usize> {
        let mut model = Self {
            layout,
            words: vec![EMPTY_WORD; layout.words()],
            sentinel: false,
        };
        for (i, &(key, value)) in items.iter().enumerate() {
            if !model.insert(word_of(key, value), placement) {
                return Err(items.len() - i);
            }
        }
        Ok(model)
    }

    /// Returns the value of `key`.
    pub fn lookup(&self, key: u32) -> Option<u32> {
        self.lookup_counted(key).0
    }

    /// Returns the value of `key`, and how many buckets were read for it (1 or 2).
    pub fn lookup_counted(&self, key: u32) -> (Option<u32>, u32) {
        if self.sentinel && key == key_of(EMPTY_WORD) {
            return (Some(value_of(EMPTY_WORD)), 1);
        }
        let [first, second] = self.buckets_of(key);
        match self.find_in_bucket(first, key) {
            Some(value) => (Some(value), 1),
            None => (self.find_in_bucket(second, key), 2),
        }
    }

    /// Counts items in buckets, and those outside their first one.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for b in 0..self.layout.buckets {
            for word in self.items(b) {
                census.items += 1;
                census.secondary += u32::from(self.layout.primary_bucket(key_of(word)) != b);
            }
        }
        census
    }

    /// Returns whether there are values beyond [`MAX_VALUE`].
    pub fn is_wide(&self) -> bool {
        let mut items = (0..self.layout.buckets).flat_map(|b| self.items(b));
        items.any(|word| value_of(word) > MAX_VALUE)
    }

    /// Checks that every key is there once, in one of its two buckets.
    ///
    /// # Errors
    /// The first key of which that is not so.
    pub fn check(&self) -> Result<(), String> {
        let mut keys = HashSet::new();
        for b in 0..self.layout.buckets {
            for key in self.items(b).map(key_of) {
                if !keys.insert(key) {
                    return Err(format!("key {key} is in the table twice"));
                }
                if !self.buckets_of(key).contains(&b) {
                    return Err(format!(
                        "key {key} is in bucket {b}, which is not one of its two"
                    ));
                }
            }
        }
        if self.sentinel && keys.contains(&key_of(EMPTY_WORD)) {
            Err("the key of an empty slot's word is in the table twice".to_owned())
        } else {
            Ok(())
        }
    }

    fn buckets_of(&self, key: u32) -> [u32; 2] {
        let second = hash::second_hash(key, self.layout.seed);
        [
            self.layout.primary_bucket(key),
            self.layout.reduction.reduce(second, self.layout.buckets),
        ]
    }

    fn slots(&self, bucket: u32) -> std::ops::Range<usize> {
        let base = bucket as usize * self.layout.slots();
        base..base + self.layout.slots()
    }

    fn items(&self, bucket: u32) -> impl Iterator<Item = u64> + '_ {
        let words = self.words[self.slots(bucket)].iter().copied();
        words.filter(|word| *word != EMPTY_WORD)
    }

    fn find_in_bucket(&self, bucket: u32, key: u32) -> Option<u32> {
        let found = self.items(bucket).find(|word| key_of(*word) == key);
        found.map(value_of)
    }

    fn free_slot(&self, bucket: u32) -> Option<usize> {
        self.slots(bucket).find(|&at| self.words[at] == EMPTY_WORD)
    }

    /// Inserts one item; returns whether there was a slot for it.
    fn insert(&mut self, word: u64, placement: Placement) -> bool {
        let mut roots = self.buckets_of(key_of(word));
        let [first, second] = roots.map(|b| self.items(b).count());
        let prefers_second =
            first > second || (first == second && hash::jenkins(key_of(word)) & 1 == 1);
        if placement == Placement::LoadBalanced && prefers_second {
            roots.reverse();
        }
        let Some((path, free)) = self.search(roots) else {
            return false;
        };
        let mut to = free;
        for from in path {
            self.words[to] = self.words[from];
            to = from;
        }
        self.words[to] = word;
        true
    }

    /// Returns the words whose items move, last one first, and the free slot that the last one
    /// moves to.
    fn search(&self, roots: [u32; 2]) -> Option<(Vec<usize>, usize)> {
        let mut nodes: Vec<Node> = Vec::new();
        let root = |bucket| Node {
            bucket,
            before: None,
        };
        let mut queue: VecDeque<Node> = roots.into_iter().map(root).collect();
        while let Some(node) = queue.pop_front() {
            if let Some(free) = self.free_slot(node.bucket) {
                let mut path = Vec::new();
                let mut before = node.before;
                while let Some((index, at)) = before {
                    path.push(at);
                    before = nodes[index].before;
                }
                return Some((path, free));
            }
            nodes.push(node);
            if nodes.len() + queue.len() > NODES {
                continue;
            }
            for at in self.slots(node.bucket) {
                let others = self.buckets_of(key_of(self.words[at]));
                if let Some(&bucket) = others.iter().find(|&&b| b != node.bucket) {
                    let before = Some((nodes.len() - 1, at));
                    queue.push_back(Node { bucket, before });
                }
            }
        }
        None
    }
}
