//! Drawing a query at random, as SQL.
//!
//! ```text
//!  relation   a table in memory or of files, guarded or not, filtered or not
//!             ─ its key plain, cast, divided, drawn at random
//!             a union of two, each with a tag ─ groups ─ rows of a join
//!  joined     relations, by joins of all types, IN, EXISTS, correlated subqueries
//!             or a tree of three to eight joins (trees.rs)
//!  outer      all rows │ groups │ windows │ ORDER BY │ LIMIT         over what is joined
//! ```
//!
//! All relations have the columns `id, k, b, x, tag`, so that any can stand where another does.
//! Columns of a window, an order or a LIMIT leave no choice of rows, so that results can be
//! compared.

use super::super::numbers::Random;
use super::tables::TABLES;
use super::trees;

/// Returns a call of `once` for `of`, a number below 10^10 that no two rows share.
fn once(random: &mut Random, of: &str, value: &str) -> String {
    format!("once({of} + {}0000000000, {value})", random.another())
}

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
        Self::of(random, is_tree)
    }

    /// Draws a tree of many joins, or another query.
    pub fn of(random: &mut Random, is_tree: bool) -> Self {
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

/// Rows that can be joined, and how many they are at most.
pub struct Relation {
    pub sql: String,
    pub rows: usize,
    pub columns: [Column; 4],
}

/// How often values of a column occur, at most.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Rows with one value.
    pub most: usize,
    pub nulls: usize,
}

/// The columns of all relations but `tag`, which is a constant.
pub const COLUMNS: [&str; 4] = ["id", "k", "b", "x"];

/// Rows of two relations.
pub fn union(random: &mut Random, of: impl Fn(&mut Random, usize) -> Relation) -> Relation {
    let (a, b) = (of(random, 0), of(random, 1));
    Relation {
        sql: format!("{} UNION ALL {}", a.sql, b.sql),
        rows: a.rows + b.rows,
        columns: std::array::from_fn(|at| Column {
            most: a.columns[at].most + b.columns[at].most,
            nulls: a.columns[at].nulls + b.columns[at].nulls,
        }),
    }
}

/// A row for each key of a relation.
pub fn groups(of: Relation) -> Relation {
    let Relation { sql, rows, .. } = of;
    let [one, any] = [1, rows].map(|most| Column { most, nulls: 1 });
    Relation {
        sql: format!(
            "SELECT min(id) AS id, k, min(b) AS b, count(*) AS x, 5 AS tag \
             FROM ({sql}) g GROUP BY k"
        ),
        rows,
        columns: [one, one, any, any],
    }
}

/// A condition on the rows of a table of `rows` rows: none of them meets it, one does, a few, most;
/// not so few, if it `keeps` many. Returns it, and how many rows do at most.
fn filter(random: &mut Random, (rows, keeps): (usize, bool), of: &str) -> (String, usize) {
    let n = random.below(rows.max(1));
    let end = random.below(10);
    let least = if keeps { 9 } else { 0 };
    let (text, most) = match least + random.below(17 - least) {
        0 => (format!("{of}id < 0"), 0),
        1 => (format!("{of}s LIKE 'never%'"), 0),
        2 | 3 => (format!("{of}id = {n}"), 1),
        4 => (format!("{of}id BETWEEN {n} AND {}", n + 5), 6),
        5 => (format!("{of}x = {}", n % 100), rows / 100 + 1),
        6 => (format!("{of}k IN (3, {n}, {})", n / 2), rows),
        7 => (format!("{of}s LIKE '_{end}'"), rows),
        8 => (format!("{of}k BETWEEN {} AND {n}", n / 2), rows),
        9 => (format!("{of}s LIKE '{end}%'"), rows),
        10 => (format!("{of}id >= {}", n / 4), rows),
        11 => (format!("{of}x < {}", 20 + n % 80), rows),
        12 => (format!("{of}s NOT LIKE '%{end}'"), rows),
        13 => (format!("{of}k IS NOT NULL"), rows),
        _ => (format!("{of}b < {}", 1 + random.below(6)), rows),
    };
    (text, most.min(rows))
}

