//! The operations on lists of row numbers on the device; the host side of `cl/primitives/rows.cl`.
//!
//! ```text
//!  numbers  2 0 MISS 2        set_bits     bits   101
//!                             gather_rows  column [a b c] at 2 0 2 ─▶ c a c
//!                             gather_bits  bits [x y z] at 2 0 2 ─▶ z x z
//!                             count_up     0 1 2 3
//! ```

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::kernel_sources;
use crate::table::api::MISS;
use crate::table::launch::{GROUP, peek_define};

/// The types of OpenCL C of rows of `1 << log_words` words.
const ELEMENTS: [&str; 4] = ["uint", "uint2", "uint4", "uint8"];

fn text(element: &str, peek: bool) -> ProgramText {
    let defines = [
        ("MISS", format!("{MISS:#x}u")),
        ("ELEMENT", element.to_owned()),
        peek_define(peek),
    ];
    let parts = [kernel_sources::ROWS];
    ProgramText::new("rows", &defines, &parts)
}

/// Returns the programs under the names of files; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    let gathers = ELEMENTS.map(|element| (format!("rows_{element}"), text(element, false)));
    gathers
        .into_iter()
        .chain([("rows_peek".to_owned(), text(ELEMENTS[0], true))])
}

/// Returns the program for rows of that many words.
fn program(queue: &Queue, log_words: u32) -> Result<ProgramText> {
    let peek = queue.volatile_sees_atomics();
    let Some(element) = ELEMENTS.get(log_words as usize) else {
        return Err(Error::Invalid(format!(
            "rows of 2^{log_words} words are over the limit of 2^{}",
            ELEMENTS.len() - 1
        )));
    };
    Ok(ProgramText::once("rows", &(element, peek), || {
        text(element, peek)
    }))
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
    queue.launch(&program(queue, 0)?, "set_bits", (n, GROUP), &args)
}

/// Returns the elements of `column` at the first `n` of `rows`, each of `1 << log_words` words.
/// Every row must be in the column.
///
/// # Errors
/// Those of [`gather_rows_to`]; [`Error::DeviceMemory`].
pub fn gather_rows(
    queue: &mut Queue,
    column: (&Buffer<u32>, u32),
    rows: &Buffer<u32>,
    n: usize,
) -> Result<Buffer<u32>> {
    check(rows, n)?;
    let out = queue.allocate("gathered column", n << column.1)?;
    gather_rows_to(queue, column, (rows, n), (&out, 0))?;
    Ok(out)
}

/// Writes the elements of `column` at the first `n` of `rows`, each of `1 << log_words` words, to
/// `out`, from word `at` on. That is a multiple of an element's words. Every row must be in the
/// column.
///
/// # Errors
/// [`Error::Invalid`] if there are fewer rows, if `log_words` is over 3, or if the elements have no
/// place there; OpenCL's own.
pub fn gather_rows_to(
    queue: &mut Queue,
    (column, log_words): (&Buffer<u32>, u32),
    (rows, n): (&Buffer<u32>, usize),
    (out, at): (&Buffer<u32>, usize),
) -> Result<()> {
    check(rows, n)?;
    let program = program(queue, log_words)?;
    let element = check_place(out, (at, n << log_words), 1 << log_words)?;
    let args = [
        Arg::Words(column),
        Arg::Words(rows),
        Arg::Words(out),
        Arg::U32(element),
        Arg::U32(n as u32),
    ];
    queue.launch(&program, "gather_rows", (n, GROUP), &args)
}

/// Writes the bits of `bits` at the first `n` of `rows` to `out`, from word `at` on: 32 per word
/// and the first lowest. The rest of the last word is 0. Every row must have its bit: that of row
/// `r` is bit `r % 32` of word `r / 32`.
///
/// # Errors
/// [`Error::Invalid`] if there are fewer rows, or if the bits have no place there; OpenCL's own.
pub fn gather_bits_to(
    queue: &mut Queue,
    bits: &Buffer<u32>,
    (rows, n): (&Buffer<u32>, usize),
    (out, at): (&Buffer<u32>, usize),
) -> Result<()> {
    check(rows, n)?;
    let words = n.div_ceil(32);
    let at = check_place(out, (at, words), 1)?;
    let args = [
        Arg::Words(bits),
        Arg::Words(rows),
        Arg::Words(out),
        Arg::U32(at),
        Arg::U32(n as u32),
    ];
    queue.launch(&program(queue, 0)?, "gather_bits", (words, GROUP), &args)
}

/// Returns the numbers from 0 up to `n`.
///
/// # Errors
/// [`Error::DeviceMemory`], OpenCL's own.
pub(crate) fn count_up(queue: &mut Queue, n: usize) -> Result<Buffer<u32>> {
    let out = queue.allocate("row numbers", n)?;
    let args = [Arg::Words(&out), Arg::U32(n as u32)];
    queue.launch(&program(queue, 0)?, "count_up", (n, GROUP), &args)?;
    Ok(out)
}

/// Returns the element of `out` at word `at`, from which `words` words are to be written, elements
/// of so many words.
fn check_place(out: &Buffer<u32>, (at, words): (usize, usize), element: usize) -> Result<u32> {
    let end = at.saturating_add(words);
    let has_room = at.is_multiple_of(element) && end <= out.len();
    // Kernels count elements in 32 bits.
    match (u32::try_from(at / element), u32::try_from(end / element)) {
        (Ok(first), Ok(_)) if has_room => Ok(first),
        _ => Err(Error::Invalid(format!(
            "{words} words at {at}, in elements of {element}, in a buffer of {}",
            out.len()
        ))),
    }
}

fn check(numbers: &Buffer<u32>, n: usize) -> Result<()> {
    if numbers.len() < n || n > u32::MAX as usize {
        return Err(Error::Invalid(format!(
            "{n} row numbers (at most 2^32 - 1) from a buffer of {}",
            numbers.len()
        )));
    }
    Ok(())
}
