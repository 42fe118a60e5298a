//! Trees of three to eight joins, as SQL.
//!
//! ```text
//!        ⋈            ⋈              ⋈        INNER, LEFT, RIGHT, FULL
//!       / \          / \           /   \      LEFT and RIGHT SEMI and ANTI
//!      ⋈   c        a   ⋈         ⋈     ⋈     [NOT] EXISTS, [NOT] IN
//!     / \              / \       / \   / \    … OR a filter: a mark join
//!    a   b            b   c     a   b c   d
//!   left-deep       right-deep     bushy      sides in parentheses, or as derived tables
//! ```
//!
//! Joins of many rows with many would leave nobody the time to compare them. So each part of a tree
//! says how many rows it has at most, and how many of them share a value. Keys are drawn again that
//! may give too many. If none are found, only the rows of one side are kept.

use super::super::numbers::Random;
use super::relations::{COLUMNS, Choice, groups, rows_of, union};
use super::tables::{TABLES, TINY};

/// Rows of a part of a tree, at most.
const MOST: [usize; 3] = [2000, 8000, 20_000];

/// Draws of keys, after which there may be none.
const DRAWS: usize = 16;

#[derive(Debug, Clone, Copy)]
enum Shape {
    LeftDeep,
    RightDeep,
    Bushy,
}

/// What stands in a FROM clause.
struct Part {
    from: String,
    /// It is of several, so that it may need parentheses.
    is_joined: bool,
    rows: usize,
    columns: Vec<Column>,
}

/// A column that can be named, and how often its values occur at most.
#[derive(Debug, Clone)]
struct Column {
    table: String,
    name: &'static str,
    /// Rows with one value.
    most: usize,
    nulls: usize,
}

/// A condition of two parts, and its matches at most.
struct Keys {
    condition: String,
    /// Of a row of the left part, and of one of the right part.
    matches: (usize, usize),
}

/// Draws a tree.
struct Trees<'a> {
    random: &'a mut Random,
    shape: Shape,
    most: usize,
    choice: Choice,
}

/// The joined rows of a tree, with the columns of all relations.
pub fn tree(random: &mut Random) -> String {
    let joins = 3 + random.below(6);
    let shape = random.pick(&[
        Shape::LeftDeep,
        Shape::RightDeep,
        Shape::Bushy,
        Shape::Bushy,
    ]);
    let most = random.pick(&MOST);
    let choice = Choice {
        kinds: random.pick(&[Choice::ANY.kinds, Choice::AGAIN, Choice::AGAIN]),
        places: random.pick(&[&["t"], &["f"], &["t", "f"], &["t"]]),
        // No table is tiny, and no filter leaves a few rows: few trees have a row otherwise.
        is_full: !random.one_in(3),
    };
    let mut trees = Trees {
        random,
        shape,
        most,
        choice,
    };
    let part = trees.part(joins);
    let filters = trees.random.pick(&[0, 0, 0, 1, 2]);
    let filters: Vec<String> = (0..filters).map(|_| trees.filter(&part)).collect();
    let filters = match filters.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", filters.join(" AND ")),
    };
    let (columns, _) = trees.columns(&part, "");
    format!("(SELECT {columns} FROM {}{filters})", part.from)
}

