//! The dynamic filter: what the build side knows, pushed into the probe side's scans.
//!
//! ```text
//!  build 0 ─ facts ─┐
//!  build 1 ─ facts ─┼─▶ FilterBoard ── all in ──▶ update once, mark complete ─▶ probes start
//!  build n ─ gone  ─┘
//!
//!  facts: key >= min AND key <= max AND key IN (…) | hash_lookup(key)
//!  several partitions: CASE hash(key) % n WHEN 0 THEN facts 0 … ELSE false END
//! ```
//!
//! The same expressions as `HashJoinExec`'s `SharedBuildAccumulator` makes, so that a Parquet
//! scan prunes the same row groups: bounds of each key, and a list of the values of a
//! small build side or a lookup in a hash set of a large one. The filter must be complete
//! before it is used, so in Partitioned mode every probe waits until each build has
//! reported; a build that is dropped or fails reports that nothing is known of it.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, StructArray};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Fields, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{NullEquality, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::core::r#struct as struct_function;
use datafusion::functions_aggregate::min_max::{MaxAccumulator, MinAccumulator};
use datafusion::logical_expr::{Accumulator, Operator};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, DynamicFilterPhysicalExpr, InListExpr, IsNullExpr, lit,
};
use datafusion::physical_expr::{
    Partitioning, PhysicalExprRef, RangePartitioning, ScalarFunctionExpr,
};
use datafusion::physical_plan::joins::join_hash_map::JoinHashMapU32;
use datafusion::physical_plan::joins::utils::update_hash;
use datafusion::physical_plan::joins::{HashExpr, HashTableLookupExpr, Map, SeededRandomState};
use datafusion::physical_plan::repartition::{REPARTITION_RANDOM_STATE, RangeExpr};
use tokio::sync::watch;

use super::build::BuildSide;

/// Seed of the hash set behind `hash_lookup`; any will do, within one filter.
const LOOKUP_SEED: SeededRandomState = SeededRandomState::with_seed(0x486f_7274);

/// What a filter is made for.
#[derive(Debug, Clone)]
pub struct FilterSpec {
    /// The expression that the probe side's scans hold.
    pub filter: Arc<DynamicFilterPhysicalExpr>,
    /// Key expressions over the build side.
    pub build_on: Vec<PhysicalExprRef>,
    /// Key expressions over the probe side.
    pub probe_on: Vec<PhysicalExprRef>,
    /// Schema of the probe side.
    pub probe_schema: SchemaRef,
    /// How the probe side is partitioned where each partition has its own build.
    pub probe_partitioning: Option<Partitioning>,
    /// Whether NULL keys match each other.
    pub null_equality: NullEquality,
    /// NOT IN: NULL keys of the probe side must arrive.
    pub null_aware: bool,
    /// The session's options (limits of value lists).
    pub options: Arc<ConfigOptions>,
}

/// What is known of one build.
#[derive(Debug, Clone)]
enum Facts {
    /// It was dropped or failed.
    Unknown,
    /// It has no rows.
    Empty,
    /// A probe row must satisfy this to match.
    Known {
        predicate: PhysicalExprRef,
        has_null: bool,
    },
}

/// Collects the facts of all builds and updates the filter once.
#[derive(Debug)]
pub struct FilterBoard {
    spec: FilterSpec,
    reports: Mutex<Vec<Option<Facts>>>,
    complete: watch::Sender<bool>,
}

/// One build's place on the board; reports for it if it never does.
#[derive(Debug)]
pub struct Reporter {
    board: Arc<FilterBoard>,
    partition: usize,
    reported: bool,
}

impl FilterBoard {
    /// A board for `builds` builds.
    pub fn new(spec: FilterSpec, builds: usize) -> Arc<Self> {
        Arc::new(Self {
            spec,
            reports: Mutex::new(vec![None; builds]),
            complete: watch::Sender::new(false),
        })
    }

    /// The place of build `partition`.
    pub fn reporter(self: &Arc<Self>, partition: usize) -> Reporter {
        Reporter {
            board: Arc::clone(self),
            partition,
            reported: false,
        }
    }

