//! The device's part of a probe chunk: look keys up, and bring back no more than is needed.
//!
//! ```text
//!  keys ─send─▶ values ─▶ pairs counted ─▶ result, with a first window ─▶ more windows
//! ```

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::device::{Answer, Queue, Staging, UploadPermit};
use crate::error::{DeviceError, Result};
use crate::table::multimap::pairs::{Matches, Pairs};
use crate::table::primitives::rows::set_bits;

use super::columns::{GatheredColumns, GatheredLayout};
use super::result::{
    HostWords, LookupKind, LookupResult, PairCursor, PairKeys, Window, bits_at, no_pairs_wanted,
};
use super::table::JoinTable;

/// Looks `keys` up in `table`, on its device. The `permit` to fill their staging memory is held
/// until they are there.
pub fn lookup(
    table: Arc<JoinTable>,
    keys: Staging<u32>,
    permit: UploadPermit,
    wanted: LookupKind,
) -> BoxFuture<'static, Result<Answer<LookupResult>>> {
    let of = Arc::clone(&table);
    let found = Arc::clone(&table).run(move |queue| {
        let _permit = permit;
        let (mut found, matches) = lookup_keys(queue, &table, keys, wanted)?;
        if found.window.end() < found.total && matches!(wanted, LookupKind::Pairs { .. }) {
            found.rest = Some(Arc::new(DeviceMatches {
                table,
                matches: Arc::new(matches),
            }));
        }
        Ok(found)
    });
    let checked = found.map(move |answer| {
        let answer = answer?;
        let found = &answer.value;
        check_window(&of, &found.window, (found.keys, found.total))?;
        Ok(answer)
    });
    checked.boxed()
}

/// Pairs that wait on the device.
#[derive(Debug)]
struct DeviceMatches {
    table: Arc<JoinTable>,
    matches: Arc<Matches>,
}

impl PairCursor for DeviceMatches {
    fn window(
        self: Arc<Self>,
        first: u64,
        wanted: LookupKind,
    ) -> BoxFuture<'static, Result<Answer<Window>>> {
        let (table, of) = (Arc::clone(&self.table), Arc::clone(&self.table));
        let of_lookup = (self.matches.keys(), self.matches.total());
        let window =
            table.run(move |queue| fetch_window(queue, &self.table, &self.matches, first, wanted));
        let checked = window.map(move |answer| {
            let answer = answer?;
            check_window(&of, &answer.value, of_lookup)?;
            Ok(answer)
        });
        checked.boxed()
    }
}

/// Looks the keys of a chunk up. Returns the result, and the matches that further pairs come of.
fn lookup_keys(
    queue: &mut Queue,
    table: &JoinTable,
    keys: Staging<u32>,
    wanted: LookupKind,
) -> Result<(LookupResult, Matches), DeviceError> {
    debug_assert_eq!(keys.len() % table.built.key_words(), 0, "whole keys");
    let n = keys.len() / table.built.key_words();
    let keys = queue.send("probe keys", keys)?;
    let matches = table.built.lookup(queue, &keys, n)?;
    if let Some(visited) = &table.visited {
        set_bits(queue, matches.values(), n, visited.bits())?;
    }
    let mut found = LookupResult {
        keys: n,
        buckets_read: (table.table().as_horton()).map(|_| n + matches.reads() as usize),
        matched: matches.matched(),
        total: matches.total(),
        ..LookupResult::default()
    };
    match wanted {
        LookupKind::Count | LookupKind::Visits => {}
        LookupKind::Bits => {
            let bits = matches.bits(queue)?;
            let words = bits.len();
            found.bits = Some(Arc::new(HostWords::Staged(queue.fetch(bits, words)?)));
        }
        LookupKind::Pairs { .. } if found.total == 0 => {}
        LookupKind::Pairs { .. } => {
            found.window = Arc::new(fetch_window(queue, table, &matches, 0, wanted)?);
        }
    }
    Ok((found, matches))
}

