//! A query with the tables of its FROM lists in another order.
//!
//! ```text
//!   FROM a JOIN b ON a.x = b.x, c, d        FROM c, b, d, a
//!   WHERE a.y = c.y OR c.z                  WHERE (a.y = c.y OR c.z) AND (a.x = b.x)
//! ```
//!
//! Chains of plain inner joins become lists first, as their order is the order of the text, too.
//! This happens in subqueries and common table expressions alike. The rows stay the same, and so
//! do the columns, except those of `SELECT *`: such a SELECT keeps its order.
//!
//! An outer join, and one with USING, stays as it is: one item of the list, as a table is. Where
//! an item may depend on those before it (LATERAL, functions), the whole list stays.

use std::ops::ControlFlow;

use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, Select, SelectItem, TableFactor,
    TableWithJoins, VisitMut, VisitorMut,
};
use horton_test_support::Result;

use crate::random::Random;

/// A query that was parsed.
pub struct Shuffled {
    /// Its text.
    pub sql: String,
    /// Items of its longest list that may be shuffled.
    pub tables: usize,
}

/// Shuffles `sql`, the same for the same seed and order. Order 0 is the text as it was.
///
/// # Errors
/// If `sql` is not a single statement.
pub fn shuffle(sql: &str, seed: u64, order: usize) -> Result<Shuffled> {
    let mut statements = DFParser::parse_sql(sql)?;
    let (Some(Statement::Statement(mut statement)), true) =
        (statements.pop_front(), statements.is_empty())
    else {
        return Err("not a single query".into());
    };
    let mut shuffler = Shuffler {
        random: Random::new(seed, order),
        tables: 0,
    };
    let _ = statement.visit(&mut shuffler);
    Ok(Shuffled {
        sql: match order {
            0 => sql.to_owned(),
            _ => statement.to_string(),
        },
        tables: shuffler.tables,
    })
}

struct Shuffler {
    random: Random,
    tables: usize,
}

impl VisitorMut for Shuffler {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if is_free(select) {
            flatten(select);
            self.random.shuffle(&mut select.from);
            self.tables = self.tables.max(select.from.len());
        }
        ControlFlow::Continue(())
    }
}

/// Returns whether the order of the tables says nothing about the result.
fn is_free(select: &Select) -> bool {
    let mut columns = select.projection.iter();
    let has_star = columns.any(|item| matches!(item, SelectItem::Wildcard(_)));
    let factors = |item: &TableWithJoins| {
        let joined = item.joins.iter().map(|join| &join.relation);
        [&item.relation].into_iter().chain(joined).all(stands_alone)
    };
    !has_star && select.lateral_views.is_empty() && select.from.iter().all(factors)
}

/// Returns whether a table does not depend on those before it.
fn stands_alone(table: &TableFactor) -> bool {
    match table {
        TableFactor::Table { args, .. } => args.is_none(),
        TableFactor::Derived { lateral, .. } => !lateral,
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => {
            let joined = table_with_joins.joins.iter().map(|join| &join.relation);
            let mut all = [&table_with_joins.relation].into_iter().chain(joined);
            all.all(stands_alone)
        }
        _ => false,
    }
}

/// Makes chains of inner joins items of the list, and their conditions conditions of the WHERE.
fn flatten(select: &mut Select) {
    let mut conditions: Vec<Expr> = select.selection.take().into_iter().collect();
    for item in std::mem::take(&mut select.from) {
        if !item.joins.iter().all(|join| is_inner(&join.join_operator)) {
            select.from.push(item);
            continue;
        }
        let mut tables = vec![item.relation];
        for join in item.joins {
            tables.push(join.relation);
            if let JoinOperator::Join(JoinConstraint::On(condition))
            | JoinOperator::Inner(JoinConstraint::On(condition)) = join.join_operator
            {
                conditions.push(condition);
            }
        }
        let alone = |relation| TableWithJoins {
            relation,
            joins: vec![],
        };
        select.from.extend(tables.into_iter().map(alone));
    }
    select.selection = match conditions.len() {
        0 | 1 => conditions.pop(),
        // Text has no tree: an OR within needs its parentheses.
        _ => conditions
            .into_iter()
            .map(|condition| Expr::Nested(Box::new(condition)))
            .reduce(|left, right| Expr::BinaryOp {
                left: Box::new(left),
                op: BinaryOperator::And,
                right: Box::new(right),
            }),
    };
}

