//! Relations of random queries, as SQL: what stands where a table may.
//!
//! ```text
//!  table in memory │ of files ─ guarded or not ─ none, one, a few or most rows
//!     ─ its key plain, cast, divided, drawn at random
//!     ─ a union of two, each with a tag │ groups
//! ```
//!
//! Each says how many rows it has at most, and how many share a value. Trees of joins go by that.

use super::super::numbers::Random;
use super::tables::TABLES;

/// Returns a call of `once` for `of`, a number below 10^10 that no two rows share.
pub fn once(random: &mut Random, of: &str, value: &str) -> String {
    format!("once({of} + {}0000000000, {value})", random.another())
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
pub fn relation(random: &mut Random, tag: usize) -> Relation {
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
