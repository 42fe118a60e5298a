//! The device layer from outside: picking devices, programs that do not compile, and the
//! cache of compiled programs under racing processes and torn files.

use std::path::Path;
use std::process::{Child, Stdio};

use horton_join::device::{Arg, Device, list, pick};
use horton_join::error::Error;
use horton_join::table::horton::{HortonTable, TableConfig};
use horton_test_support::internals::ProgramText;
use horton_test_support::{child, test_name};
use sha2::{Digest, Sha256};

#[test]
fn auto_picks_the_first_kind_among_accepted_devices() {
    let devices = list().unwrap();
    let picked = pick("auto").unwrap();
    assert!(picked.obstacle.is_none());
    assert!(
        devices
            .iter()
            .filter(|d| d.obstacle.is_none())
            .all(|d| d.kind >= picked.kind)
    );
}

#[test]
fn a_device_is_picked_by_its_place_or_by_part_of_its_name() {
    let device = pick("AUTO").unwrap();
    let (platform, index) = device.index;
    assert_eq!(
        pick(&format!("{platform}:{index}")).unwrap().name,
        device.name
    );
    let part = device.name[device.name.len() / 2..].to_uppercase();
    assert_eq!(pick(&part).unwrap().name, device.name);
}

#[test]
fn an_unknown_device_is_an_error_that_lists_those_there_are() {
    match Device::open("no such device") {
        Err(Error::UnknownDevice { asked, available }) => {
            assert_eq!(asked, "no such device");
            assert_eq!(available.len(), list().unwrap().len());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_that_does_not_compile_is_an_error_with_the_compilers_log() {
    let device = Device::open("auto").unwrap();
    let broken = ProgramText::new(
        "broken",
        &[],
        &[("broken.cl", "__kernel void k() { nonsense; }")],
    );
    let result = device.run_blocking(move |queue| queue.launch(&broken, "k", (1, 1), &[]));
    match result {
        Err(Error::ProgramBuild { program, log, .. }) => {
            assert_eq!(program, "broken");
            assert!(log.contains("nonsense"), "{log}");
        }
        other => panic!("{other:?}"),
    }
    // And the device goes on.
    HortonTable::from_pairs(&device, &[1], &[1], &TableConfig::default()).unwrap();
}

#[test]
fn a_kernel_or_argument_that_does_not_fit_is_an_error() {
    let device = Device::open("auto").unwrap();
    let text = ProgramText::new("one", &[], &[("one.cl", "__kernel void one(uint a) { }")]);
    let missing = text.clone();
    let result = device.run_blocking(move |queue| queue.launch(&missing, "two", (1, 1), &[]));
    assert!(matches!(result, Err(Error::OpenCl { .. })), "{result:?}");
    let args = [Arg::U32(1), Arg::U32(2)];
    let result = device.run_blocking(move |queue| queue.launch(&text, "one", (1, 1), &args));
    assert!(matches!(result, Err(Error::OpenCl { .. })), "{result:?}");
}

#[test]
fn racing_processes_and_torn_files_leave_a_cache_that_works() {
    let folder = tempfile::tempdir().unwrap();
    if child::role().is_some() {
        build_and_look_up();
        return;
    }
    let children: Vec<Child> = (0..3).map(|_| start(folder.path())).collect();
    children.into_iter().for_each(succeed);
    let files: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
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
            _ => [&Sha256::digest(b"nonsense")[..], b"nonsense"].concat(),
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
        .env("HORTON_CACHE_DIR", cache)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn succeed(mut child: Child) {
    assert!(child.wait().unwrap().success());
}
