//! Makes a failing case small: all that can go without the failure going with it, goes.
//!
//! Greedy: an attempt that still fails in the same way is kept. All are made over and over until
//! none is kept or time is up. Rows go first, in halves, then quarters, and so on.

use std::time::{Duration, Instant};

use datafusion::common::{JoinType, NullEquality};
use horton_join::table::horton::MAX_VALUE;
use horton_join::table::multimap::IndexKind;

use super::case::{Case, Filter, Key, Mode, Scan, Side, Term};
use super::data::Kind;

/// One attempt at a smaller case; `None` where it does not apply.
type Attempt = Box<dyn Fn(&Case) -> Option<Case>>;

/// A smaller case for which `fails` holds as well.
pub fn shrink(case: &Case, limit: Duration, fails: impl Fn(&Case) -> bool) -> Case {
    let start = Instant::now();
    let mut smallest = case.clone();
    loop {
        let before = smallest.clone();
        for attempts in [rows, knobs, columns, values] {
            for attempt in attempts(&smallest) {
                if start.elapsed() > limit {
                    return smallest;
                }
                let smaller = attempt(&smallest).filter(|smaller| *smaller != smallest);
                if let Some(smaller) = smaller.filter(|smaller| fails(smaller)) {
                    smallest = smaller;
                }
            }
        }
        if smallest == before {
            return smallest;
        }
    }
}

fn side(case: &mut Case, build: bool) -> &mut Side {
    match build {
        true => &mut case.build,
        false => &mut case.probe,
    }
}

fn side_of(case: &Case, build: bool) -> &Side {
    match build {
        true => &case.build,
        false => &case.probe,
    }
}

/// Makes an attempt of what a change does to a case.
fn change(change: impl Fn(&mut Case) + 'static) -> Attempt {
    Box::new(move |case| {
        let mut changed = case.clone();
        change(&mut changed);
        Some(changed)
    })
}

/// Leaves out some of the rows, the last ones first.
fn rows(case: &Case) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for build in [true, false] {
        let rows = side_of(case, build).rows();
        let mut length = rows;
        while length > 0 {
            for from in (0..rows).step_by(length).rev() {
                attempts.push(Box::new(move |case| {
                    let rows = side_of(case, build).rows();
                    let range = from.min(rows)..(from + length).min(rows);
                    let mut fewer = case.clone();
                    for column in &mut side(&mut fewer, build).columns {
                        column.values.drain(range.clone());
                    }
                    (!range.is_empty()).then_some(fewer)
                }));
            }
            length /= 2;
        }
    }
    attempts
}

/// Each knob at its plainest.
fn knobs(case: &Case) -> Vec<Attempt> {
    let mut attempts = vec![
        change(|case| case.again = false),
        change(|case| case.gathers = false),
        change(|case| case.consumer = None),
        change(|case| case.scan = None),
        change(|case| case.scan = case.scan.map(|_| Scan::Memory)),
        change(|case| case.side_by_side = false),
        change(|case| case.fetch = None),
        change(|case| case.projection = None),
        change(|case| case.projection = Some(vec![])),
        change(|case| case.filter = None),
        change(|case| case.filter = Some(Filter::Constant(Some(false)))),
        change(|case| case.partitions = 1),
        change(|case| case.mode = Mode::Collected),
        change(|case| {
            if let Mode::Open { build } = &mut case.mode {
                *build = 1;
            }
        }),
        change(|case| case.sample_rows = 1 << 20),
        change(|case| case.min_build_rows = None),
        change(|case| case.min_build_rows = case.min_build_rows.map(|_| usize::MAX)),
        change(|case| case.host_splits = false),
        change(|case| case.batch_size = 8192),
        change(|case| case.table.chunk_rows = 65536),
        change(|case| case.table.normalized_key_bits = 32),
        change(|case| case.table.index = IndexKind::Horton),
        change(|case| case.table.device_limit = 0),
        change(|case| case.table.max_rows = MAX_VALUE as usize),
        change(|case| case.pool_limit = 0),
        change(|case| case.pool_limit = (case.pool_limit / 2).max(case.pool_limit.min(1))),
        change(|case| case.cancel_after = None),
        change(|case| case.strike = None),
        change(|case| {
            case.strike
                .iter_mut()
                .for_each(|strike| strike.lasts = false)
        }),
        change(|case| case.null_aware = false),
        change(|case| case.null_equality = NullEquality::NullEqualsNothing),
        change(|case| case.join_type = JoinType::Inner),
    ];
    for build in [true, false] {
        attempts.push(change(move |case| side(case, build).sliced = false));
        attempts.push(change(move |case| side(case, build).sorted_by = None));
        attempts.push(change(move |case| side(case, build).tagged = false));
        attempts.push(change(move |case| side(case, build).batches = vec![8192]));
        attempts.push(change(move |case| {
            let batches = &mut side(case, build).batches;
            batches.truncate(batches.len().max(2) - 1);
        }));
    }
    for key in (0..case.on.len()).rev() {
        attempts.push(Box::new(move |case| {
            let mut fewer = case.clone();
            let removable = fewer.on.len() > 1 && key < fewer.on.len();
            removable.then(|| fewer.on.remove(key))?;
            Some(fewer)
        }));
        attempts.push(change(move |case| {
            case.on
                .iter_mut()
                .skip(key)
                .take(1)
                .for_each(|key| key.as_text = false);
        }));
    }
    attempts
}

