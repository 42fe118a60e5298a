//! The Horton table in plain Rust over the same words as the device buffer: a test oracle.
//!
//! ```text
//!  insert x:  primary bucket has room ─▶ put
//!             holds a secondary item  ─▶ send its group away, put x there
//!             full of primaries       ─▶ Type A: convert, evict the last slot's item
//!                                        then remap x: its entry's bucket, else the
//!                                        emptiest of seven, else displace or swap
//! ```
//!
//! Horton paper, sections 5.1 to 5.3, item by item as the paper's serial insertion, with
//! displacement as a random walk over a work list. Nobody's join runs on it. Tables built here can
//! be looked up on the device, and the other way round; and [`check`](HortonModel::check) can say
//! what is wrong with either.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::table::primitives::bucket::{
    EMPTY_WORD, Layout, MAX_VALUE, TYPE_B, entry_at, is_type_b, is_wide, key_of, value_of,
    with_entry, word_of,
};
use crate::table::primitives::hash::{SECONDARY_FUNCTIONS, jenkins};

/// A Horton table in host memory.
#[derive(Debug, Clone)]
pub struct HortonModel {
    /// Shape and seed.
    pub layout: Layout,
    /// `layout.words()` words, bucket after bucket.
    pub words: Vec<u64>,
    /// True if the item is there whose word is that of an empty slot; it stands in no bucket.
    pub sentinel: bool,
}

/// The filling of a table, counted from its words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Type B buckets.
    pub type_b: u32,
    /// Number of items.
    pub items: u32,
    /// Items outside their primary bucket.
    pub secondary: u32,
}

/// The ease with which an item gets a slot, hardest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ease {
    /// The item in it is primary, and the bucket must turn Type B to let it go.
    Convert,
    /// The item in it is primary in a Type B bucket.
    Primary,
    /// Others of the group of the item in it must go with that one.
    Group,
    /// The item in it is the only one of its group.
    Alone,
    /// And another of that item's candidates has a free slot.
    CanMoveOn,
    /// It holds no item.
    Free,
}

/// One attempt of an item to get a slot.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    random: u32,
    /// True if few others wait, who may be those that it displaced.
    late: bool,
}

/// Items waiting for a slot below which an attempt is late.
const LATE_ITEMS: usize = 32;

/// A slot that an item may take.
#[derive(Debug, Clone, Copy)]
struct Place {
    ease: Ease,
    /// Free slots of its bucket.
    room: usize,
    /// The remap entry that leads there.
    entry: u32,
    /// Index of a word.
    at: usize,
}

impl Place {
    fn is_easy(self) -> bool {
        self.ease >= Ease::CanMoveOn
    }
}

impl HortonModel {
    /// Returns a table without items.
    pub fn empty(layout: Layout) -> Self {
        let words = vec![EMPTY_WORD; layout.words()];
        Self {
            layout,
            words,
            sentinel: false,
        }
    }

    /// Returns a table of distinct `items` (key, value), or how many of them found no slot within
    /// 1,000 displacements per item.
    ///
    /// # Errors
    /// The number of items without a slot.
    pub fn build(layout: Layout, items: &[(u32, u32)]) -> Result<Self, usize> {
        let mut model = Self::empty(layout);
        let words = items.iter().map(|&(k, v)| word_of(k, v));
        // Primary items first, so that no remapped one has to make room for them.
        let mut waiting: VecDeque<u64> = words.filter(|&word| !model.put_home(word)).collect();
        let mut steps = 1000 * items.len() + 1000;
        // Who was displaced waits until the others have tried: two items that want the same slot
        // would take it from each other for long.
        while let Some(word) = waiting.pop_front() {
            if steps == 0 {
                return Err(waiting.len() + 1);
            }
            steps -= 1;
            let attempt = Attempt {
                random: jenkins(steps as u32 ^ key_of(word)),
                late: waiting.len() < LATE_ITEMS,
            };
            waiting.extend(model.insert(word, attempt));
        }
        Ok(model)
    }

