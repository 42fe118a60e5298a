//! What is done with lists of row numbers on the device; the driver of `cl/rows.cl`.
//!
//! ```text
//!  numbers  2 0 MISS 2        set_bits     bits   101
//!                             gather_rows  column [a b c] ─▶ c a - c
//!                             count_up     0 1 2 3
//! ```

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};

use super::horton::MISS;
use super::horton::kernels::peek_define;

/// Work-group size of kernels that need none.
const GROUP: usize = 256;

fn text(peek: bool) -> ProgramText {
    let defines = [("MISS", format!("{MISS:#x}u")), peek_define(peek)];
    let parts = [("rows.cl", include_str!("../../cl/rows.cl"))];
    ProgramText::new("rows", &defines, &parts)
}

/// The program under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [("rows", false), ("rows_peek", true)]
        .map(|(name, peek)| (name.to_owned(), text(peek)))
        .into_iter()
}

fn program(queue: &Queue) -> ProgramText {
    let peek = queue.volatile_sees_atomics();
    ProgramText::once("rows", &peek, || text(peek))
}

/// Sets the bits of the first `n` of `numbers` that are not [`MISS`]: bit `k % 32` of word
/// `k / 32` for number `k`. Every number must have its bit in `bits`.
///
/// # Errors
/// [`Error::Invalid`] if there are fewer numbers; OpenCL's own.
pub fn set_bits(
    queue: &mut Queue,
    numbers: &Buffer<u32>,
    n: usize,
    bits: &Buffer<u32>,
) -> Result<()> {
    check(numbers, n)?;
    let args = [Arg::Words(numbers), Arg::Words(bits), Arg::U32(n as u32)];
    queue.launch(&program(queue), "set_bits", (n, GROUP), &args)
}

/// The elements of `column` at the first `n` of `rows`, each of `1 << log_words` words. Every row
/// must be in the column.
///
/// # Errors
/// [`Error::Invalid`] if there are fewer rows, [`Error::DeviceMemory`], OpenCL's own.
pub fn gather_rows(
    queue: &mut Queue,
    (column, log_words): (&Buffer<u32>, u32),
    rows: &Buffer<u32>,
    n: usize,
) -> Result<Buffer<u32>> {
    check(rows, n)?;
    let words = n << log_words;
    let out = queue.allocate("gathered column", words)?;
    let args = [
        Arg::Words(column),
        Arg::Words(rows),
        Arg::Words(&out),
        Arg::U32(n as u32),
        Arg::U32(log_words),
    ];
    queue.launch(&program(queue), "gather_rows", (words, GROUP), &args)?;
    Ok(out)
}

/// The numbers from 0 up to `n`.
///
/// # Errors
/// [`Error::DeviceMemory`], OpenCL's own.
pub(super) fn count_up(queue: &mut Queue, n: usize) -> Result<Buffer<u32>> {
    let out = queue.allocate("row numbers", n)?;
    let args = [Arg::Words(&out), Arg::U32(n as u32)];
    queue.launch(&program(queue), "count_up", (n, GROUP), &args)?;
    Ok(out)
}

fn check(numbers: &Buffer<u32>, n: usize) -> Result<()> {
    if numbers.len() < n || n > u32::MAX as usize {
        return Err(Error::Invalid(format!(
            "{n} row numbers (at most 2^32 - 1) were asked for, but there are {}",
            numbers.len()
        )));
    }
    Ok(())
}