/// Returns whether a join is a product with a condition, or without.
fn is_inner(join: &JoinOperator) -> bool {
    matches!(
        join,
        JoinOperator::Join(JoinConstraint::On(_))
            | JoinOperator::Inner(JoinConstraint::On(_))
            | JoinOperator::CrossJoin(JoinConstraint::None)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(sql: &str, order: usize) -> String {
        shuffle(sql, 7, order).unwrap().sql
    }

    /// The tables of the first FROM, sorted, and the rest of the text.
    fn parts(sql: &str) -> (Vec<String>, String) {
        let (before, rest) = sql.split_once(" FROM ").unwrap();
        let (from, after) = rest.split_once(" WHERE ").unwrap();
        let mut tables: Vec<String> = from.split(", ").map(str::to_owned).collect();
        tables.sort_unstable();
        (tables, format!("{before} … {after}"))
    }

    #[test]
    fn tables_and_conditions_are_kept() {
        let sql = "SELECT count(*) FROM a JOIN b AS x ON a.i = x.i OR a.j = 1, c CROSS JOIN d \
                   WHERE a.k = c.k OR d.k = 2";
        assert_eq!(text(sql, 0), sql);
        let mut texts: Vec<String> = (1..50).map(|order| text(sql, order)).collect();
        for shuffled in &texts {
            let (tables, rest) = parts(shuffled);
            assert_eq!(tables, ["a", "b AS x", "c", "d"]);
            let conditions = "(a.k = c.k OR d.k = 2) AND (a.i = x.i OR a.j = 1)";
            assert_eq!(rest, format!("SELECT count(*) … {conditions}"));
        }
        assert_eq!(texts[3], text(sql, 4));
        texts.sort_unstable();
        texts.dedup();
        assert!(texts.len() > 12, "{}", texts.len());
        assert_eq!(shuffle(sql, 7, 1).unwrap().tables, 4);
    }

    #[test]
    fn subqueries_are_shuffled_too() {
        let sql = "WITH w AS (SELECT a.i FROM a, b, c WHERE a.i = b.i) SELECT w.i FROM w \
                   WHERE EXISTS (SELECT 1 FROM d, e WHERE d.i = w.i) \
                   UNION ALL SELECT v.i FROM (SELECT f.i FROM f, g, h, i) AS v";
        assert_eq!(shuffle(sql, 7, 1).unwrap().tables, 4);
        for was in ["FROM a, b, c", "FROM d, e", "FROM f, g, h, i"] {
            assert!(
                (1..20).any(|order| !text(sql, order).contains(was)),
                "{was}"
            );
        }
    }

    #[test]
    fn what_depends_on_the_order_stays() {
        for from in [
            "a LEFT JOIN b ON a.i = b.i",
            "a JOIN b USING(i)",
            "a, b, LATERAL (SELECT b.i) AS c",
            "a, UNNEST(a.list)",
            "a, b, generate_series(1, 2) AS c",
        ] {
            let sql = format!("SELECT a.i FROM {from}");
            assert!(
                (1..20).all(|order| text(&sql, order).ends_with(from)),
                "{from}"
            );
        }
        let star = "SELECT * FROM a, b, c";
        assert!((1..20).all(|order| text(star, order) == star));
        assert_eq!(shuffle(star, 7, 1).unwrap().tables, 0);
        assert!(shuffle("SELECT 1; SELECT 2", 7, 1).is_err());
    }

    #[test]
    fn an_outer_join_moves_as_a_whole() {
        let sql = "SELECT a.i FROM a LEFT JOIN b ON a.i = b.i, c";
        let moved = "SELECT a.i FROM c, a LEFT JOIN b ON a.i = b.i";
        assert!((1..20).any(|order| text(sql, order) == moved));
    }
}