    /// Notes a build's facts; the last one updates the filter.
    fn report(&self, partition: usize, facts: Facts) -> Result<()> {
        let all = {
            let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(report) = reports.get_mut(partition) {
                *report = Some(facts);
            }
            reports.iter().cloned().collect::<Option<Vec<Facts>>>()
        };
        let Some(all) = all else {
            return Ok(());
        };
        let updated = match self.predicate(&all) {
            Ok(Some(predicate)) => self.spec.filter.update(predicate),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        self.spec.filter.mark_complete();
        self.complete.send_replace(true);
        updated
    }

    /// The whole filter; `None` leaves it as it is, letting everything through.
    fn predicate(&self, all: &[Facts]) -> Result<Option<PhysicalExprRef>> {
        let has_null = all.iter().any(|facts| match facts {
            Facts::Unknown => true,
            Facts::Empty => false,
            Facts::Known { has_null, .. } => *has_null,
        });
        let predicate = match all {
            [Facts::Known { predicate, .. }] => Arc::clone(predicate),
            [_] => return Ok(None),
            several => self.routed(several)?,
        };
        self.keep_nulls(predicate, has_null).map(Some)
    }

    /// The filter of several partitions: each row meets the facts of the build it is sent to.
    fn routed(&self, all: &[Facts]) -> Result<PhysicalExprRef> {
        let unknown = all.iter().any(|facts| matches!(facts, Facts::Unknown));
        let known: Vec<&PhysicalExprRef> = all
            .iter()
            .filter_map(|facts| match facts {
                Facts::Known { predicate, .. } => Some(predicate),
                _ => None,
            })
            .collect();
        match (unknown, known.as_slice()) {
            (true, []) if !all.iter().any(|facts| matches!(facts, Facts::Empty)) => Ok(lit(true)),
            (false, []) => Ok(lit(false)),
            (false, [only]) => Ok(Arc::clone(only)),
            _ => match &self.spec.probe_partitioning {
                Some(Partitioning::Range(range)) => self.routed_by_range(all, range),
                _ => self.routed_by_hash(all, unknown),
            },
        }
    }

    fn routed_by_hash(&self, all: &[Facts], unknown: bool) -> Result<PhysicalExprRef> {
        let hash: PhysicalExprRef = Arc::new(HashExpr::new(
            self.spec.probe_on.clone(),
            REPARTITION_RANDOM_STATE.clone(),
            "hash_repartition".to_owned(),
        ));
        let partition = binary(hash, Operator::Modulo, number(all.len()));
        // What no WHEN names is empty, or unknown if any partition is.
        let branches = all
            .iter()
            .enumerate()
            .filter_map(|(i, facts)| match facts {
                Facts::Known { predicate, .. } => Some((number(i), Arc::clone(predicate))),
                Facts::Empty if unknown => Some((number(i), lit(false))),
                _ => None,
            })
            .collect();
        let case = CaseExpr::try_new(Some(partition), branches, Some(lit(unknown)))?;
        Ok(Arc::new(case))
    }

    fn routed_by_range(&self, all: &[Facts], range: &RangePartitioning) -> Result<PhysicalExprRef> {
        let partition: PhysicalExprRef =
            Arc::new(RangeExpr::try_new(self.spec.probe_on.clone(), range)?);
        let mut branches: Vec<(PhysicalExprRef, PhysicalExprRef)> = all
            .iter()
            .enumerate()
            .map(|(i, facts)| {
                let predicate = match facts {
                    Facts::Known { predicate, .. } => Arc::clone(predicate),
                    Facts::Empty => lit(false),
                    Facts::Unknown => lit(true),
                };
                (number(i), predicate)
            })
            .collect();
        let last = branches.pop().map(|(_, predicate)| predicate);
        Ok(Arc::new(CaseExpr::try_new(
            Some(partition),
            branches,
            last,
        )?))
    }

    /// Lets NULL keys through where the join needs them: a null-aware join always, a null-equal
    /// one if a build key is NULL.
    fn keep_nulls(&self, predicate: PhysicalExprRef, has_null: bool) -> Result<PhysicalExprRef> {
        let spec = &self.spec;
        let null_equal = spec.null_equality == NullEquality::NullEqualsNull && has_null;
        if !spec.null_aware && !null_equal {
            return Ok(predicate);
        }
        let mut is_null: Option<PhysicalExprRef> = None;
        for key in &spec.probe_on {
            if key.nullable(&spec.probe_schema)? {
                let this: PhysicalExprRef = Arc::new(IsNullExpr::new(Arc::clone(key)));
                is_null = Some(match is_null {
                    Some(others) => binary(others, Operator::Or, this),
                    None => this,
                });
            }
        }
        Ok(match is_null {
            Some(is_null) => binary(is_null, Operator::Or, predicate),
            None => predicate,
        })
    }
}

impl Reporter {
    /// Reports the facts of `build` and waits until every build has reported.
    ///
    /// # Errors
    /// If the filter's expressions cannot be made.
    pub async fn report(mut self, build: &BuildSide) -> Result<()> {
        let facts = facts_of(&self.board.spec, build)?;
        self.reported = true;
        self.board.report(self.partition, facts)?;
        let mut complete = self.board.complete.subscribe();
        // The sender lives in the board, so waiting cannot fail.
        let _ = complete.wait_for(|complete| *complete).await;
        Ok(())
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if !self.reported
            && let Err(error) = self.board.report(self.partition, Facts::Unknown)
        {
            log::warn!("dynamic filter not updated: {error}");
        }
    }
}

/// What a build side says about rows that may match it.
fn facts_of(spec: &FilterSpec, build: &BuildSide) -> Result<Facts> {
    if build.rows.is_empty() {
        return Ok(Facts::Empty);
    }
    let bounds = bounds(spec, &build.keys)?;
    let membership = membership(spec, build)?;
    Ok(Facts::Known {
        predicate: binary(bounds, Operator::And, membership),
        has_null: build
            .keys
            .iter()
            .flatten()
            .any(|column| column.null_count() > 0),
    })
}

/// `key >= min AND key <= max` for every key.
fn bounds(spec: &FilterSpec, keys: &[Vec<ArrayRef>]) -> Result<PhysicalExprRef> {
    let mut all: Option<PhysicalExprRef> = None;
    for (c, key) in spec.probe_on.iter().enumerate() {
        let column: Vec<&ArrayRef> = keys.iter().filter_map(|batch| batch.get(c)).collect();
        let (min, max) = min_max(&column)?;
        let range = binary(
            binary(Arc::clone(key), Operator::GtEq, lit(min)),
            Operator::And,
            binary(Arc::clone(key), Operator::LtEq, lit(max)),
        );
        all = Some(match all {
            Some(others) => binary(others, Operator::And, range),
            None => range,
        });
    }
    Ok(all.unwrap_or_else(|| lit(true)))
}

fn min_max(column: &[&ArrayRef]) -> Result<(ScalarValue, ScalarValue)> {
    let data_type = column.first().map_or(DataType::Null, |array| {
        value_type(array.data_type()).clone()
    });
    let mut min = MinAccumulator::try_new(&data_type)?;
    let mut max = MaxAccumulator::try_new(&data_type)?;
    for array in column {
        min.update_batch(std::slice::from_ref(*array))?;
        max.update_batch(std::slice::from_ref(*array))?;
    }
    Ok((min.evaluate()?, max.evaluate()?))
}

/// The type behind dictionaries.
fn value_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, value) => value_type(value),
        other => other,
    }
}

