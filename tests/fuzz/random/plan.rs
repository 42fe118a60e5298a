//! Plans from cases: the inputs, `HashJoinExec`, `NestedLoopJoinExec`.

use std::iter::repeat_n;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{SortOptions, sort_to_indices, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::{JoinSide, NullEquality, Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::{FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::Operator;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column as ColumnExpr, IsNullExpr, Literal, lit,
};
use datafusion::physical_expr::{LexOrdering, Partitioning, PhysicalExprRef, PhysicalSortExpr};
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, build_join_schema};
use datafusion::physical_plan::joins::{
    HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, PartitionMode,
};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::test::TestMemoryExec;
use datafusion::physical_plan::union::UnionExec;
use horton_join::config::{Enabled, HortonConfig, Knobs, OnDeviceError};

use super::case::{Case, Filter, Key, Mode, Side, Term};
use super::gather::GatherExec;

/// Rows in front of a sliced side's own.
const PREFIX: usize = 3;

/// The hashes that [`Mode::Split`] splits by: not those of any operator.
const SPLIT: RandomState = RandomState::with_seed(77);

/// A case's inputs, as arrays.
pub struct Inputs {
    pub build: Input,
    pub probe: Input,
}

/// One side as arrays.
pub struct Input {
    pub schema: SchemaRef,
    pub rows: RecordBatch,
    pub on: Vec<PhysicalExprRef>,
    side: JoinSide,
    partitions: Vec<Vec<RecordBatch>>,
    sorted_by: Option<usize>,
    /// The last column is the number of the partition.
    is_tagged: bool,
}

impl Inputs {
    pub fn new(case: &Case) -> Result<Self> {
        let (build, probe) = match case.mode {
            Mode::Collected => (1, case.partitions),
            Mode::Split => (case.partitions, case.partitions),
            Mode::Kept | Mode::Repartitioned => (1, 1),
            Mode::Open { build } => (build, case.partitions),
        };
        Ok(Self {
            build: Input::new(case, JoinSide::Left, build)?,
            probe: Input::new(case, JoinSide::Right, probe)?,
        })
    }

    /// The stock join, without its limit if `fetch` is false. It builds the left side.
    pub fn stock(&self, case: &Case, fetch: bool) -> Result<HashJoinExec> {
        let inputs = match case.mode {
            Mode::Open { .. } => (self.build.collected(case)?, self.probe.exec(case)?),
            _ => (self.build.exec(case)?, self.probe.exec(case)?),
        };
        let mode = match case.mode {
            Mode::Collected | Mode::Kept | Mode::Open { .. } => PartitionMode::CollectLeft,
            Mode::Split | Mode::Repartitioned => PartitionMode::Partitioned,
        };
        self.stock_of(inputs, case, (mode, fetch))
    }

    /// The stock join that builds the right side.
    pub fn swapped(&self, case: &Case) -> Result<Arc<dyn ExecutionPlan>> {
        let inputs = (self.build.exec(case)?, self.probe.collected(case)?);
        let join = self.stock_of(inputs, case, (PartitionMode::Auto, true))?;
        let swapped = join.swap_inputs(PartitionMode::CollectLeft)?;
        Ok(match swapped.is::<HashJoinExec>() {
            true => swapped,
            // Below a projection that puts columns into their order.
            false => Arc::clone(swapped.children()[0]),
        })
    }

    /// The join that ours stands for.
    pub fn planned(&self, case: &Case) -> Result<HashJoinExec> {
        let Mode::Open { .. } = case.mode else {
            return self.stock(case, true);
        };
        let inputs = (self.build.exec(case)?, self.probe.exec(case)?);
        self.stock_of(inputs, case, (PartitionMode::Auto, true))
    }

    /// The planned join over Parquet files in `folder`; `None` if they would not have the same
    /// rows: types that the format lacks, and partitions that must keep theirs.
    pub fn over_files(&self, case: &Case, folder: &Path) -> Option<HashJoinExec> {
        if case.mode == Mode::Split {
            return None;
        }
        let build = self.build.files(case, &folder.join("build")).ok()?;
        let probe = self.probe.files(case, &folder.join("probe")).ok()?;
        let mode = match case.mode {
            Mode::Open { .. } => PartitionMode::Auto,
            Mode::Collected | Mode::Kept => PartitionMode::CollectLeft,
            Mode::Split | Mode::Repartitioned => PartitionMode::Partitioned,
        };
        self.stock_of((build, probe), case, (mode, true)).ok()
    }

    fn stock_of(
        &self,
        (left, right): (Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>),
        case: &Case,
        (mode, fetch): (PartitionMode, bool),
    ) -> Result<HashJoinExec> {
        let on = self.build.on.iter().zip(&self.probe.on);
        let on = on.map(|(l, r)| (Arc::clone(l), Arc::clone(r))).collect();
        HashJoinExecBuilder::new(left, right, on, case.join_type)
            .with_filter(self.filter(case))
            .with_projection(self.projection(case))
            .with_partition_mode(mode)
            .with_null_equality(case.null_equality)
            .with_null_aware(case.null_aware)
            .with_fetch(case.fetch.filter(|_| fetch))
            .build()
    }

    /// The same join without hashing: every pair of rows is asked. Without the projection (it
    /// does not take a mark column twice) and limit.
    pub fn nested_loop(&self, case: &Case) -> Result<NestedLoopJoinExec> {
        let mut scope = Scope::new(self);
        let equal = match case.null_equality {
            NullEquality::NullEqualsNothing => Operator::Eq,
            NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
        };
        let mut condition = scope.filter(&Filter::Constant(Some(true)));
        for key in &case.on {
            let l = scope.column(JoinSide::Left, key.build);
            let r = scope.column(JoinSide::Right, key.probe);
            let pair = BinaryExpr::new(as_key(l, key), equal, as_key(r, key));
            condition = and(condition, Arc::new(pair));
        }
        if let Some(filter) = &case.filter {
            condition = and(condition, scope.filter(filter));
        }
        let mut probe = self.probe.partitions.concat();
        probe.retain(|batch| batch.num_rows() > 0);
        NestedLoopJoinExec::try_new(
            TestMemoryExec::try_new_exec(
                &[self.build.partitions.concat()],
                Arc::clone(&self.build.schema),
                None,
            )?,
            TestMemoryExec::try_new_exec(&[probe], Arc::clone(&self.probe.schema), None)?,
            Some(scope.into_filter(condition)),
            &case.join_type,
            None,
        )
    }

    fn filter(&self, case: &Case) -> Option<JoinFilter> {
        let mut scope = Scope::new(self);
        let expression = scope.filter(case.filter.as_ref()?);
        Some(scope.into_filter(expression))
    }

    /// The output columns among all of them.
    pub fn projection(&self, case: &Case) -> Option<Vec<usize>> {
        let (schema, _) =
            build_join_schema(&self.build.schema, &self.probe.schema, &case.join_type);
        let columns = schema.fields().len();
        let wanted = case.projection.as_ref()?;
        Some(wanted.iter().map(|index| index % columns).collect())
    }
}

impl Input {
    fn new(case: &Case, side: JoinSide, parts: usize) -> Result<Self> {
        let (data, name) = match side {
            JoinSide::Left => (&case.build, "b"),
            _ => (&case.probe, "p"),
        };
        let (mut schema, mut rows) = arrays(data, name)?;
        // Partitions that are split by a hash have rows of every batch.
        let is_tagged = data.tagged && case.mode != Mode::Split;
        if is_tagged {
            (schema, rows) = tagged(&schema, &rows, &data.batches, parts)?;
        }
        let on = case.on.iter().map(|key| {
            let index = match side {
                JoinSide::Left => key.build,
                _ => key.probe,
            };
            let column = ColumnExpr::new(schema.field(index).name(), index);
            as_key(Arc::new(column), key)
        });
        let on: Vec<PhysicalExprRef> = on.collect();
        let partitions = match case.mode {
            Mode::Split => split(&rows, &on, parts)?
                .iter()
                .map(|part| cut(part, &data.batches))
                .collect(),
            _ => deal(cut(&rows, &data.batches), parts),
        };
        Ok(Self {
            schema,
            rows,
            on,
            side,
            partitions,
            sorted_by: data.sorted_by,
            is_tagged,
        })
    }

    /// Non-empty batches of the partition that has most.
    pub fn most_batches(&self) -> usize {
        let filled = |batches: &Vec<RecordBatch>| {
            batches.iter().filter(|batch| batch.num_rows() > 0).count()
        };
        self.partitions.iter().map(filled).max().unwrap_or(0)
    }

    pub fn keys(&self) -> Result<Vec<ArrayRef>> {
        evaluate_expressions_to_arrays(&self.on, &self.rows)
    }

    fn exec(&self, case: &Case) -> Result<Arc<dyn ExecutionPlan>> {
        let exec = match self.is_tagged {
            true => self.union()?,
            false => self.exec_of(&self.partitions)?,
        };
        let exec = self.repartitioned(case, exec)?;
        Ok(match case.gathers {
            true => GatherExec::over(exec),
            false => exec,
        })
    }

    /// A union of the partitions, each with its number as a literal: as in
    /// `SELECT *, 0 AS tag FROM a UNION ALL SELECT *, 1 FROM b`.
    fn union(&self) -> Result<Arc<dyn ExecutionPlan>> {
        let fields = self.schema.fields();
        let (tag, fields) = (fields[fields.len() - 1].name(), &fields[..fields.len() - 1]);
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let columns: Vec<usize> = (0..fields.len()).collect();
        let parts = self.partitions.iter().enumerate().map(|(number, batches)| {
            let batches = batches.iter().map(|batch| Ok(batch.project(&columns)?));
            let batches = vec![batches.collect::<Result<_>>()?];
            let rows = self.exec_under(&schema, &batches)?;
            let mut columns: Vec<ProjectionExpr> = Vec::new();
            for (index, field) in fields.iter().enumerate() {
                let column = Arc::new(ColumnExpr::new(field.name(), index));
                columns.push(ProjectionExpr::new(column, field.name()));
            }
            columns.push(ProjectionExpr::new(lit(number as i32), tag));
            Ok(Arc::new(ProjectionExec::try_new(columns, rows)?) as _)
        });
        UnionExec::try_new(parts.collect::<Result<_>>()?)
    }

    /// The same rows and batches in one partition.
    fn collected(&self, case: &Case) -> Result<Arc<dyn ExecutionPlan>> {
        let sizes = match self.side {
            JoinSide::Left => &case.build.batches,
            _ => &case.probe.batches,
        };
        self.exec_of(&[cut(&self.rows, sizes)])
    }

    fn exec_of(&self, partitions: &[Vec<RecordBatch>]) -> Result<Arc<dyn ExecutionPlan>> {
        self.exec_under(&self.schema, partitions)
    }

    fn exec_under(
        &self,
        schema: &SchemaRef,
        partitions: &[Vec<RecordBatch>],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut exec = TestMemoryExec::try_new_exec(partitions, Arc::clone(schema), None)?;
        if let Some(index) = self.sorted_by {
            let column = Arc::new(ColumnExpr::new(self.schema.field(index).name(), index));
            let sort = PhysicalSortExpr::new(column, SortOptions::new(false, true));
            let ordering = LexOrdering::new([sort]).into_iter().collect();
            exec = Arc::new(Arc::unwrap_or_clone(exec).try_with_sort_information(ordering)?);
        }
        Ok(exec)
    }

    fn repartitioned(
        &self,
        case: &Case,
        exec: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let by_keys = match case.mode {
            Mode::Repartitioned => true,
            Mode::Kept => self.side == JoinSide::Right,
            _ => false,
        };
        Ok(match by_keys {
            true => Arc::new(RepartitionExec::try_new(
                exec,
                Partitioning::Hash(self.on.clone(), case.partitions),
            )?),
            false => exec,
        })
    }

    /// A scan of one file per partition, whose names begin with `path`.
    fn files(&self, case: &Case, path: &Path) -> Result<Arc<dyn ExecutionPlan>> {
        let source = Arc::new(ParquetSource::new(Arc::clone(&self.schema)));
        let local = ObjectStoreUrl::local_filesystem();
        let mut config = FileScanConfigBuilder::new(local, source);
        for (p, batches) in self.partitions.iter().enumerate() {
            let file = path.with_extension(p.to_string());
            let mut bytes = Vec::new();
            let mut writer = ArrowWriter::try_new(&mut bytes, Arc::clone(&self.schema), None)?;
            for batch in batches {
                writer.write(batch)?;
                writer.flush()?;
            }
            writer.close()?;
            std::fs::write(&file, &bytes)?;
            let name = file.to_string_lossy().into_owned();
            config = config.with_file(PartitionedFile::new(name, bytes.len() as u64));
        }
        let scan = DataSourceExec::from_data_source(config.build());
        self.repartitioned(case, scan)
    }
}

/// All rows of a side in one batch.
fn arrays(side: &Side, name: &str) -> Result<(SchemaRef, RecordBatch)> {
    let rows = side.rows();
    let mut order: Vec<usize> = (0..rows).collect();
    if let Some(column) = side.sorted_by {
        let column = &side.columns[column];
        let sort = SortOptions::new(false, true);
        let indices = sort_to_indices(&column.kind.array(&column.values), Some(sort), None)?;
        order = indices.values().iter().map(|row| *row as usize).collect();
    }
    let prefix = if side.sliced { PREFIX } else { 0 };
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (index, column) in side.columns.iter().enumerate() {
        let first = column.values.first().copied().flatten();
        let mut values = vec![first; prefix];
        values.extend(order.iter().map(|row| column.values[*row]));
        let array = column.kind.array(&values);
        let nullable = index % 2 == 0 || array.is_nullable();
        let name = format!("{name}{index}");
        fields.push(Field::new(name, array.data_type().clone(), nullable));
        columns.push(array.slice(prefix, rows));
    }
    let schema = Arc::new(Schema::new(fields));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
    Ok((schema, batch))
}

/// The rows with one more column: the number of the partition that each is dealt to.
fn tagged(
    schema: &SchemaRef,
    rows: &RecordBatch,
    sizes: &[usize],
    parts: usize,
) -> Result<(SchemaRef, RecordBatch)> {
    let batches = cut(rows, sizes).into_iter().enumerate();
    let tags = batches.flat_map(|(at, batch)| repeat_n((at % parts) as i32, batch.num_rows()));
    let mut fields = schema.fields().to_vec();
    fields.push(Arc::new(Field::new(
        format!("tag{}", fields.len()),
        DataType::Int32,
        false,
    )));
    let mut columns = rows.columns().to_vec();
    columns.push(Arc::new(Int32Array::from_iter_values(tags)));
    let schema = Arc::new(Schema::new(fields));
    Ok((Arc::clone(&schema), RecordBatch::try_new(schema, columns)?))
}

/// The rows in batches of `sizes`, over and over.
fn cut(rows: &RecordBatch, sizes: &[usize]) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    let mut at = 0;
    let any = sizes.iter().any(|size| *size > 0);
    let sizes = if any { sizes } else { &[usize::MAX] };
    for size in sizes.iter().cycle() {
        let size = (*size).min(rows.num_rows() - at);
        batches.push(rows.slice(at, size));
        at += size;
        if at == rows.num_rows() {
            break;
        }
    }
    batches
}

