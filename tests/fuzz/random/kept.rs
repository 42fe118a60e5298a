//! The rows that a consumer kept of a case's join, against those of the stock join.
//!
//! ```text
//!  of each node:  all asked for and kept ─▶ the stock join's rows, as often as asked for
//!                 some are missing       ─▶ none but those
//!                 a stream of a join that keeps its probe partitions ─▶ that partition's rows
//! ```

use std::collections::HashMap;

use arrow::row::RowConverter;
use datafusion::common::JoinType;

use super::super::consumer::{Asked, Kept};
use super::super::difference::{Checked, differ};
use super::case::{Case, Mode};
use super::checks::Places;
use super::output::Output;
use super::run::is_exhausted;

/// Checks the rows that were kept against `all`, those of the stock join without a limit, by
/// partition.
pub fn check(kept: &Kept, case: &Case, converter: &RowConverter, all: &Output) -> Checked<()> {
    for (index, node) in kept.nodes.iter().enumerate() {
        if let Some(error) = kept.of(index).find_map(|asked| asked.error.as_ref()) {
            match is_exhausted(case, error) {
                true => continue,
                false => return differ("error", error),
            }
        }
        let read = || kept.of(index).filter(|asked| !asked.is_dropped);
        let batches = read().map(|asked| asked.batches.clone()).collect();
        let found = Output::new(converter, batches)?;
        let is_whole = case.fetch.is_none() && kept.is_whole(index);
        check_rows((kept.rounds, is_whole), all, &found)?;
        if keeps_partitions(case) && !Places::of(node).has_spilled() {
            check_partitions(read(), converter, all)?;
        }
    }
    Ok(())
}

/// Checks that `found` are rows of `all`, each as often as at most; exactly if it `is_whole`.
fn check_rows((rounds, is_whole): (usize, bool), all: &Output, found: &Output) -> Checked<()> {
    let mut left: HashMap<&[u8], isize> = all.multiset();
    left.values_mut().for_each(|n| *n *= rounds as isize);
    for (row, times) in found.multiset() {
        *left.entry(row).or_default() -= times;
    }
    let count = all.count() * rounds;
    let is_more = found.count() > count || left.values().any(|n| *n < 0);
    let is_less = found.count() < count || left.values().any(|n| *n > 0);
    if is_more || is_whole && is_less {
        let found = found.counts();
        return differ(
            "rows of a consumer",
            format!("{found:?} of {rounds} × {:?}", all.counts()),
        );
    }
    Ok(())
}

/// Returns whether stream `p` of the case's join has the rows of probe partition `p` alone.
fn keeps_partitions(case: &Case) -> bool {
    let is_fixed = !matches!(case.mode, Mode::Open { .. }) && case.fetch.is_none();
    let of_probe = matches!(
        case.join_type,
        JoinType::Inner
            | JoinType::Right
            | JoinType::RightSemi
            | JoinType::RightAnti
            | JoinType::RightMark
    );
    is_fixed && of_probe
}

/// Checks that each stream has the rows of its partition.
fn check_partitions<'a>(
    asked: impl Iterator<Item = &'a Asked>,
    converter: &RowConverter,
    all: &Output,
) -> Checked<()> {
    for asked in asked {
        let found = Output::new(converter, vec![asked.batches.clone()])?;
        let expected = Output::new(converter, vec![all.batches[asked.partition].clone()])?;
        if found.count() != expected.count() || found.multiset() != expected.multiset() {
            let (found, expected) = (found.count(), expected.count());
            let partition = asked.partition;
            return differ(
                "rows of a consumer's partition",
                format!("{found} rows of partition {partition}, not {expected}"),
            );
        }
    }
    Ok(())
}
