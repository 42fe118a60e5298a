//! Looks for races: accesses to the same bytes, by two work-items, that nothing orders.
//!
//! ```text
//!  memory   | word       | word       | …       a word: 4 bytes, or as few as the program moves
//!  cells    | r  w  a  u | r  w  a  u | …       reads, writes, atomic reads, updates: a mark each
//!  a mark     interval, work-item, instruction: the last access; and whether others made one too
//!
//!  group 0  ──── 1 ────▶ barrier ──── 3 ────▶ end       intervals, each with a number of its own
//!  group 1  ──── 2 ──────────────▶ barrier ── 4 ─▶
//! ```
//!
//! Two accesses race if at least one of them writes, at least one is not atomic, and nothing orders
//! them: they are of two groups, or of two work-items in one interval of a group. Atomics order
//! nothing, as those of OpenCL 1.2 do not. Lanes of a wave are work-items like others, though a
//! wave runs in step. Writes of equal values race as well: the language allows none.
//!
//! Some races are not seen. Each barrier orders both kinds of memory, whichever it names. And where
//! a group is one wave, LLVM leaves out its barriers: it counts as one work-item. A cell keeps all
//! that a later access can race with, but only the last of many is told.
//!
//! Source: C. Flanagan, S. Freund, "FastTrack: Efficient and Precise Dynamic Race Detection" (PLDI
//! 2009). Its clocks have an entry for each thread. Barriers alone need one number.

mod access;

use std::collections::HashSet;

pub use self::access::{Access, Kind};
use crate::functions::Touch;

/// Cells that are made at a time, when the first of them is touched.
const PAGE: usize = 256;

/// The most races that are kept of a launch.
const FOUND_MAX: usize = 8;

/// Whether others, whom nothing orders with the last one, accessed a word in the same way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Others {
    #[default]
    Nobody,
    /// Work-items of its group in the same interval.
    OfGroup,
    OfOtherGroups,
}

/// An access, the last of its kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    /// Not 0, unless there is no access.
    pub interval: u32,
    /// The work-item's number in the launch.
    pub item: u32,
    /// The offset of the instruction.
    pub place: u32,
    others: Others,
}

impl Mark {
    pub(crate) fn new(interval: u32, item: u32, place: u32) -> Self {
        let others = Others::Nobody;
        Self {
            interval,
            item,
            place,
            others,
        }
    }

    /// Returns who of this mark is not ordered with an access that comes now.
    fn beside(&self, now: &Mark, group_size: u32) -> Others {
        let is_other_group = self.item / group_size != now.item / group_size;
        let is_other_item = self.item != now.item || self.others == Others::OfGroup;
        match self.others {
            _ if self.interval == 0 => Others::Nobody,
            Others::OfOtherGroups => Others::OfOtherGroups,
            _ if is_other_group => Others::OfOtherGroups,
            _ if self.interval == now.interval && is_other_item => Others::OfGroup,
            _ => Others::Nobody,
        }
    }
}

/// The marks of a word, by kind.
type Cell = [Mark; 4];

/// Returns the kinds of accesses that race with one of this kind, if nothing orders them.
fn rivals(kind: Kind) -> &'static [Kind] {
    match kind {
        Kind::Read => &[Kind::Write, Kind::Update],
        Kind::Write => &[Kind::Write, Kind::Read, Kind::AtomicRead, Kind::Update],
        Kind::AtomicRead => &[Kind::Write],
        Kind::Update => &[Kind::Write, Kind::Read],
    }
}

/// The cells of a buffer, or of a group's local memory.
struct Shadow {
    from: u64,
    to: u64,
    /// Which of the launch's buffers it is.
    buffer: Option<usize>,
    /// Empty until one of their words is touched.
    pages: Vec<Vec<Cell>>,
}

impl Shadow {
    fn new((from, to): (u64, u64), buffer: Option<usize>, word: u64) -> Self {
        let pages = (to - from).div_ceil(word).div_ceil(PAGE as u64);
        Self {
            from,
            to,
            buffer,
            pages: vec![Vec::new(); pages as usize],
        }
    }

    fn has(&self, address: u64) -> bool {
        (self.from..self.to).contains(&address)
    }

    /// Returns a cell, if there is one.
    fn cell(&mut self, index: u64) -> Option<&mut Cell> {
        let page = self.pages.get_mut(index as usize / PAGE)?;
        if page.is_empty() {
            page.resize(PAGE, Cell::default());
        }
        page.get_mut(index as usize % PAGE)
    }