/// Batches dealt out to partitions in turn.
fn deal(batches: Vec<RecordBatch>, parts: usize) -> Vec<Vec<RecordBatch>> {
    let mut partitions = vec![Vec::new(); parts];
    for (at, batch) in batches.into_iter().enumerate() {
        partitions[at % parts].push(batch);
    }
    partitions
}

/// The rows split by their keys' hash.
fn split(rows: &RecordBatch, on: &[PhysicalExprRef], parts: usize) -> Result<Vec<RecordBatch>> {
    let keys = evaluate_expressions_to_arrays(on, rows)?;
    let mut hashes = vec![0; rows.num_rows()];
    create_hashes(&keys, &SPLIT, &mut hashes)?;
    let part = |part: usize| {
        let rows = hashes.iter().enumerate();
        let mine = rows.filter(|(_, hash)| **hash as usize % parts == part);
        UInt32Array::from_iter_values(mine.map(|(row, _)| row as u32))
    };
    (0..parts)
        .map(|p| Ok(take_record_batch(rows, &part(p))?))
        .collect()
}

fn as_key(column: PhysicalExprRef, key: &Key) -> PhysicalExprRef {
    match key.as_text {
        true => Arc::new(CastExpr::new(column, DataType::Utf8, None)),
        false => column,
    }
}