fn fetch_window(
    queue: &mut Queue,
    table: &JoinTable,
    matches: &Matches,
    first: u64,
    wanted: LookupKind,
) -> Result<Window, DeviceError> {
    let LookupKind::Pairs { build_rows, window } = wanted else {
        return Err(no_pairs_wanted());
    };
    debug_assert!(first < matches.total(), "a window begins with a pair");
    let left = usize::try_from(matches.total() - first).unwrap_or(usize::MAX);
    let len = left.min(window);
    // No key has two pairs, and bits of all keys are no more words than the pairs' positions.
    let by_bits = matches.matched() == matches.total() && matches.keys().div_ceil(32) <= len;
    let (keys, build) = if by_bits {
        let build = queue.allocate("build rows of pairs", len)?;
        matches.write_build(queue, first, &build)?;
        let keys = if matches.one_each() {
            None
        } else {
            Some(matches.bits(queue)?)
        };
        (keys, build)
    } else {
        let pairs = Pairs::with_room(queue, len)?;
        matches.write(queue, first, &pairs)?;
        (Some(pairs.probe), pairs.build)
    };
    let mut wanted = Vec::with_capacity(3);
    let layout = GatheredLayout::new(&table.columns, len);
    if !table.columns.is_empty() {
        let gathered = layout.gather(queue, &table.columns, (&build, len))?;
        let words = gathered.len();
        wanted.push(queue.begin_fetch(gathered, words)?);
    }
    if build_rows {
        wanted.push(queue.begin_fetch(build, len)?);
    }
    let brings_keys = keys.is_some();
    if let Some(keys) = keys {
        let words = keys.len();
        wanted.push(queue.begin_fetch(keys, words)?);
    }
    let mut fetched = queue.end_fetches(wanted)?.into_iter();
    let mut next_if = |is_there: bool| if is_there { fetched.next() } else { None };
    let columns = next_if(!table.columns.is_empty());
    let window = Window {
        first,
        len,
        columns: columns.map(|words| GatheredColumns { layout, words }),
        build: next_if(build_rows).map(HostWords::Staged),
        keys: match next_if(brings_keys).map(HostWords::Staged) {
            None => PairKeys::Each,
            Some(bits) if by_bits => PairKeys::Bits(bits),
            Some(positions) => PairKeys::Positions(positions),
        },
    };
    debug_assert!(
        window.end() <= matches.total(),
        "a window ends with the pairs"
    );
    Ok(window)
}

/// Checks the numbers of the pairs of a window, as rows are taken by them. The lookup has so many
/// keys, and pairs in total. Whoever waits for the window does so, as queue threads have the next
/// one to bring.
///
/// # Errors
/// [`WrongAnswer`](DeviceError::WrongAnswer).
fn check_window(
    table: &JoinTable,
    window: &Window,
    (keys, total): (usize, u64),
) -> Result<(), DeviceError> {
    let is_wrong = |what: String| DeviceError::WrongAnswer {
        device: table.device.info().label(),
        what,
    };
    let positions = match &window.keys {
        PairKeys::Positions(positions) => &positions[..],
        PairKeys::Bits(words) => {
            let matched = bits_at(words, &(0..keys as u32)).count_set_bits();
            if matched as u64 != total {
                return Err(is_wrong(format!("{matched} bits of {total} keys")));
            }
            &[]
        }
        PairKeys::Each => &[],
    };
    let build = window.build.as_deref().unwrap_or(&[]);
    for (what, numbers, end) in [
        ("build row", build, table.rows),
        ("probe row", positions, keys),
    ] {
        debug_assert!(numbers.is_empty() || numbers.len() == window.len);
        // Not `max`, which compilers do not vectorize.
        let last = numbers.iter().fold(0, |last, number| last.max(*number));
        if !numbers.is_empty() && last as usize >= end {
            return Err(is_wrong(format!("{what} {last} of {end}")));
        }
    }
    Ok(())
}
