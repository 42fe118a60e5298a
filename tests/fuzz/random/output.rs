//! The rows of a run in a form that can be compared, and the orders in which they may come.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, Rows, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::JoinType;
use datafusion::error::Result;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};

use super::super::difference::Checked;
use super::case::{Case, Mode};
use super::plan::Inputs;

/// Makes rows of a plan comparable.
pub fn converter(plan: &Arc<dyn ExecutionPlan>) -> Result<RowConverter> {
    let schema = plan.schema();
    let fields = schema.fields().iter();
    let fields = fields.map(|field| SortField::new(field.data_type().clone()));
    Ok(RowConverter::new(fields.collect())?)
}

/// Batches of each partition, and their rows in a comparable form.
pub struct Output {
    pub batches: Vec<Vec<RecordBatch>>,
    pub rows: Vec<Rows>,
}

impl Output {
    pub fn new(converter: &RowConverter, batches: Vec<Vec<RecordBatch>>) -> Result<Self> {
        let mut rows = Vec::with_capacity(batches.len());
        for partition in &batches {
            let count = partition.iter().map(RecordBatch::num_rows).sum();
            let mut all = converter.empty_rows(count, 0);
            for batch in partition.iter().filter(|batch| batch.num_columns() > 0) {
                converter.append(&mut all, batch.columns())?;
            }
            rows.push(all);
        }
        Ok(Self { batches, rows })
    }

    pub fn counts(&self) -> Vec<usize> {
        let count = |batches: &Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).sum();
        self.batches.iter().map(count).collect()
    }

    pub fn count(&self) -> usize {
        self.counts().iter().sum()
    }

    /// Counts how often each row occurs.
    pub fn multiset(&self) -> HashMap<&[u8], isize> {
        let mut rows = HashMap::new();
        for row in self.rows.iter().flat_map(Rows::iter) {
            *rows.entry(row.data()).or_default() += 1;
        }
        rows
    }

    fn text(&self, limit: usize) -> String {
        let options = FormatOptions::default()
            .with_null("NULL")
            .with_display_error(true);
        let mut out = String::new();
        for (partition, batches) in self.batches.iter().enumerate() {
            out += &format!("  partition {partition}\n");
            let rows = batches.iter().flat_map(|batch| {
                let columns: Vec<ArrayFormatter> = batch
                    .columns()
                    .iter()
                    .filter_map(|column| ArrayFormatter::try_new(column, &options).ok())
                    .collect();
                let row = move |row: usize| -> String {
                    let values = columns.iter().map(|c| c.value(row).to_string());
                    values.collect::<Vec<_>>().join(" | ")
                };
                (0..batch.num_rows()).map(row).collect::<Vec<_>>()
            });
            for row in rows.take(limit) {
                out += &format!("    {row}\n");
            }
        }
        out
    }
}

/// The way in which rows are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// One sequence per partition.
    Sequences,
    /// One multiset per partition.
    Partitions,
    /// One multiset.
    Multiset,
}

impl Order {
    /// Matches come in probe order, and those of a probe row in build order. Unmatched build
    /// rows come last, but the stock join keeps its build batches last to first. Unmatched
    /// probe rows stand where they are, or behind the matches, unless `Right` has an ordered
    /// probe side.
    pub fn new(case: &Case, inputs: &Inputs, probe_ordered: bool) -> Self {
        if let Mode::Open { .. } = case.mode {
            return Order::Multiset;
        }
        let one_batch = inputs.build.most_batches() <= 1 && case.mode != Mode::Repartitioned;
        let known = match case.join_type {
            JoinType::Inner | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                true
            }
            JoinType::Right => probe_ordered,
            JoinType::Full => false,
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                one_batch
            }
        };
        match known && !case.side_by_side {
            true => Order::Sequences,
            false => Order::promised(case, inputs),
        }
    }

    /// That of rows in no particular order: each in its partition, where the plan says so or each
    /// partition is a join of its own.
    pub fn promised(case: &Case, inputs: &Inputs) -> Self {
        let by_keys = |plan: HashJoinExec| {
            let partitioning = plan.properties().output_partitioning();
            matches!(partitioning, Partitioning::Hash(..))
        };
        let keeps = match case.mode {
            Mode::Split | Mode::Repartitioned => true,
            Mode::Kept => inputs.stock(case, true).is_ok_and(by_keys),
            Mode::Collected | Mode::Open { .. } => false,
        };
        match keeps {
            true => Order::Partitions,
            false => Order::Multiset,
        }
    }
}

/// The orders that a plan declares for the rows of each partition.
pub struct Declared {
    schema: SchemaRef,
    /// All orders, one after the other: rows that follow each of them follow this one.
    all: LexOrdering,
}

impl Declared {
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        Some(Self {
            schema: plan.schema(),
            all: plan.properties().output_ordering()?.clone(),
        })
    }

    /// The sort keys of a partition's rows.
    fn keys(&self, batches: &[RecordBatch]) -> Result<Rows> {
        let field = |sort: &PhysicalSortExpr| {
            let data_type = sort.expr.data_type(&self.schema)?;
            Ok(SortField::new_with_options(data_type, sort.options))
        };
        let fields = self.all.iter().map(field).collect::<Result<Vec<_>>>()?;
        let converter = RowConverter::new(fields)?;
        let mut rows = converter.empty_rows(0, 0);
        for batch in batches {
            let keys = self.all.iter().map(|sort| {
                let value = sort.expr.evaluate(batch)?;
                value.into_array(batch.num_rows())
            });
            converter.append(&mut rows, &keys.collect::<Result<Vec<_>>>()?)?;
        }
        Ok(rows)
    }

    /// Returns whether each partition's rows are in this order.
    pub fn holds(&self, output: &Output) -> Checked<bool> {
        for batches in &output.batches {
            if !self.keys(batches)?.iter().is_sorted() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first `fetch` sort keys of all partitions together.
    pub fn first(&self, fetch: usize, output: &Output) -> Checked<Vec<Vec<u8>>> {
        let mut first = Vec::new();
        for batches in &output.batches {
            first.extend(self.keys(batches)?.iter().map(|key| key.data().to_vec()));
        }
        first.sort_unstable();
        first.truncate(fetch);
        Ok(first)
    }
}

/// Shows the rows that were expected, and those that were found.
pub struct Shown<'a>(pub &'a Output, pub &'a Output);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(expected, found) = self;
        writeln!(
            f,
            "rows {:?}, found {:?}",
            expected.counts(),
            found.counts()
        )?;
        writeln!(
            f,
            "expected\n{}found\n{}",
            expected.text(20),
            found.text(20)
        )
    }
}