impl Trees<'_> {
    /// A part with that many joins.
    fn part(&mut self, joins: usize) -> Part {
        let Some(below) = joins.checked_sub(1) else {
            return self.leaf();
        };
        let right = match self.shape {
            Shape::LeftDeep => 0,
            Shape::RightDeep => below,
            Shape::Bushy => self.random.below(joins),
        };
        let (left, right) = (self.part(below - right), self.part(right));
        let part = match self.random.below(4) {
            0 => self.kept(left, right),
            _ => self.joined(left, right),
        };
        match self.random.one_in(8) {
            true => self.derived(part, ""),
            false => part,
        }
    }

    fn leaf(&mut self) -> Part {
        let choice = &self.choice;
        let first = if choice.is_full { TINY } else { 0 };
        let any = |random: &mut Random, tag| {
            let t = first + random.below(TABLES.len() - first);
            rows_of(random, t, tag, choice)
        };
        let tag = self.random.below(4);
        let relation = match self.random.below(12) {
            0 => union(self.random, any),
            1 => groups(any(self.random, tag)),
            _ => any(self.random, tag),
        };
        let table = self.table();
        let columns = COLUMNS.iter().zip(relation.columns);
        let columns = columns.map(|(name, column)| Column {
            table: table.clone(),
            name,
            most: column.most,
            nulls: column.nulls,
        });
        let tag = Column {
            table: table.clone(),
            name: "tag",
            most: relation.rows,
            nulls: 0,
        };
        Part {
            columns: columns.chain([tag]).collect(),
            from: format!("({}) {table}", relation.sql),
            is_joined: false,
            rows: relation.rows,
        }
    }

    fn table(&mut self) -> String {
        format!("a{}", self.random.another())
    }

    /// A column of `part` that has one of the `names`.
    fn column<'p>(&mut self, part: &'p Part, names: &[&str]) -> &'p Column {
        let named = |column: &&Column| names.contains(&column.name);
        let columns: Vec<&Column> = part.columns.iter().filter(named).collect();
        self.random.pick(&columns)
    }

    /// A condition on the rows of `part`, whatever is known of them.
    fn filter(&mut self, part: &Part) -> String {
        let column = self.column(part, &["id", "k", "b", "x"]).text();
        let n = self.random.below(100);
        let least = if self.choice.is_full { 2 } else { 0 };
        match least + self.random.below(7 - least) {
            0 => format!("{column} IS NULL"),
            1 => format!("{column} = {n}"),
            2 => format!("{column} IS NOT NULL"),
            3 => format!("{column} BETWEEN {} AND {n}", n / 2),
            4 => format!("{column} <> {n}"),
            _ => format!("{column} < {n}"),
        }
    }

    /// Draws keys that `left` and `right` are joined by.
    fn keys(&mut self, left: &Part, right: &Part) -> Keys {
        let (one, many) = (
            ["id", "k"].as_slice(),
            ["id", "k", "k", "x", "b"].as_slice(),
        );
        // References go either way.
        let (of_left, of_right) = match self.random.one_in(2) {
            true => (many, one),
            false => (one, many),
        };
        let (l, r) = (self.column(left, of_left), self.column(right, of_right));
        let mut matches = (r.most, l.most);
        let mut condition = match self.random.below(10) {
            0 => format!("{} = {} + 1", l.text(), r.text()),
            1 => {
                matches = (r.most.max(r.nulls), l.most.max(l.nulls));
                format!("({} IS NOT DISTINCT FROM {})", l.text(), r.text())
            }
            _ => format!("{} = {}", l.text(), r.text()),
        };
        match self.random.below(8) {
            0 => {
                let (l, r) = (self.column(left, &["b"]), self.column(right, &["b"]));
                condition += &format!(" AND {} = {}", l.text(), r.text());
                matches = (matches.0.min(r.most), matches.1.min(l.most));
            }
            1 => {
                let (l, r) = (self.column(left, &["x"]), self.column(right, &["x"]));
                let compare = self.random.pick(&["<", "<>"]);
                condition += &format!(" AND {} {compare} {}", l.text(), r.text());
            }
            _ => {}
        }
        Keys { condition, matches }
    }

    /// The joined rows of both.
    fn joined(&mut self, left: Part, right: Part) -> Part {
        let (join, keeps) = self.random.pick(&[
            ("INNER", (false, false)),
            ("INNER", (false, false)),
            ("INNER", (false, false)),
            ("LEFT", (true, false)),
            ("LEFT", (true, false)),
            ("RIGHT", (false, true)),
            ("FULL", (true, true)),
        ]);
        for _ in 0..DRAWS {
            let keys = self.keys(&left, &right);
            let (rows, columns) = bounds(&left, &right, &keys, keeps);
            if rows <= self.most {
                return Part {
                    from: self.join(join, &left, &right, &keys),
                    is_joined: true,
                    rows,
                    columns,
                };
            }
        }
        self.kept(left, right)
    }

    fn join(&mut self, join: &str, left: &Part, right: &Part, keys: &Keys) -> String {
        let l = match left.is_joined && self.random.one_in(3) {
            true => format!("({})", left.from),
            false => left.from.clone(),
        };
        let r = match right.is_joined {
            true => format!("({})", right.from),
            false => right.from.clone(),
        };
        format!("{l} {join} JOIN {r} ON {}", keys.condition)
    }

    /// Rows of one side, by what the other has.
    fn kept(&mut self, left: Part, right: Part) -> Part {
        let keys = self.keys(&left, &right);
        if self.random.one_in(3) {
            let (join, is_left) = self.random.pick(&[
                ("LEFT SEMI", true),
                ("LEFT ANTI", true),
                ("RIGHT SEMI", false),
                ("RIGHT ANTI", false),
            ]);
            let from = self.join(join, &left, &right, &keys);
            let side = if is_left { left } else { right };
            let is_joined = true;
            return Part {
                from,
                is_joined,
                ..side
            };
        }
        let not = self.random.pick(&["", "", "NOT "]);
        let (from, condition) = (&right.from, keys.condition);
        let meets = match self.random.one_in(2) {
            true => format!("{not}EXISTS (SELECT 1 FROM {from} WHERE {condition})"),
            false => {
                let l = self.column(&left, &["id", "k", "k", "x", "b"]).text();
                let r = self.column(&right, &["id", "k", "k"]).text();
                format!("{l} {not}IN (SELECT {r} FROM {from})")
            }
        };
        let or = match self.random.one_in(3) {
            true => format!(" OR {}", self.filter(&left)),
            false => String::new(),
        };
        self.derived(left, &format!(" WHERE {meets}{or}"))
    }

    /// A derived table of those rows of `part` that a clause keeps.
    fn derived(&mut self, part: Part, clause: &str) -> Part {
        let table = self.table();
        let (names, columns) = self.columns(&part, &table);
        Part {
            from: format!("(SELECT {names} FROM {}{clause}) {table}", part.from),
            is_joined: false,
            rows: part.rows,
            columns,
        }
    }

    /// Draws a column of each name, and calls them those of `table`.
    fn columns(&mut self, part: &Part, table: &str) -> (String, Vec<Column>) {
        let mut names = Vec::new();
        let mut columns = Vec::new();
        for name in COLUMNS.into_iter().chain(["tag"]) {
            // DataFusion's planner fails at many an order of constants.
            let column = match name == "tag" && self.random.one_in(2) {
                true => self.column(part, &["b", "x"]),
                false => self.column(part, &[name]),
            };
            names.push(format!("{} AS {name}", column.text()));
            columns.push(Column {
                table: table.to_owned(),
                name,
                ..column.clone()
            });
        }
        (names.join(", "), columns)
    }
}

