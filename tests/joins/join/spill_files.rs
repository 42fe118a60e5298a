//! The files of joins on disk: what is written, how many are open, and what is said where there can
//! be none.

use std::sync::{Arc, Mutex};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::execution::disk_manager::DiskManagerMode;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::joins::PartitionMode;
use futures::{StreamExt, stream};

use super::spill::{Limited, case, keyed, on_host};
use crate::feed::{Then, feed, partition, plan};
use horton_test_support::joins::*;

#[test]
fn metrics_say_what_was_written() {
    side_by_side();
    let columns = |rows: i64, step: i64| {
        let keys: Vec<Option<i64>> = (0..rows).map(|row| Some(row * step)).collect();
        vec![("k", ints(&keys)), ("v", payload(keys.len()))]
    };
    let sides = [columns(6000, 2), columns(8000, 3)];
    let mut written = Vec::new();
    let mut left_files = Vec::new();
    for at in 0..2 {
        let case = on_host(case(sides[at].clone(), sides[1 - at].clone(), 1));
        let limited = Limited::new(64 << 10);
        // When the right side ends, the left one is all in files, and nothing else.
        let (folder, found) = (limited.files.path().to_owned(), Arc::new(Mutex::new(0)));
        let noted = Arc::clone(&found);
        let batches = case.probe.partitions[0].clone();
        let right = partition(&case.probe.schema, move || {
            let (folder, noted) = (folder.clone(), Arc::clone(&noted));
            let end = stream::once(async move { *noted.lock().unwrap() = bytes_below(&folder) });
            let end = end.filter_map(|()| std::future::ready(None));
            stream::iter(batches.clone()).map(Ok).chain(end).boxed()
        });
        let left = feed(&case.build, &[Then::End]);
        let join = case.put_on_device(case.stock_of(left, plan(vec![right], false)));
        let found_rows = run(join.clone(), Arc::clone(&limited.context)).unwrap();
        // Every third even number.
        assert_eq!(found_rows.count(), 2000);
        assert_eq!(found_rows.metric("spilled_rows"), 14_000);
        let inputs = ["build_input_rows", "input_rows"].map(|name| found_rows.metric(name));
        assert_eq!(inputs.iter().sum::<usize>(), 14_000, "{inputs:?}");
        written.push(found_rows.metric("spilled_bytes"));
        left_files.push(*found.lock().unwrap());
        let shown = DisplayableExecutionPlan::with_metrics(join.as_ref());
        let shown = shown.indent(false).to_string();
        let counts = ["spilled_rows=14.00 K", "spill_count=", "spilled_bytes="];
        assert!(counts.iter().all(|count| shown.contains(count)), "{shown}");
        drop(join);
        limited.assert_clean("metrics");
    }
    // Each side was the left one once.
    let both = left_files.iter().sum::<usize>();
    assert!(left_files.iter().all(|bytes| *bytes > 0));
    assert_eq!(written, [both, both]);
}

/// Bytes of the files below `folder`.
fn bytes_below(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let bytes = entries.map(|entry| match entry.path().is_dir() {
        true => bytes_below(&entry.path()),
        false => entry.metadata().unwrap().len() as usize,
    });
    bytes.sum()
}

/// The error of a join that cannot go to disk.
fn refused(case: &Case, limited: &Limited) -> String {
    let error = run(case.on_device(), Arc::clone(&limited.context));
    let error = error.map(|_| ()).unwrap_err();
    limited.assert_clean("refused");
    error.to_string()
}

#[test]
fn what_keeps_a_join_from_spilling_is_said() {
    side_by_side();
    let mut case = on_host(keyed(ints, [6000, 8000], 5000, 2));
    let small = Limited::with(64 << 10, |disk| disk.with_max_temp_directory_size(10_000));
    let error = refused(&case, &small);
    assert!(error.contains("max_temp_directory_size"), "{error}");
    let disabled = Limited::with(64 << 10, |disk| disk.with_mode(DiskManagerMode::Disabled));
    let error = refused(&case, &disabled);
    assert!(error.contains("DiskManager"), "{error}");
    case.config.spill = false;
    let error = refused(&case, &Limited::new(64 << 10));
    assert!(error.contains("horton.spill"), "{error}");
}

#[test]
fn an_error_of_the_disk_names_the_folder_and_what_to_do() {
    side_by_side();
    for mode in [PartitionMode::CollectLeft, PartitionMode::Auto] {
        let mut case = on_host(keyed(ints, [6000, 8000], 5000, 2));
        case.mode = mode;
        let limited = Limited::new(64 << 10);
        let folders = limited.context.runtime_env().disk_manager.temp_dir_paths();
        std::fs::remove_dir(&folders[0]).unwrap();
        let error = run(case.on_device(), Arc::clone(&limited.context));
        let error = error.map(|_| ()).unwrap_err().to_string();
        let folder = folders[0].display().to_string();
        assert!(error.contains(&folder), "{error}");
        assert!(
            error.contains("datafusion.runtime.temp_directory"),
            "{error}"
        );
        limited.assert_clean("the folder is gone");
    }
}

/// Handles that this process has on files below `folder`.
fn open_files(folder: &std::path::Path) -> usize {
    let handles = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let files = handles.filter_map(|handle| std::fs::read_link(handle.path()).ok());
    files.filter(|file| file.starts_with(folder)).count()
}

#[test]
fn many_streams_open_few_files() {
    side_by_side();
    let streams = 64;
    let mut case = on_host(keyed(ints, [64_000, 64_000], 50_000, streams));
    let by_key = |side: &Side| {
        let keys = side.batch().column(0).as_primitive::<Int64Type>().clone();
        side.clone()
            .in_partitions(streams, move |row| keys.value(row) as usize % streams)
    };
    (case.build, case.probe) = (by_key(&case.build), by_key(&case.probe));
    case.mode = PartitionMode::Partitioned;
    let limited = Limited::new(1 << 20);
    let (join, context) = (case.on_device(), Arc::clone(&limited.context));
    let folder = limited.files.path().to_owned();
    let most = block_on(async move {
        let streams = (0..streams).map(|p| join.execute(p, Arc::clone(&context)).unwrap());
        let mut streams: Vec<_> = streams.collect();
        let mut most = 0;
        // Each has a spill partition in hand, and the others in files.
        for stream in &mut streams {
            stream.next().await.unwrap().unwrap();
            most = most.max(open_files(&folder));
        }
        most
    });
    assert!((64..1000).contains(&most), "{most} files");
    limited.assert_clean("many streams");
}
