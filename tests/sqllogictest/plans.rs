//! The text of results as the test files expect it.
//!
//! ```text
//!  02)--HortonJoinExec: mode=…, on=[…], horton=[…]    ▶   02)--HashJoinExec: mode=…, on=[…]
//!  [[tmp/.tmpX/datafusion/core/tests/data/a.csv]]     ▶   [[WORKSPACE_ROOT/datafusion/core/…]]
//! ```
//!
//! Only what the operator adds to a line is taken away; the rest of the line is its own and
//! is compared.

/// Metrics of a join that are not compared: the device's and that of filters, which the stock join
/// lacks, and two that measure the stock join's own table.
const OTHER_METRICS: [&str; 14] = [
    "filter_time",
    "upload_time",
    "kernel_time",
    "download_time",
    "uploaded_bytes",
    "downloaded_bytes",
    "kernel_launches",
    "device_errors",
    "table_bytes",
    "load_factor",
    "type_b_buckets",
    "buckets_per_lookup",
    "array_map_created_count",
    "build_mem_used",
];

/// Names that this run has, and those in the files.
#[derive(Debug, Clone)]
pub struct Names {
    /// Paths and their replacements, to be applied in order.
    pub paths: Vec<(String, String)>,
}

impl Names {
    /// Paths as the files have them.
    pub fn expected_paths(&self, cell: &mut String) {
        for (ours, theirs) in &self.paths {
            if cell.contains(ours) {
                *cell = cell.replace(ours, theirs);
            }
        }
    }

    /// A line of a plan with the stock join's text in the place of ours.
    pub fn stock_line(line: &mut String) {
        if line.contains("HortonJoinExec: ") {
            *line = line.replacen("HortonJoinExec: ", "HashJoinExec: ", 1);
            if let Some(start) = line.find(", horton=[") {
                let end = closing(line, start).unwrap_or(line.len());
                line.replace_range(start..end, "");
            }
        }
        *line = common_line(line);
    }
}

/// A line of a result without trailing spaces and metrics that only one join has; both what
/// is expected and what came go through this.
#[expect(clippy::ptr_arg, reason = "sqllogictest's Normalizer")]
pub fn common_line(line: &String) -> String {
    let mut line = line.trim_end().to_owned();
    let metrics = match line.contains("HashJoinExec: ") {
        true => line.find("metrics=["),
        false => None,
    };
    if let Some(start) = metrics.map(|at| at + "metrics=[".len()) {
        let end = line.rfind(']').unwrap_or(line.len());
        let common = |metric: &&str| {
            let name = metric.split('=').next().unwrap_or_default();
            !OTHER_METRICS.contains(&name)
        };
        let kept: Vec<&str> = line[start..end].split(", ").filter(common).collect();
        let kept = kept.join(", ");
        line.replace_range(start..end, &kept);
    }
    line
}

/// The end of the first bracket from `start` on, nested ones included.
fn closing(line: &str, start: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in line.bytes().enumerate().skip(start) {
        match byte {
            b'[' => depth += 1,
            b']' if depth == 1 => return Some(at + 1),
            b']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Returns whether a statement is an EXPLAIN.
pub fn is_explain(sql: &str) -> bool {
    sql.lines()
        .map(str::trim_start)
        .find(|line| !line.is_empty() && !line.starts_with("--"))
        .and_then(|line| line.split_whitespace().next())
        .is_some_and(|word| word.eq_ignore_ascii_case("explain"))
}

/// Returns whether lines of a plan are a drawing that has our node in it.
pub fn is_tree_with_our_node(rows: &[Vec<String>]) -> bool {
    rows.iter()
        .flatten()
        .any(|cell| cell.contains('│') && cell.contains("HortonJoinExec"))
}
