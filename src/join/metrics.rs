//! Metrics of a device join for EXPLAIN ANALYZE: the stock join's metrics under their names,
//! and where the device's time and bytes went.

use std::sync::Arc;

use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricCategory,
    MetricType, RatioMetrics, Time,
};

use crate::device::Cost;
use crate::table::multimap::HashIndex;

/// Metrics of one partition of a join.
#[derive(Debug, Clone)]
pub struct JoinMetrics {
    /// Output rows, batches and compute time.
    pub baseline: BaselineMetrics,
    /// Collecting the build side and building its table.
    pub build_time: Time,
    /// Encoding, looking up and emitting.
    pub join_time: Time,
    /// Number of batches of the build side.
    pub build_input_batches: Count,
    /// Number of rows of the build side.
    pub build_input_rows: Count,
    /// Bytes of the build side on the host and the device.
    pub build_mem_used: Gauge,
    /// Number of batches of the probe side.
    pub input_batches: Count,
    /// Number of rows of the probe side.
    pub input_rows: Count,
    /// Probe rows with a match among all probe rows.
    pub probe_hit_rate: RatioMetrics,
    /// Matches per probe row with a match.
    pub avg_fanout: RatioMetrics,
    /// Errors of the device, and refusals of its memory, after which the host went on.
    pub device_errors: Count,
    device: DeviceMetrics,
    _compute: Arc<ComputeTime>,
}

/// Size of a build side, as it was read.
#[derive(Debug, Clone, Copy)]
pub struct BuildInput {
    /// Number of batches.
    pub batches: usize,
    /// Number of rows.
    pub rows: usize,
    /// Bytes of the batches.
    pub bytes: usize,
}

/// The compute time: what building and joining took, as in `HashJoinExec`. Added up once, with the
/// last clone of the partition's metrics.
#[derive(Debug)]
struct ComputeTime {
    total: Time,
    parts: [Time; 2],
}

impl Drop for ComputeTime {
    fn drop(&mut self) {
        self.parts.iter().for_each(|part| self.total.add(part));
    }
}

#[derive(Debug, Clone)]
struct DeviceMetrics {
    upload_time: Time,
    kernel_time: Time,
    download_time: Time,
    uploaded_bytes: Count,
    downloaded_bytes: Count,
    kernel_launches: Count,
    table_bytes: Count,
    load_factor: RatioMetrics,
    type_b_buckets: RatioMetrics,
    buckets_per_lookup: RatioMetrics,
    /// Set of counters that only some joins have.
    set: ExecutionPlanMetricsSet,
    partition: usize,
}

impl JoinMetrics {
    /// Registers the metrics of `partition`.
    pub fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let rows = |name: &'static str| {
            MetricBuilder::new(set)
                .with_category(MetricCategory::Rows)
                .counter(name, partition)
        };
        let time = |name: &'static str| MetricBuilder::new(set).subset_time(name, partition);
        let ratio = |name: &'static str| {
            MetricBuilder::new(set)
                .with_type(MetricType::Summary)
                .ratio_metrics(name, partition)
        };
        let baseline = BaselineMetrics::new(set, partition);
        let (build_time, join_time) = (time("build_time"), time("join_time"));
        let compute = ComputeTime {
            total: baseline.elapsed_compute().clone(),
            parts: [build_time.clone(), join_time.clone()],
        };
        Self {
            baseline,
            build_time,
            join_time,
            build_input_batches: rows("build_input_batches"),
            build_input_rows: rows("build_input_rows"),
            build_mem_used: MetricBuilder::new(set).peak_memory_usage("build_mem_used", partition),
            input_batches: rows("input_batches"),
            input_rows: rows("input_rows"),
            probe_hit_rate: ratio("probe_hit_rate"),
            avg_fanout: ratio("avg_fanout"),
            device_errors: MetricBuilder::new(set).counter("device_errors", partition),
            device: DeviceMetrics {
                upload_time: time("upload_time"),
                kernel_time: time("kernel_time"),
                download_time: time("download_time"),
                uploaded_bytes: bytes(set, "uploaded_bytes", partition),
                downloaded_bytes: bytes(set, "downloaded_bytes", partition),
                kernel_launches: MetricBuilder::new(set).counter("kernel_launches", partition),
                table_bytes: bytes(set, "table_bytes", partition),
                load_factor: ratio("load_factor"),
                type_b_buckets: ratio("type_b_buckets"),
                buckets_per_lookup: ratio("buckets_per_lookup"),
                set: set.clone(),
                partition,
            },
            _compute: Arc::new(compute),
        }
    }

    /// Adds what a device job cost.
    pub fn add_cost(&self, cost: &Cost) {
        let device = &self.device;
        device.upload_time.add_duration(cost.upload);
        device.kernel_time.add_duration(cost.kernel);
        device.download_time.add_duration(cost.download);
        device.uploaded_bytes.add(cost.uploaded as usize);
        device.downloaded_bytes.add(cost.downloaded as usize);
        device.kernel_launches.add(cost.launches as usize);
    }

    /// Records the batches, rows and bytes of a build side.
    pub fn add_build_input(&self, input: BuildInput) {
        self.build_mem_used.add(input.bytes);
        self.build_input_batches.add(input.batches);
        self.build_input_rows.add(input.rows);
    }

    /// Counts a table that a further device got of the same build side.
    pub fn add_further_table(&self) {
        self.count_table("tables_replicated");
    }

    /// Counts a table under `name`, which only joins with such a table show.
    fn count_table(&self, name: &'static str) {
        let device = &self.device;
        let tables = MetricBuilder::new(&device.set).counter(name, device.partition);
        tables.add(1);
    }

    /// Records the table of a build side.
    pub fn add_table(&self, table: &HashIndex) {
        let device = &self.device;
        device.table_bytes.add(table.bytes() as usize);
        device.load_factor.add_part(table.len());
        device.load_factor.add_total(table.slots());
        let kind = match table {
            HashIndex::Horton(_) => "horton_tables",
            HashIndex::Direct(_) => "direct_tables",
            HashIndex::CacheLine(_) => "cache_line_tables",
        };
        self.count_table(kind);
        // Ratios of buckets stay without a value where the table has none.
        if let Some(table) = table.as_horton() {
            let type_b = table.census().type_b as usize;
            device.type_b_buckets.add_part(type_b);
            let buckets = table.layout().buckets as usize;
            device.type_b_buckets.add_total(buckets);
        }
    }

    /// Records `lookups` that read `buckets` buckets of a Horton table.
    pub fn add_lookups(&self, lookups: usize, buckets: usize) {
        self.device.buckets_per_lookup.add_part(buckets);
        self.device.buckets_per_lookup.add_total(lookups);
    }
}

fn bytes(set: &ExecutionPlanMetricsSet, name: &'static str, partition: usize) -> Count {
    MetricBuilder::new(set)
        .with_category(MetricCategory::Bytes)
        .counter(name, partition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_on_metrics_has_all_of_them() {
        let set = ExecutionPlanMetricsSet::new();
        let metrics = JoinMetrics::new(&set, 0);
        metrics.add_further_table();
        let page = include_str!("../../docs/metrics.md");
        let names = set.clone_inner();
        let names = names.iter().map(|metric| metric.value().name().to_owned());
        let names: Vec<String> = names.collect();
        assert!(names.len() > 15, "{names:?}");
        for name in names {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