/// A list of the build side's values if it is small, else a lookup in a hash set of them.
fn membership(spec: &FilterSpec, build: &BuildSide) -> Result<PhysicalExprRef> {
    let options = &spec.options.optimizer;
    let bytes: usize = build
        .keys
        .iter()
        .flatten()
        .map(|column| column.get_array_memory_size())
        .sum();
    let distinct = build.distinct();
    let small = bytes <= options.hash_join_inlist_pushdown_max_size
        && distinct <= options.hash_join_inlist_pushdown_max_distinct_values;
    if small {
        value_list(spec, &build.keys)
    } else {
        hash_lookup(spec, build)
    }
}

fn value_list(spec: &FilterSpec, keys: &[Vec<ArrayRef>]) -> Result<PhysicalExprRef> {
    let columns = (0..spec.probe_on.len())
        .map(|c| {
            let parts: Vec<&dyn Array> = keys.iter().map(|batch| batch[c].as_ref()).collect();
            Ok(concat(&parts)?)
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    let (key, values): (PhysicalExprRef, ArrayRef) = match columns.as_slice() {
        [column] => (Arc::clone(&spec.probe_on[0]), Arc::clone(column)),
        columns => {
            let fields: Fields = columns
                .iter()
                .enumerate()
                .map(|(i, column)| Field::new(format!("c{i}"), column.data_type().clone(), true))
                .collect();
            let values = StructArray::try_new(fields.clone(), columns.to_vec(), None)?;
            let field = Field::new("struct", DataType::Struct(fields), true);
            let key = ScalarFunctionExpr::new(
                "struct",
                struct_function(),
                spec.probe_on.clone(),
                Arc::new(field),
                Arc::new(ConfigOptions::default()),
            );
            (Arc::new(key), Arc::new(values))
        }
    };
    let list = InListExpr::try_new_from_array(key, values, false, &spec.probe_schema)?;
    Ok(Arc::new(list))
}

/// As the stock join's own table would answer: false positives only for equal hashes.
fn hash_lookup(spec: &FilterSpec, build: &BuildSide) -> Result<PhysicalExprRef> {
    let rows = build.rows.len();
    let mut map = JoinHashMapU32::with_capacity(rows);
    let mut offset = 0;
    for batch in build.rows.batches() {
        let mut hashes = vec![0; batch.num_rows()];
        update_hash(
            &spec.build_on,
            batch,
            &mut map,
            offset,
            LOOKUP_SEED.random_state(),
            &mut hashes,
            0,
            true,
            spec.null_equality,
        )?;
        offset += batch.num_rows();
    }
    Ok(Arc::new(HashTableLookupExpr::new(
        spec.probe_on.clone(),
        LOOKUP_SEED.clone(),
        Arc::new(Map::HashMap(Box::new(map))),
        "hash_lookup".to_owned(),
    )))
}

fn binary(left: PhysicalExprRef, op: Operator, right: PhysicalExprRef) -> PhysicalExprRef {
    Arc::new(BinaryExpr::new(left, op, right))
}

fn number(value: usize) -> PhysicalExprRef {
    lit(ScalarValue::UInt64(Some(value as u64)))
}
