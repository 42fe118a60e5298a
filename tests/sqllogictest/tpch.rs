//! TPC-H tables as dbgen's text files, for `tpch/tpch.slt`: 22 plans and 22 answers, the
//! answers three times. Its expected results are those of scale factor 0.1.
//!
//! About 110 MB, written only if that file is named.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

/// The folder where `tpch.slt` looks for its tables.
pub const FOLDER: &str = "test_files/tpch/data/";

const SCALE_FACTOR: f64 = 0.1;

/// Writes all eight tables.
pub fn write_tables() -> io::Result<()> {
    fs::create_dir_all(FOLDER)?;
    let sf = SCALE_FACTOR;
    write("region", RegionGenerator::new(sf, 1, 1).iter())?;
    write("nation", NationGenerator::new(sf, 1, 1).iter())?;
    write("supplier", SupplierGenerator::new(sf, 1, 1).iter())?;
    write("customer", CustomerGenerator::new(sf, 1, 1).iter())?;
    write("part", PartGenerator::new(sf, 1, 1).iter())?;
    write("partsupp", PartSuppGenerator::new(sf, 1, 1).iter())?;
    write("orders", OrderGenerator::new(sf, 1, 1).iter())?;
    write("lineitem", LineItemGenerator::new(sf, 1, 1).iter())
}

fn write(table: &str, rows: impl Iterator<Item = impl Display>) -> io::Result<()> {
    let path = Path::new(FOLDER).join(format!("{table}.tbl"));
    let mut file = BufWriter::new(File::create(path)?);
    for row in rows {
        writeln!(file, "{row}")?;
    }
    file.flush()
}