fn and(a: PhysicalExprRef, b: PhysicalExprRef) -> PhysicalExprRef {
    Arc::new(BinaryExpr::new(a, Operator::And, b))
}

/// The columns that a join filter reads, in the order of their first use.
struct Scope<'a> {
    inputs: &'a Inputs,
    columns: Vec<ColumnIndex>,
}

impl<'a> Scope<'a> {
    fn new(inputs: &'a Inputs) -> Self {
        let columns = Vec::new();
        Self { inputs, columns }
    }

    fn schema(&self, side: JoinSide) -> &SchemaRef {
        match side {
            JoinSide::Left => &self.inputs.build.schema,
            _ => &self.inputs.probe.schema,
        }
    }

    fn column(&mut self, side: JoinSide, index: usize) -> PhysicalExprRef {
        let found = self
            .columns
            .iter()
            .position(|c| (c.side, c.index) == (side, index));
        let at = found.unwrap_or_else(|| {
            self.columns.push(ColumnIndex { index, side });
            self.columns.len() - 1
        });
        let name = self.schema(side).field(index).name();
        Arc::new(ColumnExpr::new(name, at))
    }

    fn term(&mut self, term: Term) -> PhysicalExprRef {
        match term {
            Term::Build(index) => self.column(JoinSide::Left, index),
            Term::Probe(index) => self.column(JoinSide::Right, index),
            Term::Value(value) => Arc::new(Literal::new(ScalarValue::Int32(Some(value)))),
        }
    }

