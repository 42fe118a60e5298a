//! Drawing a query at random, as SQL.
//!
//! ```text
//!  relation   a table, guarded or not ─ its key plain, cast, divided, drawn at random
//!             a union of two, each with a tag ─ groups ─ rows of a join
//!  joined     relations, by joins of all types, IN, EXISTS, correlated subqueries
//!  outer      all rows │ groups │ windows │ ORDER BY │ LIMIT         over what is joined
//! ```
//!
//! All relations have the columns `id, k, b, x, tag`, so that any can stand where another does.
//! Columns of a window, an order or a LIMIT leave no choice of rows, so that results can be
//! compared.

use super::super::numbers::Random;
use super::tables::TABLES;

/// Returns a call of `once` for `of`, a number below 10^10 that no two rows share.
fn once(random: &mut Random, of: &str, value: &str) -> String {
    format!("once({of} + {}0000000000, {value})", random.another())
}

/// A query.
#[derive(Debug, Clone)]
pub struct Query {
    /// The relation that is joined.
    pub joined: String,
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
    pub fn random(random: &mut Random) -> Self {
        let depth = random.pick(&[1, 1, 2, 2, 3]);
        let joined = joined(random, depth);
        let n = random.pick(&[1, 3, 10, 100]);
        let outer = random.pick(&[
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
        ]);
        Self { joined, outer }
    }
}

/// Two joins with nothing in between, so that columns of one name are next to each other.
fn chain(random: &mut Random) -> String {
    let [l, p, r] = [(); 3].map(|()| relation(random, 4));
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
        let sides = [(); 2].map(|()| format!("({})", relation(random, 4)));
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
        3 | 4 => {
            let (a, b) = (relation(random, 0), relation(random, 1));
            format!("({a} UNION ALL {b})")
        }
        5 => {
            let rows = relation(random, 2);
            format!(
                "(SELECT min(id) AS id, k, min(b) AS b, count(*) AS x, 5 AS tag \
                 FROM ({rows}) g GROUP BY k)"
            )
        }
        _ => format!("({})", relation(random, 3)),
    }
}

/// Rows of a table, with a `tag`.
fn relation(random: &mut Random, tag: usize) -> String {
    let t = random.below(TABLES.len());
    let few = if random.one_in(3) {
        format!(" AND b < {}", 1 + random.below(6))
    } else {
        String::new()
    };
    match random.below(9) {
        0 => {
            format!("SELECT id, CAST(s AS BIGINT) AS k, b, x, {tag} AS tag FROM t{t} WHERE ok{few}")
        }
        1 => format!("SELECT id, 20 / d AS k, b, x, {tag} AS tag FROM t{t} WHERE d <> 0{few}"),
        2 => format!(
            "SELECT t.id, CAST(t.s AS BIGINT) AS k, t.b, t.x, {tag} AS tag \
             FROM t{t} t JOIN good{t} g ON g.id = t.id WHERE true{}",
            few.replace(" b", " t.b")
        ),
        3 => {
            let once = once(random, "id", "k");
            format!("SELECT id, {once} AS k, b, x, {tag} AS tag FROM t{t} WHERE true{few}")
        }
        4 => format!(
            "SELECT id, CAST(b AS BIGINT) AS k, b, x, {tag} AS tag FROM t{t} WHERE true{few}"
        ),
        5 => format!("SELECT id, k + 1 AS k, b, x, {tag} AS tag FROM t{t} WHERE true{few}"),
        6 => {
            let n = 1 + random.below(40);
            format!(
                "SELECT id, k, b, x, {tag} AS tag FROM (SELECT * FROM t{t} ORDER BY id LIMIT {n}) f"
            )
        }
        _ => format!("SELECT id, k, b, x, {tag} AS tag FROM t{t} WHERE true{few}"),
    }
}