    fn forget(&mut self) {
        let pages = self.pages.iter_mut();
        pages.for_each(|page| page.fill(Cell::default()));
    }
}

/// A race.
pub(crate) struct Race {
    /// The first byte of the word, from the start of its buffer, or of local memory if it is none.
    offset: u64,
    buffer: Option<usize>,
    earlier: (Kind, Mark),
    later: (Kind, Mark),
}

impl Race {
    /// Returns what is said of it. Groups and waves have so many work-items; `instruction` tells an
    /// instruction by its offset.
    pub(crate) fn text(
        &self,
        (group_size, wave_size): (u32, u32),
        instruction: impl Fn(u32) -> String,
    ) -> String {
        let side = |(kind, mark): &(Kind, Mark)| {
            let (group, item) = (mark.item / group_size, mark.item % group_size);
            let (wave, lane) = (item / wave_size, item % wave_size);
            let what = instruction(mark.place);
            format!("{kind:?} of group {group}, wave {wave}, lane {lane} ({what})")
        };
        let memory = match self.buffer {
            None => "local memory".to_owned(),
            Some(number) => format!("buffer {number}"),
        };
        let others = match self.earlier.1.item == self.later.1.item {
            true => "others and ",
            false => "",
        };
        let (earlier, later) = (side(&self.earlier), side(&self.later));
        let offset = self.offset;
        format!("RACE at byte {offset:#x} of {memory}: {others}{earlier}; {later}")
    }
}

/// The races of a launch.
pub(crate) struct Races {
    /// Bytes of a word.
    word: u64,
    /// Work-items of a group, and of those that count as one.
    group_size: u32,
    in_step: u32,
    /// Of buffers, by rising address, and the one that was touched last.
    global: Vec<Shadow>,
    last: usize,
    /// Of the groups that run.
    local: Vec<Shadow>,
    pub found: Vec<Race>,
    /// Pairs of instructions that raced.
    known: HashSet<(u32, u32)>,
}

impl Races {
    /// Returns none yet, of groups and waves of so many work-items. So many groups run at a time,
    /// each with so many bytes of local memory. Words have so many bytes.
    pub(crate) fn new(
        buffers: &[(u64, u64)],
        (group_size, wave_size): (u32, u32),
        (resident, local_bytes): (u32, u32),
        word: u32,
    ) -> Self {
        let word = u64::from(word);
        let global = buffers.iter().enumerate();
        let global = global.map(|(number, range)| Shadow::new(*range, Some(number), word));
        let mut global: Vec<_> = global.collect();
        global.sort_by_key(|shadow| shadow.from);
        let local = (0..resident).map(|_| Shadow::new((0, local_bytes.into()), None, word));
        Self {
            word,
            group_size,
            in_step: if group_size <= wave_size {
                group_size
            } else {
                1
            },
            global,
            last: 0,
            local: local.collect(),
            found: Vec::new(),
            known: HashSet::new(),
        }
    }

    /// Another group gets a place among those that run.
    pub(crate) fn start_group(&mut self, slot: usize) {
        self.local[slot].forget();
    }

    /// Looks at what an instruction of a wave touched; `first` is its first lane's mark.
    pub(crate) fn look(
        &mut self,
        slot: usize,
        access: Option<Access>,
        first: Mark,
        touches: &[Touch],
    ) {
        let Some(Access { kind, is_local, .. }) = access else {
            return;
        };
        for touch in touches {
            if self.found.len() >= FOUND_MAX {
                return;
            }
            let item = first.item + touch.lane / self.in_step * self.in_step;
            let slot = is_local.then_some(slot);
            self.look_at(slot, touch, (kind, Mark { item, ..first }));
        }
    }

    fn look_at(&mut self, slot: Option<usize>, touch: &Touch, later: (Kind, Mark)) {
        let shadow = match slot {
            Some(slot) => self.local.get_mut(slot),
            None => buffer_of(&mut self.global, &mut self.last, touch.address),
        };
        // What is in no buffer is the program or its arguments, which nobody writes.
        let Some(shadow) = shadow else { return };
        let at = touch.address - shadow.from;
        for word in at / self.word..(at + u64::from(touch.bytes)).div_ceil(self.word) {
            let cell = shadow.cell(word);
            let earlier = cell.and_then(|cell| mark(cell, later, self.group_size));
            let is_new = |(_, mark): &(Kind, Mark)| self.known.insert((mark.place, later.1.place));
            self.found
                .extend(earlier.filter(is_new).map(|earlier| Race {
                    offset: word * self.word,
                    buffer: shadow.buffer,
                    earlier,
                    later,
                }));
        }
    }
}