/// Leaves out each column that nothing refers to.
fn columns(case: &Case) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for build in [true, false] {
        for column in (0..side_of(case, build).columns.len()).rev() {
            attempts.push(Box::new(move |case| {
                let columns = side_of(case, build).columns.len();
                let removable = columns > 1 && column < columns && !is_used(case, build, column);
                removable.then(|| without_column(case, build, column))
            }));
        }
    }
    attempts
}

fn is_used(case: &Case, build: bool, column: usize) -> bool {
    let of_key = |key: &Key| if build { key.build } else { key.probe };
    let sorted_by = side_of(case, build).sorted_by;
    let term = match build {
        true => Term::Build(column),
        false => Term::Probe(column),
    };
    let in_filter = case.filter.as_ref().is_some_and(|filter| match filter {
        Filter::Constant(_) => false,
        Filter::IsNull(a) => *a == term,
        Filter::Less(a, b) | Filter::Same(a, b) => *a == term || *b == term,
    });
    in_filter || sorted_by == Some(column) || case.on.iter().any(|key| of_key(key) == column)
}

fn without_column(case: &Case, build: bool, column: usize) -> Case {
    let down = |index: usize| if index > column { index - 1 } else { index };
    let term = |term: Term| match term {
        Term::Build(index) if build => Term::Build(down(index)),
        Term::Probe(index) if !build => Term::Probe(down(index)),
        other => other,
    };
    let mut fewer = case.clone();
    let changed = side(&mut fewer, build);
    changed.columns.remove(column);
    changed.sorted_by = changed.sorted_by.map(down);
    for key in &mut fewer.on {
        match build {
            true => key.build = down(key.build),
            false => key.probe = down(key.probe),
        }
    }
    fewer.filter = fewer.filter.map(|filter| match filter {
        Filter::Constant(value) => Filter::Constant(value),
        Filter::IsNull(a) => Filter::IsNull(term(a)),
        Filter::Less(a, b) => Filter::Less(term(a), term(b)),
        Filter::Same(a, b) => Filter::Same(term(a), term(b)),
    });
    fewer
}

/// Plainer types, and once there are few rows plainer values.
fn values(case: &Case) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for key in 0..case.on.len() {
        attempts.push(change(move |case| {
            if let Some(key) = case.on.get(key).cloned() {
                case.build.columns[key.build].kind = Kind::Int64;
                case.probe.columns[key.probe].kind = Kind::Int64;
            }
        }));
    }
    if case.build.rows() + case.probe.rows() > 20 {
        return attempts;
    }
    for build in [true, false] {
        for (c, column) in side_of(case, build).columns.iter().enumerate() {
            for row in 0..column.values.len() {
                for plain in [Some(0), Some(1), Some(2), Some(7)] {
                    // Towards 0, so that it ends.
                    let size = |v: Option<i64>| v.map_or(u64::MAX, i64::unsigned_abs);
                    attempts.push(change(move |case| {
                        let value = &mut side(case, build).columns[c].values[row];
                        if size(plain) < size(*value) {
                            *value = plain;
                        }
                    }));
                }
            }
        }
    }
    attempts
}
