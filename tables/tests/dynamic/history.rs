//! Searches for an order in which a batch's answers are right.
//!
//! ```text
//!  before: 7 → 1     I(7, 2) answered 1     D(7) answered 2     S(7) answered MISS    after: none
//!                    └──── 1st ────────────── 2nd ────────────── 3rd ────────────────▶  yes
//! ```
//!
//! Operations of one launch have no order among themselves, and operations on different keys do not
//! touch each other. So each key is searched alone: over the orders of its operations, by which of
//! them are done and what the key's value then is.

use std::collections::{HashMap, HashSet};

use horton_tables::table::baselines::batch::Kind;

use super::harness::Op;

const MISS: u32 = u32::MAX;

/// Checks a batch in a table of unique keys, key by key.
pub fn check(
    before: &HashMap<u32, u32>,
    ops: &[Op],
    answers: &[u32],
    after: &HashMap<u32, u32>,
) -> Result<(), String> {
    let mut of_key: HashMap<u32, Vec<(Op, u32)>> = HashMap::new();
    for (op, answer) in ops.iter().zip(answers) {
        of_key.entry(op.key).or_default().push((*op, *answer));
    }
    for (key, history) in &of_key {
        let value = |table: &HashMap<u32, u32>| table.get(key).copied().unwrap_or(MISS);
        let (from, to) = (value(before), value(after));
        if !is_possible(history, from, to) {
            return Err(format!(
                "key {key}: no order takes {from} to {to}: {history:?}"
            ));
        }
    }
    let untouched = |(key, _): &(&u32, &u32)| !of_key.contains_key(key);
    let kept: HashMap<_, _> = before.iter().filter(untouched).collect();
    let found: HashMap<_, _> = after.iter().filter(untouched).collect();
    match kept == found {
        true => Ok(()),
        false => Err("keys that no operation names have changed".to_owned()),
    }
}

/// Returns whether some order of at most 32 operations on one key gives their answers.
fn is_possible(history: &[(Op, u32)], from: u32, to: u32) -> bool {
    let all = (1u64 << history.len()) - 1;
    let mut seen = HashSet::new();
    let mut open = vec![(0u64, from)];
    while let Some((done, value)) = open.pop() {
        if done == all && value == to {
            return true;
        }
        if !seen.insert((done, value)) {
            continue;
        }
        for (i, (op, answer)) in history.iter().enumerate() {
            if done >> i & 1 == 0
                && let Some(next) = step(*op, *answer, value)
            {
                open.push((done | 1 << i, next));
            }
        }
    }
    false
}

/// The key's value after an operation, if its answer is right at this point.
fn step(op: Op, answer: u32, value: u32) -> Option<u32> {
    let (right, next) = match op.kind {
        Kind::Search => (value, value),
        Kind::Insert | Kind::Replace => (value, op.value),
        Kind::Delete => (value, MISS),
        Kind::DeleteAll => (u32::from(value != MISS), MISS),
        Kind::SearchAll => (u32::from(value != MISS), value),
    };
    (answer == right).then_some(next)
}

#[test]
fn impossible_answers_are_found_out() {
    let op = |kind, value| Op {
        kind,
        key: 7,
        value,
    };
    let ops = [
        op(Kind::Insert, 2),
        op(Kind::Delete, 0),
        op(Kind::Search, 0),
    ];
    let table = |value: Option<u32>| value.map(|v| (7, v)).into_iter().collect();
    let before = table(Some(1));
    check(&before, &ops, &[1, 2, MISS], &table(None)).unwrap();
    check(&before, &ops, &[MISS, 1, 2], &table(Some(2))).unwrap();
    // A value that nobody stored, one taken twice, one that came back.
    check(&before, &ops, &[1, 2, 3], &table(None)).unwrap_err();
    check(&before, &ops, &[1, 1, 1], &table(None)).unwrap_err();
    check(&before, &ops, &[1, 2, MISS], &table(Some(2))).unwrap_err();
    let other = HashMap::from([(7, 1), (8, 1)]);
    check(&other, &ops, &[1, 2, MISS], &table(None)).unwrap_err();
}