/// Returns the shadow of the buffer with that address. The last one is tried first.
fn buffer_of<'a>(all: &'a mut [Shadow], last: &mut usize, at: u64) -> Option<&'a mut Shadow> {
    if !all.get(*last).is_some_and(|shadow| shadow.has(at)) {
        *last = all
            .partition_point(|shadow| shadow.from <= at)
            .checked_sub(1)?;
    }
    all.get_mut(*last).filter(|shadow| shadow.has(at))
}

/// Marks a cell. Returns the access that this one races with, if there is one.
fn mark(cell: &mut Cell, (kind, now): (Kind, Mark), group_size: u32) -> Option<(Kind, Mark)> {
    let races = |rival: &&Kind| cell[**rival as usize].beside(&now, group_size) != Others::Nobody;
    let rival = rivals(kind).iter().find(races);
    let race = rival.map(|rival| (*rival, cell[*rival as usize]));
    let own = &mut cell[kind as usize];
    let others = own.beside(&now, group_size);
    *own = Mark { others, ..now };
    race
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Kind = Kind::Read;
    const WRITE: Kind = Kind::Write;
    const UPDATE: Kind = Kind::Update;

    /// Returns which of these accesses of one word race with one before: kind, interval and item.
    /// Groups have 4 items.
    fn racing(accesses: &[(Kind, u32, u32)]) -> Vec<usize> {
        let mut cell = Cell::default();
        let races = accesses.iter().map(|(kind, interval, item)| {
            mark(&mut cell, (*kind, Mark::new(*interval, *item, 0)), 4).is_some()
        });
        races
            .enumerate()
            .filter(|(_, races)| *races)
            .map(|(i, _)| i)
            .collect()
    }

    #[test]
    fn a_barrier_orders_the_items_of_a_group() {
        assert_eq!(racing(&[(WRITE, 1, 0), (READ, 1, 0), (READ, 2, 1)]), []);
        assert_eq!(racing(&[(WRITE, 1, 0), (READ, 1, 1)]), [1]);
        assert_eq!(racing(&[(READ, 1, 0), (READ, 1, 1), (WRITE, 1, 1)]), [2]);
        assert_eq!(racing(&[(READ, 1, 0), (READ, 1, 1), (WRITE, 2, 1)]), []);
        assert_eq!(racing(&[(WRITE, 1, 0), (WRITE, 1, 1)]), [1]);
    }

    #[test]
    fn nothing_orders_two_groups() {
        assert_eq!(racing(&[(WRITE, 1, 0), (READ, 2, 4)]), [1]);
        // The reads of the other group are not forgotten for those of its own.
        assert_eq!(racing(&[(READ, 1, 0), (READ, 2, 4), (WRITE, 3, 4)]), [2]);
        assert_eq!(racing(&[(READ, 1, 0), (READ, 3, 1), (WRITE, 5, 2)]), []);
    }

    #[test]
    fn only_atomics_race_with_no_atomics() {
        assert_eq!(
            racing(&[(UPDATE, 1, 0), (UPDATE, 1, 1), (UPDATE, 2, 4)]),
            []
        );
        assert_eq!(racing(&[(UPDATE, 1, 0), (Kind::AtomicRead, 1, 1)]), []);
        assert_eq!(racing(&[(UPDATE, 1, 0), (READ, 1, 1)]), [1]);
        assert_eq!(racing(&[(WRITE, 1, 0), (Kind::AtomicRead, 1, 1)]), [1]);
        assert_eq!(racing(&[(WRITE, 1, 0), (UPDATE, 2, 4)]), [1]);
    }

    #[test]
    fn a_group_of_one_wave_runs_in_step() {
        let access = Access::of("ds_write_b32 v0, v1");
        let races = |wave_size| {
            let mut races = Races::new(&[], (64, wave_size), (1, 256), 4);
            races.start_group(0);
            let touch = |lane| Touch {
                address: 8,
                bytes: 4,
                lane,
            };
            races.look(0, access, Mark::new(1, 0, 0), &[touch(3), touch(4)]);
            races.found.len()
        };
        assert_eq!((races(64), races(32)), (0, 1));
    }
}
