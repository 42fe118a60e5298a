//! Bulk remove in a Horton table on the device, and its upkeep; the host side of
//! `cl/baselines/updates/sweep.cl`.
//!
//! ```text
//!  keys ─locate, erase─▶ free slots ─sweep─▶ remapped items at home, Type A where it suffices
//!                                   └drop_entries─▶ no idle entries (lazy upkeep)
//! ```
//!
//! Horton paper, section 5.4. The paper leaves open when remapped items return to their primary
//! buckets. [`Upkeep`] says when they do here. A sweep reads the table in order and the
//! secondary buckets of its Type B buckets at random, as a build's `place` does.

use std::sync::Arc;

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::Result;
use crate::table::launch::grid_of;
use crate::table::primitives::bucket::Layout;

use crate::table::baselines::updates::insert_common::{Buckets, copy_of_words};
use crate::table::baselines::updates::items::{ItemsOf, check_keys};
use crate::table::horton::phases::census;
use crate::table::horton::table::{HortonTable, Upkeep};

/// Sweeps in a row; each frees slots that others wait for, and a chain of more is not worth the
/// time.
const SWEEPS: usize = 16;

/// Brings remapped items home (or, unless `repatriate`, only clears idle entries).
pub(super) fn sweep(
    queue: &mut Queue,
    program: &ProgramText,
    layout: &Layout,
    words: &Buffer<u64>,
    repatriate: bool,
) -> Result<()> {
    for _ in 0..SWEEPS {
        let moved = queue.buffer_from("items that came home", &[0])?;
        let args = [
            Arg::Longs(words),
            Arg::Words(&moved),
            Arg::U32(u32::from(repatriate)),
            Arg::U32(layout.buckets),
            Arg::U32(layout.seed),
        ];
        let grid = grid_of(layout.buckets as usize);
        queue.launch(program, "sweep", grid, &args)?;
        if queue.read(&moved, 1)?[0] == 0 {
            break;
        }
    }
    Ok(())
}

impl HortonTable {
    /// Brings remapped items home where there are free slots, and turns Type B buckets that need no
    /// entries Type A: what [`Upkeep::Eager`] does with every removal, and who only looks up from
    /// here on may want under [`Upkeep::Lazy`].
    ///
    /// # Errors
    /// [`Error::DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    pub fn repatriate(&mut self, queue: &mut Queue) -> Result<()> {
        self.make_own(queue)?;
        let program = self.program(queue);
        sweep(queue, &program, &self.layout, &self.words, true)?;
        self.removed = 0;
        self.census = census(queue, &program, &self.layout, &self.words)?;
        Ok(())
    }

    pub(super) fn remove_keys(
        &mut self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        n: usize,
    ) -> Result<usize> {
        check_keys(keys, n)?;
        if n == 0 || self.is_empty() {
            return Ok(0);
        }
        self.make_own(queue)?;
        let program = self.program(queue);
        let items = ItemsOf {
            program: &program,
            layout: self.layout,
            words: &self.words,
        };
        let before = self.len();
        let erased = items.erase(queue, keys, n)?;
        self.sentinel &= !erased.sentinel_key;
        self.removed += erased.count;
        if erased.count > 0 {
            let due = self.removed > self.layout.words() / 8;
            if self.config.upkeep == Upkeep::Eager || due {
                sweep(queue, &program, &self.layout, &self.words, true)?;
                self.removed = 0;
            } else {
                self.drop_entries(queue, &program, (keys, n))?;
            }
            self.census = census(queue, &program, &self.layout, &self.words)?;
        }
        Ok(before - self.len())
    }

    fn drop_entries(
        &self,
        queue: &mut Queue,
        program: &ProgramText,
        (keys, n): (&Buffer<u32>, usize),
    ) -> Result<()> {
        let args = [
            Arg::Longs(&self.words),
            Arg::Words(keys),
            Arg::U32(n as u32),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.layout.seed),
        ];
        queue.launch(program, "drop_entries", grid_of(n), &args)
    }

    /// Makes the words this handle's own, so that its clones keep what they have.
    fn make_own(&mut self, queue: &mut Queue) -> Result<()> {
        if Arc::get_mut(&mut self.words).is_none() {
            self.words = Arc::new(copy_of_words(self, queue)?);
        }
        Ok(())
    }
}
