//! The temporary files of one side's rows.
//!
//! ```text
//!  rows ─▶ SpillFiles ─▶ SpillManager ─▶ files in the folders of the DiskManager
//!              └── an error of the disk: says which folders, and which option changes them
//! ```
//!
//! DataFusion's `SpillManager` does the work. Its errors are those of the operating system, such as
//! "No space left on device". A user cannot tell from them which device that is.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Context;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::config::SpillCompression;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::spill_file::SpillFile;
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::SpillMetrics;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};
use tracing::trace_span;

/// Appends batches to a file, and ends it.
pub type Append = Box<dyn FnMut(Option<&RecordBatch>) -> Result<Ended> + Send>;

/// The file, once it has ended; `None` if it has no rows.
pub type Ended = Option<Arc<dyn SpillFile>>;

/// Writes and reads temporary files with rows of one schema.
#[derive(Clone)]
pub struct SpillFiles {
    manager: SpillManager,
    runtime: Arc<RuntimeEnv>,
}

impl SpillFiles {
    /// Returns what writes rows of `schema` into files of `runtime`, and counts them in `metrics`.
    pub fn new(
        runtime: Arc<RuntimeEnv>,
        metrics: SpillMetrics,
        schema: SchemaRef,
        compression: SpillCompression,
    ) -> Self {
        let manager = SpillManager::new(Arc::clone(&runtime), metrics, schema);
        Self {
            manager: manager.with_compression_type(compression),
            runtime,
        }
    }

    /// Returns the schema of the rows.
    pub fn schema(&self) -> &SchemaRef {
        self.manager.schema()
    }

    /// Begins a file.
    ///
    /// # Errors
    /// If there is no room on the disk, or too many files are open.
    pub fn begin(&self) -> Result<Append> {
        let file = self.manager.create_in_progress_file("rows of a hash join");
        let mut file = file.map_err(|error| self.explained(error))?;
        let this = self.clone();
        Ok(Box::new(move |batch| {
            let appended = match batch {
                Some(batch) => file.append_batch(batch).map(|_| None),
                None => file.finish(),
            };
            appended.map_err(|error| this.explained(error))
        }))
    }

    /// Writes `batches` into one file. Returns none if there are none.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn write(&self, batches: &[RecordBatch]) -> Result<Ended> {
        let file = (self.manager).spill_record_batch_and_finish(batches, "rows of a hash join");
        file.map_err(|error| self.explained(error))
    }

    /// Returns the rows of `file`.
    ///
    /// # Errors
    /// None here. The stream's are explained.
    pub fn read(&self, file: Arc<dyn SpillFile>) -> Result<SendableRecordBatchStream> {
        // It is opened when the stream is polled.
        let mut stream = self.manager.read_spill_as_stream(file, None)?;
        let polled = move |context: &mut Context<'_>| {
            trace_span!("read spill file").in_scope(|| stream.poll_next_unpin(context))
        };
        let stream = futures::stream::poll_fn(polled);
        let this = self.clone();
        let stream = stream.map_err(move |error| this.explained(error));
        let schema = Arc::clone(self.schema());
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    /// Returns `error` with the folders and what to do, if it is of the operating system.
    fn explained(&self, error: DataFusionError) -> DataFusionError {
        match system_error(&error) {
            Some(system) => {
                let text = advice(system, &self.runtime.disk_manager.temp_dir_paths());
                error.context(text)
            }
            None => error,
        }
    }
}

/// Returns the error of the operating system that `error` comes of. DataFusion wraps all errors of
/// writing, also that of its own limit on files, which names its option. The text tells them apart.
fn system_error(error: &DataFusionError) -> Option<&io::Error> {
    let system = match error.find_root() {
        DataFusionError::IoError(system) => Some(system),
        DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
            ArrowError::IoError(_, system) => Some(system),
            _ => None,
        },
        _ => None,
    };
    system.filter(|system| system.to_string().contains("(os error "))
}

/// Error number of "too many open files": of the process, and of the machine.
const TOO_MANY_FILES: [i32; 2] = [libc::EMFILE, libc::ENFILE];

fn advice(system: &io::Error, folders: &[PathBuf]) -> String {
    // The number is hidden in errors that are wrapped.
    let text = system.to_string();
    let is = |number: &i32| text.contains(&format!("(os error {number})"));
    let are_many = TOO_MANY_FILES.iter().any(is);
    let folders: Vec<_> = folders.iter().map(|f| f.display().to_string()).collect();
    let folders = match folders.as_slice() {
        [] => "the session's folder".to_owned(),
        folders => folders.join(", "),
    };
    let what_to_do = if are_many {
        "raise the limit on open files (ulimit -n), or give the query more memory \
         (SET datafusion.runtime.memory_limit), so that it needs fewer"
    } else {
        "make room there, or name another folder with SET datafusion.runtime.temp_directory"
    };
    format!("a hash join could not use its temporary files in {folders}: {what_to_do}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_disk_name_the_folder_and_what_to_do() {
        let text = |code, folders: &[PathBuf]| advice(&io::Error::from_raw_os_error(code), folders);
        let folders = [PathBuf::from("/a"), PathBuf::from("/b")];
        let full = text(libc::ENOSPC, &folders);
        assert!(
            full.contains("/a, /b") && full.contains("temp_directory"),
            "{full}"
        );
        assert!(text(libc::EMFILE, &folders).contains("ulimit -n"));
        let of_path = io::Error::from_raw_os_error(libc::ENFILE);
        let of_path = io::Error::other(format!("{of_path} at path /a/b"));
        assert!(advice(&of_path, &folders).contains("ulimit -n"));
        assert!(text(libc::EACCES, &[]).contains("the session's folder"));
    }
}
