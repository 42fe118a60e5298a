//! How many rows a plan is expected to give, and how wide they are.
//!
//! ```text
//!                                       rows without filters × share that filters let through
//!  Join by o_orderkey                      6 M × 0.2 × 0.04
//!  ├─ Filter o_orderdate in a quarter      1.5 M × 0.2
//!  └─ Filter two columns of lineitem       6 M × 0.04
//! ```
//!
//! DataFusion's statistics, but for what they do not know without those of columns, as of tables in memory.
//!
//! **Filters**: where a filter's columns have no known bounds, DataFusion's analysis of intervals says that every row
//! passes (`FilterExec::statistics_helper`: a selectivity of 1), and for predicates that it cannot analyse it takes
//! `datafusion.optimizer.default_filter_selectivity`, however many there are. Here each column that must have certain
//! values has that selectivity, as if columns were independent (Selinger et al., SIGMOD 1979, table 1, with one default
//! for all), and so has each condition on several columns together. Up to three count; what a predicate excludes does not. Which of two columns is the larger nothing says: half of the
//! rows pass a comparison of them. (TPC-H at scale 1: of 6,001,215 rows of query 14
//! all are expected, 75,983 pass; of query 19 1,200,243 are expected, and 128,371 pass.)
//!
//! **Joins**: without counts of distinct values DataFusion expects as many rows as the smaller side has
//! (`estimate_inner_join_cardinality`). Here it is a foreign key that joins, whatever is known of columns: one side has a row for each key,
//! so that the other side's rows meet one each, unless a filter took it away. (Query 18: orders with their lines, 6,001,215 rows, of which
//! 1,500,000 are expected there.)

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{JoinType, Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, LikeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::join::HortonJoinExec;

/// Columns with a filter and conditions on several columns that count, at most, and as many comparisons of columns.
const MOST_ASKED: usize = 3;

/// The share of rows of which one column is the smaller, or the larger, of two.
const SMALLER: f64 = 0.5;

/// Tells how many rows plans give, while these are as they are: statistics are remembered by node.
#[derive(Default)]
pub struct Rows {
    context: StatisticsContext,
}

/// Rows of a plan.
#[derive(Debug, Clone, Copy)]
struct Expected {
    /// Without filters.
    all: f64,
    /// What filters let through of them.
    share: f64,
}

impl Expected {
    fn exactly(rows: usize) -> Self {
        Self {
            all: rows as f64,
            share: 1.0,
        }
    }

    fn rows(self) -> f64 {
        self.all * self.share
    }

    /// The same with a part of its rows.
    fn filtered(self, share: f64) -> Self {
        Self {
            share: self.share * share,
            ..self
        }
    }

    /// Of a join of two sides.
    fn joined(join_type: JoinType, left: Self, right: Self) -> Self {
        let all = left.all.max(right.all);
        let inner = Self {
            all,
            share: left.share * right.share,
        };
        // Rows that meet none are there all the same.
        let outer = |least: f64| Self {
            all,
            share: inner.share.max(least / all.max(1.0)),
        };
        match join_type {
            JoinType::Inner => inner,
            JoinType::Left => outer(left.rows()),
            JoinType::Right => outer(right.rows()),
            JoinType::Full => outer(left.rows().max(right.rows())),
            JoinType::LeftSemi => left.filtered(right.share),
            JoinType::RightSemi => right.filtered(left.share),
            JoinType::LeftAnti | JoinType::LeftMark => left,
            JoinType::RightAnti | JoinType::RightMark => right,
        }
    }
}

impl Rows {
    /// The rows that `plan` is expected to give, if that can be told.
    ///
    /// # Errors
    /// Those of the plan's statistics.
    pub fn of(&self, plan: &dyn ExecutionPlan) -> Result<Option<usize>> {
        Ok(self
            .expected(plan)?
            .map(|expected| expected.rows() as usize))
    }

    /// Whether `side` of a join by a foreign key has that: it has more rows than the `other`, without filters.
    ///
    /// # Errors
    /// Those of the plans' statistics.
    pub fn repeats(&self, side: &dyn ExecutionPlan, other: &dyn ExecutionPlan) -> Result<bool> {
        let all = |plan| Ok::<_, DataFusionError>(self.expected(plan)?.map(|rows| rows.all));
        Ok(all(side)? > all(other)?)
    }

    fn expected(&self, plan: &dyn ExecutionPlan) -> Result<Option<Expected>> {
        let most = plan.fetch().unwrap_or(usize::MAX);
        let limited = |expected: Expected| match expected.rows() > most as f64 {
            true => Expected::exactly(most),
            false => expected,
        };
        Ok(self.unlimited(plan)?.map(limited))
    }

    /// As [`expected`](Self::expected), but for the plan's own limit.
    fn unlimited(&self, plan: &dyn ExecutionPlan) -> Result<Option<Expected>> {
        let known = self.known(plan)?;
        if known == Some(0) {
            return Ok(Some(Expected::exactly(0)));
        }
        if let Some(join) = hash_join(plan) {
            let (left, right) = (join.left(), join.right());
            let sides = (
                self.expected(left.as_ref())?,
                self.expected(right.as_ref())?,
            );
            return Ok(match sides {
                (Some(left), Some(right)) => Some(Expected::joined(*join.join_type(), left, right)),
                _ => known.map(Expected::exactly),
            });
        }
        let (Some(rows), [input]) = (known, &plan.children()[..]) else {
            return Ok(known.map(Expected::exactly));
        };
        let below = self.known(input.as_ref())?;
        let filter = plan.downcast_ref::<FilterExec>();
        match filter {
            Some(filter) => self.filtered(filter, (rows, below)),
            // An aggregate of which nothing is known has as many rows as its input, too.
            None if below == Some(rows) => self.expected(input.as_ref()),
            None => Ok(Some(Expected::exactly(rows))),
        }
    }

    /// What `filter` lets through, that by statistics has so many rows above and below.
    fn filtered(
        &self,
        filter: &FilterExec,
        (above, below): (usize, Option<usize>),
    ) -> Result<Option<Expected>> {
        let input = filter.input().as_ref();
        let statistics = self.context.compute(input, &StatisticsArgs::new())?;
        let known = above as f64 / below.unwrap_or(above).max(1) as f64;
        let share = (known * unknown_share(filter, Some(above), &statistics)).min(1.0);
        let expected = self.expected(input)?;
        Ok(expected.map(|expected| expected.filtered(share)))
    }

    /// The rows of `plan` by its statistics.
    fn known(&self, plan: &dyn ExecutionPlan) -> Result<Option<usize>> {
        let statistics = self.context.compute(plan, &StatisticsArgs::new())?;
        Ok(statistics.num_rows.get_value().copied())
    }
}

/// The node as a hash join, wherever that runs.
fn hash_join(plan: &dyn ExecutionPlan) -> Option<&HashJoinExec> {
    let horton = plan.downcast_ref::<HortonJoinExec>();
    let stock = horton.map(|join| join.stock().as_ref());
    stock.or_else(|| plan.downcast_ref())
}

/// Values of eight bytes of a row, beside two; strings and nested values count as views of them.
pub fn more_values(schema: &Schema) -> f64 {
    let bytes = |field: &Arc<Field>| match field.data_type() {
        DataType::Null | DataType::Boolean => 0,
        other => other.primitive_width().unwrap_or(16),
    };
    let bytes: usize = schema.fields().iter().map(bytes).sum();
    (bytes as f64 / 8.0 - 2.0).max(0.0)
}

/// Columns of strings or bytes of any length.
pub fn texts(schema: &Schema) -> usize {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    let is_text = |data_type: &DataType| {
        matches!(
            data_type,
            Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
        )
    };
    let types = schema.fields().iter().map(|field| field.data_type());
    types.filter(|data_type| is_text(data_type)).count()
}

/// The share of the rows that `filter` is expected to keep here, of those that it is expected to keep by
/// statistics (`rows`, of `input`'s).
fn unknown_share(filter: &FilterExec, rows: Option<usize>, input: &Statistics) -> f64 {
    let of = input.num_rows.get_value().copied();
    let is_known = |column: &Column| {
        let known = input.column_statistics.get(column.index());
        known.is_some_and(|known| {
            known.min_value.get_value().is_some() && known.max_value.get_value().is_some()
        })
    };
    if collect_columns(filter.predicate()).iter().all(is_known) {
        return 1.0;
    }
    let a_column = f64::from(filter.default_selectivity()) / 100.0;
    let asked = Asked::of(filter.predicate(), is_known);
    let share = match (asked.values, asked.compared) {
        (0, 0) => a_column,
        (values, compared) => {
            let power = |share: f64, times: usize| share.powi(times.min(MOST_ASKED) as i32);
            power(a_column, values) * power(SMALLER, compared)
        }
    };
    let by_default = of.map(|of| (of as f64 * a_column).ceil() as usize);
    match rows {
        _ if rows == of => share,
        // With a default of nothing there is nothing to correct.
        Some(rows)
            if a_column > 0.0 && by_default.is_some_and(|default| default.abs_diff(rows) <= 1) =>
        {
            share / a_column
        }
        _ => 1.0,
    }
}

/// What a predicate asks for that statistics do not answer.
struct Asked {
    /// Columns that must have certain values, and conditions on several columns together.
    values: usize,
    /// Comparisons of columns.
    compared: usize,
}

impl Asked {
    fn of(predicate: &Arc<dyn PhysicalExpr>, is_known: impl Fn(&Column) -> bool) -> Self {
        let (mut columns, mut together, mut compared) = (HashSet::new(), 0, 0);
        for conjunct in split_conjunction(predicate) {
            let mut of_it = collect_columns(conjunct);
            match of_it.len() {
                _ if excludes(conjunct) || of_it.iter().all(&is_known) => {}
                1 => columns.extend(of_it.drain()),
                _ if compares_columns(conjunct) => compared += 1,
                _ => together += 1,
            }
        }
        let values = columns.len() + together;
        Self { values, compared }
    }
}

/// Whether the expression asks which of two columns is the larger.
fn compares_columns(predicate: &Arc<dyn PhysicalExpr>) -> bool {
    use Operator::{Gt, GtEq, Lt, LtEq};
    predicate
        .downcast_ref::<BinaryExpr>()
        .is_some_and(|binary| {
            let sides = [binary.left(), binary.right()];
            [Lt, LtEq, Gt, GtEq].contains(binary.op()) && sides.into_iter().all(is_column)
        })
}

/// Whether the expression is a column, of whatever type it is compared as.
fn is_column(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let cast = expression.downcast_ref::<CastExpr>().map(CastExpr::expr);
    let tried = expression
        .downcast_ref::<TryCastExpr>()
        .map(TryCastExpr::expr);
    match cast.or(tried) {
        Some(expression) => is_column(expression),
        None => expression.is::<Column>(),
    }
}

/// Whether the expression is true of all but some values.
fn excludes(predicate: &Arc<dyn PhysicalExpr>) -> bool {
    use Operator::{
        IsDistinctFrom, NotEq, NotILikeMatch, NotLikeMatch, Or, RegexNotIMatch, RegexNotMatch,
    };
    if let Some(binary) = predicate.downcast_ref::<BinaryExpr>() {
        if *binary.op() == Or {
            return excludes(binary.left()) || excludes(binary.right());
        }
        let not = [
            NotEq,
            IsDistinctFrom,
            NotLikeMatch,
            NotILikeMatch,
            RegexNotMatch,
            RegexNotIMatch,
        ];
        return not.contains(binary.op());
    }
    let like = predicate.downcast_ref::<LikeExpr>();
    let list = predicate.downcast_ref::<InListExpr>();
    like.is_some_and(LikeExpr::negated)
        || list.is_some_and(InListExpr::negated)
        || predicate.is::<NotExpr>()
        || predicate.is::<IsNotNullExpr>()
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
    use datafusion::common::ScalarValue;
    use datafusion::common::stats::Precision;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::cost::scans::with_known_rows;

    /// A table `t` of 1,000 rows, in memory, whose columns have no statistics.
    fn session() -> SessionContext {
        let numbers = || Arc::new(Int32Array::from_iter_values(0..1000)) as ArrayRef;
        let texts = Arc::new(StringArray::from_iter_values(
            (0..1000).map(|i| i.to_string()),
        ));
        let columns = [
            ("a", numbers()),
            ("b", numbers()),
            ("c", numbers()),
            ("s", texts as ArrayRef),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let context = SessionContext::new();
        context.register_batch("t", batch).unwrap();
        context
    }

    /// The same, whether scans are those of DataFusion or know their rows.
    async fn rows_of(sql: &str) -> Option<usize> {
        let frame = session().sql(sql).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let known = with_known_rows(&plan).unwrap();
        let rows = Rows::default().of(plan.as_ref()).unwrap();
        assert_eq!(Rows::default().of(known.as_ref()).unwrap(), rows, "{sql}");
        rows
    }

    #[tokio::test]
    async fn a_filter_of_which_nothing_is_known_keeps_a_fifth() {
        assert_eq!(rows_of("SELECT a FROM t").await, Some(1000));
        assert_eq!(rows_of("SELECT a FROM t WHERE a > 10").await, Some(200));
        let twice = "SELECT a + 1 FROM (SELECT a FROM t WHERE a > 10) WHERE random() < a";
        assert!(rows_of(twice).await.is_some_and(|rows| rows <= 200));
    }

    #[tokio::test]
    async fn each_column_that_a_filter_asks_values_of_keeps_a_fifth() {
        for (filter, rows) in [
            ("a > 10 AND a < 20", 200),
            ("a > 10 AND b < 20", 40),
            ("s LIKE 'x%'", 200),
            ("s LIKE 'x%' AND b < 20", 40),
            (
                "(s = 'x' OR s = 'y') AND a IN (1, 2, 3, 4, 5) AND b < 20",
                8,
            ),
            // What is excluded is little.
            ("s NOT LIKE 'x%' AND a > 10 AND b <> 7", 200),
            (
                "s NOT IN ('x', 'y', 'z', 'u', 'v') AND NOT (s LIKE 'a%' OR a > 7)",
                200,
            ),
            // Half of the rows have the smaller value in one of two columns.
            ("a < b", 500),
            ("b >= a AND s = 'x'", 100),
            ("a < b AND b < c AND s = 'x'", 50),
            ("a < CAST(b AS BIGINT) AND a * 2 < b", 100),
            ("a < b AND b < c AND a < c AND a <= b AND b <= c", 125),
            ("a = b", 200),
            ("a = b AND a < c", 100),
            ("a = b AND c < 7", 40),
            ("a = b AND b = c AND a = c AND a + b = c", 8),
            ("TRY_CAST(a AS BIGINT) >= CAST(b AS BIGINT)", 500),
            ("a < 7 AND (a <> 7 OR b <> 2)", 200),
            ("a < 7 AND a IS DISTINCT FROM b", 200),
        ] {
            let query = format!("SELECT a FROM t WHERE {filter}");
            assert_eq!(rows_of(&query).await, Some(rows), "{filter}");
        }
    }

    #[tokio::test]
    async fn a_filter_over_known_bounds_keeps_what_statistics_say() {
        let frame = session()
            .sql("SELECT a FROM t WHERE a > 10 AND b > 10")
            .await;
        let plan = frame.unwrap().create_physical_plan().await.unwrap();
        let mut node = &plan;
        while !node.is::<FilterExec>() {
            node = node.children()[0];
        }
        let filter = node.downcast_ref::<FilterExec>().unwrap();
        let share = |known: usize| {
            let mut statistics = Statistics::new_unknown(&filter.input().schema());
            statistics.num_rows = Precision::Exact(1000);
            for column in &mut statistics.column_statistics[..known] {
                column.min_value = Precision::Exact(ScalarValue::Int32(Some(20)));
                column.max_value = Precision::Exact(ScalarValue::Int32(Some(30)));
            }
            unknown_share(filter, Some(1000), &statistics)
        };
        assert!((share(0) - 0.04).abs() < 1e-9);
        assert!((share(1) - 0.2).abs() < 1e-9);
        assert_eq!(share(2), 1.0);
    }

    #[tokio::test]
    async fn a_joined_row_is_there_for_each_row_of_the_larger_side_unless_filters_took_it() {
        let fewer = "(SELECT a, b FROM t WHERE a > 10)";
        for (join, rows) in [
            ("t x JOIN t y ON x.a = y.a".to_owned(), 1000),
            (format!("{fewer} x JOIN t y ON x.a = y.a"), 200),
            (format!("{fewer} x JOIN {fewer} y ON x.a = y.b"), 40),
            (format!("{fewer} x LEFT JOIN {fewer} y ON x.a = y.b"), 200),
            (format!("{fewer} x RIGHT JOIN t y ON x.a = y.b"), 1000),
            (format!("{fewer} x FULL JOIN {fewer} y ON x.a = y.b"), 200),
            (
                "(SELECT a FROM t LIMIT 10) x JOIN t y ON x.a = y.a".to_owned(),
                1000,
            ),
            (
                "(SELECT a FROM t WHERE false) x RIGHT JOIN t y ON x.a = y.a".to_owned(),
                1000,
            ),
            (
                format!("(SELECT y.a FROM {fewer} x JOIN t y ON x.a = y.a LIMIT 150) y"),
                150,
            ),
        ] {
            let query = format!("SELECT y.a FROM {join}");
            assert_eq!(rows_of(&query).await, Some(rows), "{join}");
        }
        for (condition, rows) in [
            (format!("a IN (SELECT b FROM {fewer})"), 200),
            ("a IN (SELECT b FROM t)".to_owned(), 1000),
            (
                format!("NOT EXISTS (SELECT 1 FROM {fewer} y WHERE y.a = t.b)"),
                1000,
            ),
        ] {
            let query = format!("SELECT a FROM t WHERE {condition}");
            assert_eq!(rows_of(&query).await, Some(rows), "{condition}");
        }
    }

    #[tokio::test]
    async fn the_side_with_more_rows_has_the_foreign_key_whatever_filters_leave() {
        let plan = async |sql: &str| {
            let frame = session().sql(sql).await.unwrap();
            frame.create_physical_plan().await.unwrap()
        };
        let few = plan("SELECT a FROM t WHERE a > 10 AND b < 20").await;
        let less = plan("SELECT a FROM t LIMIT 100").await;
        let repeats = |side: &Arc<dyn ExecutionPlan>, other: &Arc<dyn ExecutionPlan>| {
            Rows::default()
                .repeats(side.as_ref(), other.as_ref())
                .unwrap()
        };
        assert!(repeats(&few, &less));
        assert!(!repeats(&less, &few));
        assert!(!repeats(&few, &few));
    }

    #[test]
    fn rows_are_as_wide_as_their_columns() {
        let field = |data_type| Field::new("c", data_type, true);
        let two = Schema::new(vec![field(DataType::Int64); 2]);
        assert_eq!(more_values(&two), 0.0);
        assert_eq!(more_values(&Schema::empty()), 0.0);
        let types = [
            DataType::Int64,
            DataType::Utf8View,
            DataType::Int32,
            DataType::Boolean,
        ];
        let wide = Schema::new(types.map(field).to_vec());
        assert_eq!(more_values(&wide), 1.5);
        assert_eq!((texts(&two), texts(&wide)), (0, 1));
    }

    #[tokio::test]
    async fn what_statistics_know_stays() {
        let in_order = "SELECT a FROM (SELECT a FROM t WHERE a > 10) ORDER BY a";
        assert_eq!(rows_of(in_order).await, Some(200));
        assert_eq!(rows_of("SELECT a FROM t WHERE false").await, Some(0));
        let one = "SELECT count(*) FROM t WHERE a > 10";
        assert_eq!(rows_of(one).await, Some(1));
        // An aggregate that is estimated to have as many rows as its input has as many as that.
        let groups = "SELECT a, count(*) FROM t WHERE a > 10 GROUP BY a";
        assert_eq!(rows_of(groups).await, Some(200));
    }
}