/// Rows of a table, with a `tag`; not of the largest, whose keys have too many matches.
fn relation(random: &mut Random, tag: usize) -> Relation {
    let t = random.below(TABLES.len() - 1);
    rows_of(random, t, tag, &Choice::ANY)
}

/// What relations of a table are drawn from.
pub struct Choice {
    pub kinds: &'static [usize],
    /// In memory, or of files.
    pub places: &'static [&'static str],
    /// They have many rows.
    pub is_full: bool,
}

impl Choice {
    pub const ANY: Self = Self {
        kinds: &[0, 1, 2, 3, 4, 5, 6, 7, 7],
        places: &["t", "t", "f"],
        is_full: false,
    };

    /// Kinds whose rows are the same again, and come before no other.
    pub const AGAIN: &'static [usize] = &[0, 1, 2, 4, 5, 7, 7, 7];
}

/// Rows of table `t`, with a `tag`.
pub fn rows_of(random: &mut Random, t: usize, tag: usize, choice: &Choice) -> Relation {
    let rows = TABLES[t].0 as usize;
    let (kind, place) = (random.pick(choice.kinds), random.pick(choice.places));
    let (few, most) = match random.one_in(3) {
        true => {
            let (text, most) = filter(
                random,
                (rows, choice.is_full),
                if kind == 2 { "t." } else { "" },
            );
            (format!(" AND {text}"), most)
        }
        false => (String::new(), rows),
    };
    let t = format!("{place}{t}");
    let columns = format!("b, x, {tag} AS tag");
    // One key of 17 is hot, and few rows share another. Numbers in s are of three rows at most.
    let (plain, text) = (rows / 17 + 4, 3);
    let (sql, shared, most) = match kind {
        0 => {
            let key = "CAST(s AS BIGINT)";
            let sql = format!("SELECT id, {key} AS k, {columns} FROM {t} WHERE ok{few}");
            (sql, text, most)
        }
        1 => {
            let sql = format!("SELECT id, 20 / d AS k, {columns} FROM {t} WHERE d <> 0{few}");
            (sql, rows / 5 + 1, most)
        }
        2 => {
            let good = t.replace(place, "good");
            let sql = format!(
                "SELECT t.id, CAST(t.s AS BIGINT) AS k, t.b, t.x, {tag} AS tag \
                 FROM {t} t JOIN {good} g ON g.id = t.id WHERE true{few}"
            );
            (sql, text, most)
        }
        3 => {
            let once = once(random, "id", "k");
            let sql = format!("SELECT id, {once} AS k, {columns} FROM {t} WHERE true{few}");
            (sql, plain, most)
        }
        4 => {
            let key = "CAST(b AS BIGINT)";
            let sql = format!("SELECT id, {key} AS k, {columns} FROM {t} WHERE true{few}");
            (sql, rows / 7 + 1, most)
        }
        5 => {
            let sql = format!("SELECT id, k + 1 AS k, {columns} FROM {t} WHERE true{few}");
            (sql, plain, most)
        }
        6 => {
            let n = 1 + random.below(40);
            let first = format!("SELECT * FROM {t} WHERE true{few} ORDER BY id LIMIT {n}");
            let sql = format!("SELECT id, k, {columns} FROM ({first}) f");
            (sql, plain, most.min(n))
        }
        _ => {
            let sql = format!("SELECT id, k, {columns} FROM {t} WHERE true{few}");
            (sql, plain, most)
        }
    };
    let of = [
        (1, 0),
        (shared, rows / 17 + 1),
        (rows / 7 + 1, 0),
        (rows / 100 + 1, rows / 11 + 1),
    ];
    let columns = of.map(|(one, nulls)| Column {
        most: one.min(most),
        nulls: nulls.min(most),
    });
    Relation {
        sql,
        rows: most,
        columns,
    }
}
