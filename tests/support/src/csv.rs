//! Figures as comma-separated values, a line at a time.
//!
//! ```text
//!   create(path, [query, ms]) ─▶ query,ms
//!   add([q01, 12.5])          ─▶ q01,12.5      each line is in the file at once
//! ```

use std::fs::File;
use std::io::Write;
use std::path::Path;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The file that lines are added to.
pub struct Csv(File);

impl Csv {
    /// Starts the file `path` with the names of its columns.
    ///
    /// # Errors
    /// Of the file system, with the path.
    pub fn create(path: &Path, columns: &[&str]) -> Result<Self, Error> {
        let describe = |e| format!("cannot write {}: {e}", path.display());
        let mut csv = Self(File::create(path).map_err(describe)?);
        csv.add(columns)?;
        Ok(csv)
    }

    /// Adds a line. What separates fields and lines becomes `_` within a field.
    ///
    /// # Errors
    /// Of the file system.
    pub fn add(&mut self, fields: &[impl AsRef<str>]) -> Result<(), Error> {
        let fields = fields.iter().map(|field| field.as_ref());
        let fields: Vec<_> = fields
            .map(|f| f.replace([',', '"', '\n', '\r'], "_"))
            .collect();
        writeln!(self.0, "{}", fields.join(","))?;
        Ok(self.0.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_one_field() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.csv");
        let mut csv = Csv::create(&file, &["query", "ms"]).unwrap();
        csv.add(&["a,\"b\"\nc", "1.5"]).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, "query,ms\na__b__c,1.5\n");
    }

    #[test]
    fn an_unwritable_path_is_named() {
        let error = Csv::create(Path::new("/nonexistent/x.csv"), &["a"]).err();
        assert!(error.unwrap().to_string().contains("/nonexistent/x.csv"));
    }
}
