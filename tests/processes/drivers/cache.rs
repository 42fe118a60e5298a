//! The cache of compiled programs: races, torn files, and PoCL, which has one of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use horton_join::device::Device;
use horton_join::table::horton::{HortonTable, TableConfig};
use horton_test_support::{child, test_name};
use sha2::{Digest, Sha256};

use super::child::{WITHOUT_CACHE, driver, role, run};

#[test]
fn racing_processes_and_torn_files_leave_a_cache_that_works() {
    let folder = tempfile::tempdir().unwrap();
    if role().is_some() {
        build_and_look_up();
        return;
    }
    let children: Vec<Child> = (0..3).map(|_| start(folder.path())).collect();
    children.into_iter().for_each(succeed);
    let files = files(folder.path());
    assert!(!files.is_empty(), "nothing was cached");
    assert!(
        files
            .iter()
            .all(|f| f.extension().is_some_and(|e| e == "bin"))
    );
    for (i, file) in files.iter().enumerate() {
        let bytes = std::fs::read(file).unwrap();
        let torn = match i % 4 {
            0 => bytes[..bytes.len() / 2].to_vec(),
            1 => Vec::new(),
            2 => vec![0xa5; bytes.len()],
            // Whole, but no driver's binary.
            _ => {
                let name = file.file_name().unwrap().as_encoded_bytes();
                let sum = Sha256::digest([name, b"\0", b"nonsense"].concat());
                [&sum[..], b"nonsense"].concat()
            }
        };
        std::fs::write(file, torn).unwrap();
    }
    succeed(start(folder.path()));
    // The bad ones were replaced: a process that finds all of them compiles nothing.
    for file in &files {
        assert!(std::fs::read(file).unwrap().len() > 64, "{file:?}");
    }
    // Many processes read and write the same files while they are torn again and again.
    let children: Vec<Child> = (0..3).map(|_| start(folder.path())).collect();
    for _ in 0..20 {
        files
            .iter()
            .for_each(|file| drop(std::fs::write(file, "torn")));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    children.into_iter().for_each(succeed);
    // A folder that cannot be written only costs the time.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    succeed(start(&file));
}

#[test]
fn pocl_is_asked_for_no_binaries() {
    const TEST: &str = "cache::pocl_is_asked_for_no_binaries";
    if role().is_some() {
        build_and_look_up();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    run(TEST, "pocl", "", folder.path());
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    run(TEST, "another", WITHOUT_CACHE, folder.path());
    assert_ne!(files(folder.path()), Vec::<PathBuf>::new());
}

fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

fn build_and_look_up() {
    let device = Device::open("auto").unwrap();
    let table =
        HortonTable::from_pairs(&device, &[5, 6], &[50, 60], &TableConfig::default()).unwrap();
    let found = table.lookup_blocking(&device, &[6, 7, 5]).unwrap();
    assert_eq!(found, [Some(60), None, Some(50)]);
}

fn start(cache: &Path) -> Child {
    let test = test_name!("racing_processes_and_torn_files_leave_a_cache_that_works");
    child::command(&test, "racing")
        .envs(driver(WITHOUT_CACHE))
        .env("HORTON_CACHE_DIR", cache)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn succeed(mut child: Child) {
    assert!(child.wait().unwrap().success());
}