impl Column {
    fn text(&self) -> String {
        format!("{}.{}", self.table, self.name)
    }

    /// The column in a join, where each row has so many matches, and so many rows have none of its
    /// side.
    fn joined(&self, matches: usize, missing: usize, rows: usize) -> Self {
        let times = |n: usize| n.saturating_mul(matches.max(1));
        Self {
            most: times(self.most).min(rows),
            nulls: times(self.nulls).saturating_add(missing).min(rows),
            ..self.clone()
        }
    }
}

/// The rows of a join, and how often values of its columns occur, at most.
fn bounds(
    left: &Part,
    right: &Part,
    keys: &Keys,
    (keeps_left, keeps_right): (bool, bool),
) -> (usize, Vec<Column>) {
    let (of_left, of_right) = keys.matches;
    let pairs = left.rows.saturating_mul(of_left);
    let pairs = pairs.min(right.rows.saturating_mul(of_right));
    let alone = |keeps: bool, part: &Part| if keeps { part.rows } else { 0 };
    let (l, r) = (alone(keeps_left, left), alone(keeps_right, right));
    let rows = pairs.saturating_add(l + r);
    let of = |part: &Part, matches, missing| {
        let columns = part.columns.iter();
        let columns = columns.map(|column| column.joined(matches, missing, rows));
        columns.collect::<Vec<_>>()
    };
    let columns = [of(left, of_left, r), of(right, of_right, l)].concat();
    (rows, columns)
}
