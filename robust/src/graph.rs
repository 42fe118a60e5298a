//! Random join graphs, with the rows of their tables and a query.
//!
//! ```text
//!   chain 0─1─2─3    star 1─0─2    snowflake 3─1─0─2─4    cycle 0─1─2    clique 0─1─2
//!                           │                                   └───┘          └─┼─┘ …
//!                           3                                                    3
//!   a join   many-to-one    t1.k2 = t0.id        many-to-many   t1.k2 = t3.k1
//! ```
//!
//! The first joins make a tree, in which table `i + 1` hangs on an earlier one. Joins that close
//! circles come after them, and only leave rows out. So the rows of a tree bound those of the
//! graph. They are counted from the leaves to the root without a join:
//!
//! ```text
//!   ways(row) = product over children of (sum of ways(r) over the child's rows r with its key)
//! ```
//!
//! A graph whose result, or the unfiltered join of a subtree, has too many rows is drawn again. So
//! is one whose tree has no row.

use std::collections::HashMap;

use crate::random::Random;
use crate::table::{PAYLOADS, Table, text};

/// Rows of the result for each row that the largest table may have.
const MOST_RESULT: f64 = 20.0;

/// The same, of the unfiltered join of a subtree: what a bad order may have to go through.
const MOST_BETWEEN: f64 = 500.0;

/// The shape of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Chain,
    Star,
    Snowflake,
    Cycle,
    Clique,
}

/// A column: the number of its table, and of the key there.
pub type Column = (usize, usize);

/// A graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    pub shape: Shape,
    pub tables: Vec<Table>,
    /// Columns that are equal. Join `i` of the tree hangs table `i + 1` (second) on an earlier one.
    pub joins: Vec<[Column; 2]>,
    /// The query, with its tables in random order.
    pub sql: String,
}

impl Graph {
    /// Draws graph `number`, whose tables have at most `rows` rows.
    pub fn draw(seed: u64, number: usize, rows: usize) -> Self {
        let mut random = Random::new(seed, number);
        loop {
            let mut graph = Self::draw_tables(&mut random, rows);
            if graph.is_bounded(rows) {
                graph.sql = graph.query(&mut random);
                return graph;
            }
        }
    }

    fn draw_tables(random: &mut Random, rows: usize) -> Self {
        use Shape::{Chain, Clique, Cycle, Snowflake, Star};
        let shape = random.pick([Chain, Star, Snowflake, Cycle, Clique]);
        let count = 3 + random.below(8);
        let least = rows.min(100) as f64;
        let mut sizes: Vec<usize> = (0..count)
            .map(|_| random.log_uniform(least, rows as f64).round() as usize)
            .collect();
        if matches!(shape, Star | Snowflake) {
            // The table in the middle is the fact table.
            sizes.sort_unstable_by(|a, b| b.cmp(a));
        }
        let tables = sizes.iter().map(|&rows| Table::draw(random, rows));
        let mut graph = Self {
            shape,
            tables: tables.collect(),
            joins: vec![],
            sql: String::new(),
        };
        let near = 1 + random.below(count - 1);
        for child in 1..count {
            let parent = match shape {
                Chain | Cycle => child - 1,
                Star => 0,
                Snowflake if child <= near => 0,
                Snowflake => 1 + random.below(near),
                Clique => random.below(child),
            };
            graph.join(random, parent, child);
        }
        let closing = match shape {
            Cycle => vec![(0, count - 1)],
            Clique => (0..count)
                .map(|_| (random.below(count), random.below(count)))
                .collect(),
            _ => vec![],
        };
        for (a, b) in closing {
            let is_new = graph.joins.iter().all(|join| {
                let [x, y] = join.map(|(table, _)| table);
                (x, y) != (a, b) && (y, x) != (a, b)
            });
            if a != b && is_new {
                graph.join(random, a, b);
            }
        }
        for _ in 0..random.below(5) {
            let table = random.below(count);
            let selectivity = random.log_uniform(0.0001, 0.5);
            let below = (selectivity * PAYLOADS as f64).ceil() as usize;
            graph.tables[table].filter = Some((random.below(2), below));
        }
        graph
    }

    /// Adds a join of tables `a` and `b`.
    fn join(&mut self, random: &mut Random, a: usize, b: usize) {
        let [rows_a, rows_b] = [a, b].map(|table| self.tables[table].rows());
        if random.one_in(4) {
            let values = (rows_a.max(rows_b) / random.pick([1, 2, 8, 32])).max(1);
            let step = random.pick([1, 1_000_003]);
            let ends = [a, b].map(|t| (t, self.tables[t].add_key(random, values, step)));
            self.joins.push(ends);
            return;
        }
        // The many rows are mostly in the larger table.
        let one = if (rows_a < rows_b) != random.one_in(5) {
            a
        } else {
            b
        };
        let (values, step) = (self.tables[one].rows(), self.tables[one].step);
        let values = values * random.pick([1, 1, 2]);
        let ends = [a, b].map(|t| match t == one {
            true => (t, 0),
            false => (t, self.tables[t].add_key(random, values, step)),
        });
        self.joins.push(ends);
    }