    fn filter(&mut self, filter: &Filter) -> PhysicalExprRef {
        match *filter {
            Filter::Constant(value) => Arc::new(Literal::new(ScalarValue::Boolean(value))),
            Filter::IsNull(term) => Arc::new(IsNullExpr::new(self.term(term))),
            Filter::Less(a, b) => {
                let (a, b) = (self.term(a), self.term(b));
                Arc::new(BinaryExpr::new(a, Operator::Lt, b))
            }
            Filter::Same(a, b) => {
                let (a, b) = (self.term(a), self.term(b));
                Arc::new(BinaryExpr::new(a, Operator::Eq, b))
            }
        }
    }

    fn into_filter(self, expression: PhysicalExprRef) -> JoinFilter {
        let field = |c: &ColumnIndex| self.schema(c.side).field(c.index).clone();
        let fields: Vec<Field> = self.columns.iter().map(field).collect();
        JoinFilter::new(expression, self.columns, Arc::new(Schema::new(fields)))
    }
}

/// The device side's options.
pub fn config(case: &Case, on_device_error: OnDeviceError) -> HortonConfig {
    let table = &case.table;
    HortonConfig {
        enabled: match case.min_build_rows {
            None => Enabled::Always,
            Some(_) => Enabled::Auto,
        },
        min_build_rows: case.min_build_rows.unwrap_or_default(),
        device: horton_test_support::env::asked(),
        chunk_rows: table.chunk_rows,
        device_memory_limit: table.device_limit,
        knobs: Knobs {
            index: table.index,
            normalized_key_bits: table.normalized_key_bits,
            max_table_rows: table.max_rows,
            sample_rows: case.sample_rows,
            joins_from_last: false,
        },
        on_device_error,
        ..HortonConfig::default()
    }
}