    /// Puts an item into a free slot of its primary bucket; returns whether there was one.
    fn put_home(&mut self, word: u64) -> bool {
        let free = self.free_slot(self.layout.primary_bucket(key_of(word)));
        if let Some(at) = free {
            self.words[at] = word;
        }
        free.is_some()
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
        let b = self.layout.primary_bucket(key);
        if let Some(value) = self.find_in_bucket(b, key) {
            return (Some(value), 1);
        }
        match self.remapped_to(b, self.layout.tag_of(key)) {
            Some(w) => (self.find_in_bucket(w, key), 2),
            None => (None, 1),
        }
    }

    /// Returns whether there are values beyond [`MAX_VALUE`].
    pub fn is_wide(&self) -> bool {
        let mut items = (0..self.layout.buckets).flat_map(|b| self.items(b));
        items.any(|word| value_of(word) > MAX_VALUE)
    }

    /// Counts Type B buckets, items in buckets and secondary items.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for b in 0..self.layout.buckets {
            census.type_b += u32::from(is_type_b(self.last(b)));
            for word in self.items(b) {
                census.items += 1;
                census.secondary += u32::from(self.layout.primary_bucket(key_of(word)) != b);
            }
        }
        census
    }

    /// Checks every invariant of a table whose items are all placed.
    ///
    /// # Errors
    /// The first violation: a key twice, an item that no lookup would find, or a remap entry that
    /// nothing needs.
    pub fn check(&self) -> Result<(), String> {
        let mut keys = HashSet::new();
        let mut needed: HashMap<(u32, u32), u32> = HashMap::new();
        for b in 0..self.layout.buckets {
            for word in self.items(b) {
                let key = key_of(word);
                if !keys.insert(key) {
                    return Err(format!("key {key} is in the table twice"));
                }
                let home = self.layout.primary_bucket(key);
                if home == b {
                    continue;
                }
                let tag = self.layout.tag_of(key);
                if self.remapped_to(home, tag) != Some(b) {
                    return Err(format!(
                        "key {key} is in bucket {b}, but entry {tag} of {home} does not lead there"
                    ));
                }
                needed.insert((home, tag), b);
            }
        }
        self.check_entries(&needed)
    }

    fn check_entries(&self, needed: &HashMap<(u32, u32), u32>) -> Result<(), String> {
        for b in 0..self.layout.buckets {
            for tag in 0..crate::table::primitives::hash::TAGS {
                if let Some(w) = self.remapped_to(b, tag)
                    && needed.get(&(b, tag)) != Some(&w)
                {
                    return Err(format!(
                        "entry {tag} of bucket {b} leads to bucket {w}, which holds nothing of it"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that no item is remapped for which there is room at home, and that every Type B
    /// bucket needs its entries: what a repatriation leaves.
    ///
    /// # Errors
    /// The first bucket of which that is not so.
    pub fn check_upkeep(&self) -> Result<(), String> {
        let mut remapped: HashMap<u32, Vec<u64>> = HashMap::new();
        for b in 0..self.layout.buckets {
            for word in self.items(b) {
                let home = self.layout.primary_bucket(key_of(word));
                if home != b {
                    remapped.entry(home).or_default().push(word);
                }
            }
        }
        for b in (0..self.layout.buckets).filter(|&b| is_type_b(self.last(b))) {
            let away = remapped.get(&b).map_or(&[][..], Vec::as_slice);
            if away.is_empty() || self.free_slot(b).is_some() {
                return Err(format!(
                    "bucket {b} has free slots and {} items away",
                    away.len()
                ));
            }
            let mut own = self
                .items(b)
                .filter(|&word| !is_wide(word) && self.layout.primary_bucket(key_of(word)) == b);
            if let [word] = away
                && (!is_wide(*word) || own.next().is_some())
            {
                return Err(format!("bucket {b} is Type B for one item"));
            }
        }
        Ok(())
    }

    fn base(&self, bucket: u32) -> usize {
        bucket as usize * self.layout.slots()
    }

    fn last(&self, bucket: u32) -> u64 {
        self.words[self.base(bucket) + self.layout.slots() - 1]
    }

    fn set_last(&mut self, bucket: u32, last: u64) {
        let at = self.base(bucket) + self.layout.slots() - 1;
        self.words[at] = last;
    }

    /// Returns the word indices of the slots of `bucket` that may hold items.
    fn slots(&self, bucket: u32) -> std::ops::Range<usize> {
        let base = self.base(bucket);
        base..base + self.layout.slots() - usize::from(is_type_b(self.last(bucket)))
    }

    fn items(&self, bucket: u32) -> impl Iterator<Item = u64> + '_ {
        self.words[self.slots(bucket)]
            .iter()
            .copied()
            .filter(|word| *word != EMPTY_WORD)
    }

    fn find_in_bucket(&self, bucket: u32, key: u32) -> Option<u32> {
        self.items(bucket)
            .find(|word| key_of(*word) == key)
            .map(value_of)
    }

    /// Returns the secondary bucket that the remap entry of (`bucket`, `tag`) names, if it is set.
    fn remapped_to(&self, bucket: u32, tag: u32) -> Option<u32> {
        let last = self.last(bucket);
        let entry = if is_type_b(last) {
            entry_at(last, tag)
        } else {
            0
        };
        (entry != 0).then(|| self.layout.secondary_bucket(bucket, tag, entry))
    }

    fn free_slot(&self, bucket: u32) -> Option<usize> {
        self.slots(bucket).find(|&at| self.words[at] == EMPTY_WORD)
    }

    /// Inserts one item; returns those that lost their slots to it.
    fn insert(&mut self, word: u64, attempt: Attempt) -> Vec<u64> {
        let b = self.layout.primary_bucket(key_of(word));
        if let Some(at) = self.free_slot(b) {
            self.words[at] = word;
            return Vec::new();
        }
        let guest = self
            .slots(b)
            .find(|&at| self.layout.primary_bucket(key_of(self.words[at])) != b);
        // Not always into a Type B bucket: a guest that came as a last resort would put the item
        // out again.
        let may_return = !is_type_b(self.last(b)) || attempt.random & 1 == 0;
        if let Some(at) = guest.filter(|_| may_return) {
            let displaced = self.send_away(b, self.group_of(self.words[at]));
            self.words[at] = word;
            return displaced;
        }
        let mut waiting = self.convert(b);
        waiting.extend(self.remap(b, word, attempt));
        waiting
    }

    /// Turns a full Type A bucket into Type B; returns the item of its last slot.
    fn convert(&mut self, bucket: u32) -> Vec<u64> {
        let last = self.last(bucket);
        if is_type_b(last) {
            return Vec::new();
        }
        self.set_last(bucket, TYPE_B);
        vec![last]
    }

    /// Gives an item that overflows bucket `b` a slot elsewhere; returns those displaced.
    fn remap(&mut self, b: u32, word: u64, attempt: Attempt) -> Vec<u64> {
        let tag = self.layout.tag_of(key_of(word));
        let random = attempt.random;
        let bound_by = entry_at(self.last(b), tag);
        let mut displaced = Vec::new();
        let mut found = self.find_slot(
            (b, tag),
            |entry| bound_by == 0 || entry == bound_by,
            attempt,
        );
        if bound_by != 0 && !found.is_some_and(Place::is_easy) && random >> 13 & 1 == 1 {
            found = self.find_slot((b, tag), |entry| entry != bound_by, attempt);
            if found.is_some() {
                let old = self.layout.secondary_bucket(b, tag, bound_by);
                displaced = self.send_away(old, (b, tag));
            }
        }
        match found {
            Some(place) if place.is_easy() || random >> 14 & 1 == 0 => {
                displaced.extend(self.make_room(b, tag, place));
                self.words[place.at] = word;
                self.set_last(b, with_entry(self.last(b), tag, place.entry));
            }
            _ => {
                let at = self.base(b) + (random >> 16) as usize % (self.layout.slots() - 1);
                let out = self.words[at];
                match self.group_of(out) {
                    (home, _) if home == b => displaced.push(out),
                    guests => displaced.extend(self.send_away(b, guests)),
                }
                self.words[at] = word;
            }
        }
        displaced
    }

    /// Empties the slot at `place`, where an item of group (`b`, `tag`) goes; returns those
    /// displaced.
    fn make_room(&mut self, b: u32, tag: u32, place: Place) -> Vec<u64> {
        let w = self.layout.secondary_bucket(b, tag, place.entry);
        let word = self.words[place.at];
        match place.ease {
            Ease::Free => Vec::new(),
            Ease::Convert | Ease::Primary => {
                let mut displaced = self.convert(w);
                let guests = displaced.first().map(|last| self.group_of(*last));
                if let Some(group) = guests
                    && group.0 != w
                    && group != (b, tag)
                {
                    displaced.extend(self.send_away(w, group));
                }
                displaced.push(word);
                displaced
            }
            _ => self.send_away(w, self.group_of(word)),
        }
    }

    /// Returns whether a primary item of `w` could be put out of word `at`: a last resort, as the
    /// paper never lets a secondary item do so; but some groups lead only to buckets full of
    /// primary ones.
    fn ease_of_primary(&self, w: u32, at: usize) -> Option<Ease> {
        let last = self.last(w);
        if is_type_b(last) {
            return Some(Ease::Primary);
        }
        let is_last = at == self.base(w) + self.layout.slots() - 1;
        (!is_last && last != EMPTY_WORD).then_some(Ease::Convert)
    }

    /// Returns the slot that is easiest to get in the buckets of the allowed entries; among free
    /// ones, in the emptiest bucket.
    fn find_slot(
        &self,
        group: (u32, u32),
        allowed: impl Fn(u32) -> bool,
        attempt: Attempt,
    ) -> Option<Place> {
        // Two items that each take the other's slot, as the easiest to get, would do so for ever.
        let gives_way = |ease| {
            attempt.late
                && attempt.random >> 15 & 1 == 0
                && ease <= Ease::Alone
                && ease >= Ease::Group
        };
        (0..SECONDARY_FUNCTIONS)
            .map(|i| (attempt.random % 7 + i) % 7 + 1)
            .filter(|&entry| allowed(entry))
            .map(|entry| (entry, self.layout.secondary_bucket(group.0, group.1, entry)))
            .filter(|&(_, w)| w != group.0)
            .flat_map(|(entry, w)| {
                let room = self.slots(w).len() - self.items(w).count();
                self.slots(w).filter_map(move |at| {
                    let ease = self.ease(w, at, group).filter(|ease| !gives_way(*ease))?;
                    Some(Place {
                        ease,
                        room,
                        entry,
                        at,
                    })
                })
            })
            .max_by_key(|place| (place.ease, place.room))
    }

    /// Returns how easily an item of `group` gets the slot at word `at` of bucket `w`.
    fn ease(&self, w: u32, at: usize, group: (u32, u32)) -> Option<Ease> {
        if self.words[at] == EMPTY_WORD {
            return Some(Ease::Free);
        }
        let (home, tag) = self.group_of(self.words[at]);
        if home == w {
            return self.ease_of_primary(w, at);
        }
        if (home, tag) == group {
            return None;
        }
        let size = self
            .items(w)
            .filter(|&word| self.group_of(word) == (home, tag))
            .count();
        let can_move_on = (1..=SECONDARY_FUNCTIONS).any(|entry| {
            let other = self.layout.secondary_bucket(home, tag, entry);
            other != w && other != home && self.free_slot(other).is_some()
        });
        Some(match (size, can_move_on) {
            (1, true) => Ease::CanMoveOn,
            (1, false) => Ease::Alone,
            _ => Ease::Group,
        })
    }

    /// Returns the primary bucket and tag of an item.
    fn group_of(&self, word: u64) -> (u32, u32) {
        let key = key_of(word);
        (self.layout.primary_bucket(key), self.layout.tag_of(key))
    }

    /// Empties the slots of group (`home`, `tag`) in bucket `w`, and clears its entry.
    fn send_away(&mut self, w: u32, (home, tag): (u32, u32)) -> Vec<u64> {
        let mut sent = Vec::new();
        for i in self.slots(w) {
            let word = self.words[i];
            if word != EMPTY_WORD && self.group_of(word) == (home, tag) {
                sent.push(std::mem::replace(&mut self.words[i], EMPTY_WORD));
            }
        }
        self.set_last(home, with_entry(self.last(home), tag, 0));
        sent
    }
}
