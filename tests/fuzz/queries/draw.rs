//! Drawing a query at random, as SQL.
//!
//! ```text
//!  relation   rows of a table (relations.rs)
//!  joined     relations, unions of two, groups and what is joined, by joins of all types,
//!             IN, EXISTS, correlated subqueries
//!             or a tree of three to eight joins (trees.rs)
//!  outer      all rows │ groups │ windows │ ORDER BY │ LIMIT         over what is joined
//! ```
//!
//! All relations have the columns `id, k, b, x, tag`, so that any can stand where another does.
//! Columns of a window, an order or a LIMIT leave no choice of rows, so that results can be
//! compared.

use super::super::numbers::Random;
use super::relations::{groups, once, relation, union};
use super::trees;

/// A query.
#[derive(Debug, Clone)]
pub struct Query {
    /// The relation that is joined.
    pub joined: String,
    /// That is a tree of many joins.
    pub is_tree: bool,
    pub outer: Outer,
}

/// What is asked of the joined rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outer {
    All,
    Count,
    Groups,
    Distinct,
    /// Windows whose values do not depend on the order of equal rows.
    Windows,
    /// Rows that come before a smaller one: none.
    Falls,
    /// Rows in order.
    Ordered,
    /// The first rows in an order that tells all rows apart.
    First(usize),
    /// Any rows.
    Some(usize),
}

impl Outer {
    /// The query over the relation `q`.
    pub fn sql(self, q: &str) -> String {
        match self {
            Outer::All => format!("SELECT * FROM {q} q"),
            Outer::Count => format!("SELECT count(*), sum(x), min(id), max(tag) FROM {q} q"),
            Outer::Groups => {
                format!("SELECT tag, count(*), sum(x), min(id) FROM {q} q GROUP BY tag")
            }
            Outer::Distinct => format!("SELECT DISTINCT tag, k FROM {q} q"),
            Outer::Windows => format!(
                "SELECT id, k, tag, count(*) OVER (ORDER BY tag) AS c, \
                 rank() OVER (ORDER BY tag, k) AS r, \
                 sum(x) OVER (PARTITION BY b ORDER BY tag) AS s FROM {q} q"
            ),
            Outer::Falls => format!(
                "SELECT count(*) FROM (SELECT tag, lag(tag) OVER (ORDER BY tag) AS before \
                 FROM {q} q) f WHERE before > tag"
            ),
            Outer::Ordered => format!("SELECT tag, k, id, b, x FROM {q} q ORDER BY tag, k"),
            Outer::First(n) => {
                format!("SELECT tag, k, id, b, x FROM {q} q ORDER BY tag, k, id, b, x LIMIT {n}")
            }
            Outer::Some(n) => format!("SELECT * FROM {q} q LIMIT {n}"),
        }
    }
}

impl Query {
    /// Returns whether it draws values, which differ when they are drawn again.
    pub fn is_volatile(&self) -> bool {
        self.joined.contains("once(")
    }

    pub fn random(random: &mut Random) -> Self {
        let is_tree = random.one_in(2);
        Self::draw(random, is_tree)
    }

    /// Draws a tree of many joins, or another query.
    pub fn draw(random: &mut Random, is_tree: bool) -> Self {
        let joined = match is_tree {
            true => trees::tree(random),
            false => {
                let depth = random.pick(&[1, 1, 2, 2, 3]);
                joined(random, depth)
            }
        };
        let n = random.pick(&[1, 3, 10, 100]);
        // All rows of a tree have several partitions, and leave the joins a pool that is small.
        let is_plain = is_tree && random.one_in(2);
        let last = if is_plain { 4 } else { 11 };
        let all = [
            Outer::All,
            Outer::Count,
            Outer::Groups,
            Outer::Distinct,
            Outer::Windows,
            Outer::Windows,
            Outer::Falls,
            Outer::Ordered,
            Outer::Ordered,
            Outer::First(n),
            Outer::Some(n),
        ];
        let outer = random.pick(&all[..last]);
        Self {
            joined,
            is_tree,
            outer,
        }
    }
}

/// Two joins with nothing in between, so that columns of one name are next to each other.
fn chain(random: &mut Random) -> String {
    let [l, p, r] = [(); 3].map(|()| relation(random, 4).sql);
    let [first, second] = [(); 2].map(|()| random.pick(&["INNER", "INNER", "LEFT"]));
    let residual = if random.one_in(2) {
        let once = once(random, "(l.id * 2003 + p.id) * 2003 + r.id", "1");
        format!(" AND {once} = 1")
    } else {
        String::new()
    };
    let [id, k, b, x] = [(); 4].map(|()| random.pick(&["l", "p", "r"]));
    format!(
        "(SELECT {id}.id, {k}.k, {b}.b, {x}.x, r.tag FROM ({l}) l \
         {first} JOIN ({p}) p ON l.k = p.k {second} JOIN ({r}) r ON p.k = r.k{residual})"
    )
}

/// A join of up to `depth` levels.
fn joined(random: &mut Random, depth: usize) -> String {
    let (left, right, residual) = if random.one_in(16) {
        // Rows whose numbers tell them apart, so that those of a pair do.
        let sides = [(); 2].map(|()| format!("({})", relation(random, 4).sql));
        let [left, right] = sides;
        let once = once(random, "l.id * 100003 + r.id", "1");
        (left, right, format!(" AND {once} = 1"))
    } else {
        let (left, right) = (side(random, depth), side(random, depth));
        let residual = random.pick(&["", "", "", " AND l.x < r.x", " AND l.b <> r.b"]);
        (left, right, residual.to_owned())
    };
    let key = random.pick(&[
        "l.k = r.k",
        "l.k = r.k",
        "l.k = r.k AND l.b = r.b",
        "l.k = r.k + 1",
        "(l.k IS NOT DISTINCT FROM r.k)",
    ]);
    let [k, b, x, tag] = [(); 4].map(|()| random.pick(&["l", "r"]));
    match random.below(12) {
        at @ 0..8 => {
            let join = [
                "INNER", "INNER", "INNER", "LEFT", "LEFT", "RIGHT", "FULL", "INNER",
            ][at];
            format!(
                "(SELECT l.id, {k}.k, {b}.b, {x}.x, {tag}.tag FROM {left} l \
                 {join} JOIN {right} r ON {key}{residual})"
            )
        }
        at @ 8..10 => {
            let not = ["", "NOT "][at - 8];
            format!(
                "(SELECT l.* FROM {left} l WHERE {not}EXISTS \
                 (SELECT 1 FROM {right} r WHERE {key}{residual}))"
            )
        }
        10 => {
            let not = random.pick(&["", "NOT "]);
            format!("(SELECT l.* FROM {left} l WHERE l.k {not}IN (SELECT r.k FROM {right} r))")
        }
        _ => format!(
            "(SELECT l.id, l.k, l.b, (SELECT max(r.x) FROM {right} r WHERE r.k = l.k) AS x, l.tag \
             FROM {left} l)"
        ),
    }
}

/// An input of a join.
fn side(random: &mut Random, depth: usize) -> String {
    match random.below(8) {
        0..3 if depth > 1 => joined(random, depth - 1),
        2 => chain(random),
        3 | 4 => format!("({})", union(random, relation).sql),
        5 => format!("({})", groups(relation(random, 2)).sql),
        _ => format!("({})", relation(random, 3).sql),
    }
}