    /// Returns the rows of the joins of the tree, and those of its largest subtree.
    pub fn tree_rows(&self, filtered: bool) -> (f64, f64) {
        let ways = |table: &Table| {
            let rows = 0..table.rows();
            let way = |row| f64::from(u8::from(!filtered || table.keeps(row)));
            rows.map(way).collect::<Vec<f64>>()
        };
        let mut ways: Vec<Vec<f64>> = self.tables.iter().map(ways).collect();
        let mut largest = 0.0;
        let tree = &self.joins[..self.tables.len() - 1];
        for [(parent, of_parent), (child, of_child)] in tree.iter().rev().copied() {
            let mut by_key: HashMap<i64, f64> = HashMap::new();
            for (key, ways) in self.tables[child].keys[of_child].iter().zip(&ways[child]) {
                if let Some(key) = key {
                    *by_key.entry(*key).or_default() += ways;
                }
            }
            for (key, ways) in self.tables[parent].keys[of_parent]
                .iter()
                .zip(&mut ways[parent])
            {
                *ways *= key.and_then(|key| by_key.get(&key)).copied().unwrap_or(0.0);
            }
            largest = ways[parent].iter().sum::<f64>().max(largest);
        }
        (ways[0].iter().sum(), largest)
    }

    fn is_bounded(&self, rows: usize) -> bool {
        let rows = rows as f64;
        let (result, _) = self.tree_rows(true);
        (1.0..=MOST_RESULT * rows).contains(&result)
            && self.tree_rows(false).1 <= MOST_BETWEEN * rows
    }

    fn query(&self, random: &mut Random) -> String {
        let mut order: Vec<usize> = (0..self.tables.len()).collect();
        random.shuffle(&mut order);
        let mut conditions: Vec<String> = vec![];
        for join in &self.joins {
            let [a, b] = join.map(name);
            conditions.push(format!("{a} = {b}"));
        }
        for (number, table) in self.tables.iter().enumerate() {
            conditions.extend(table.filter.map(|(payload, below)| match payload {
                0 => format!("t{number}.x < {below}"),
                _ => format!("t{number}.s < '{}'", text(below)),
            }));
        }
        random.shuffle(&mut conditions);
        let [summed, least, grouped] = [(); 3].map(|()| random.below(order.len()));
        let group = format!("t{grouped}.x % 10");
        let (column, clause) = match random.one_in(3) {
            true => (format!("{group} AS g, "), format!("\nGROUP BY {group}")),
            false => (String::new(), String::new()),
        };
        let tables: Vec<String> = order.iter().map(|table| format!("t{table}")).collect();
        format!(
            "SELECT {column}count(*) AS n, sum(t{summed}.x) AS total, min(t{least}.s) AS least\n\
             FROM {}\nWHERE {}{clause}",
            tables.join(", "),
            conditions.join("\n  AND ")
        )
    }
}

fn name((table, key): Column) -> String {
    match key {
        0 => format!("t{table}.id"),
        _ => format!("t{table}.k{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_a_graph() {
        let draw = |seed, number| Graph::draw(seed, number, 500);
        assert_eq!(draw(7, 3), draw(7, 3));
        assert_ne!(draw(7, 3).sql, draw(7, 4).sql);
        assert_ne!(draw(7, 3).sql, draw(8, 3).sql);
    }

    #[test]
    fn graphs_are_connected_and_bounded() {
        let mut shapes = vec![];
        for number in 0..40 {
            let rows = 400;
            let graph = Graph::draw(1, number, rows);
            let count = graph.tables.len();
            assert!((3..=10).contains(&count));
            assert!(
                graph
                    .tables
                    .iter()
                    .all(|t| (100..=rows).contains(&t.rows()))
            );
            for (at, [(parent, _), (child, _)]) in graph.joins[..count - 1].iter().enumerate() {
                assert!(*child == at + 1 && parent < child, "{number}");
            }
            let (result, _) = graph.tree_rows(true);
            assert!((1.0..=MOST_RESULT * rows as f64).contains(&result));
            let filters = graph.tables.iter().filter(|table| table.filter.is_some());
            assert!(filters.count() <= 4);
            for table in 0..count {
                let name = format!("t{table}");
                assert!(graph.sql.contains(&format!("{name}.")), "{}", graph.sql);
            }
            if !shapes.contains(&graph.shape) {
                shapes.push(graph.shape);
            }
        }
        assert_eq!(shapes.len(), 5);
    }

    /// Two rows of three match one of two each; the third is NULL.
    #[test]
    fn rows_are_counted_without_a_join() {
        let table = |keys: Vec<Vec<Option<i64>>>, x: Vec<usize>| Table {
            payloads: [x.clone(), x],
            keys,
            step: 1,
            filter: None,
        };
        let ids = |n: i64| (0..n).map(Some).collect::<Vec<_>>();
        let mut graph = Graph {
            shape: Shape::Chain,
            tables: vec![
                table(vec![ids(3), vec![Some(0), Some(1), None]], vec![1, 5, 9]),
                table(vec![ids(2), vec![Some(7), Some(7)]], vec![1, 5]),
                table(vec![ids(2), vec![Some(7), Some(7)]], vec![1, 5]),
            ],
            joins: vec![[(0, 1), (1, 0)], [(1, 1), (2, 1)]],
            sql: String::new(),
        };
        assert_eq!(graph.tree_rows(false), (4.0, 4.0));
        graph.tables[0].filter = Some((0, 5));
        assert_eq!(graph.tree_rows(true), (2.0, 4.0));
    }
}
