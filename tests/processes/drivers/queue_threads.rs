//! Memory that a queue thread's commands still use is nobody else's.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use horton_join::device::{Device, DeviceKind, Staging};

use super::child::is_child;

/// Words of a buffer: on a GPU, a copy takes long enough.
const WORDS: usize = 64 << 20 >> 2;

/// Takes host memory for so many words.
fn staging_of(device: &Device, words: usize) -> Staging<u32> {
    let (_permit, staging) = futures::executor::block_on(device.upload("test", words)).unwrap();
    staging
}

/// Counts the words that another thread's job finds changed by a copy that is under way.
fn overwritten(device: &Device) -> usize {
    let read = device.run_blocking(|queue| {
        let other = queue.allocate::<u32>("test", WORDS)?;
        queue.fill(&other, 7)?;
        queue.read(&other, 1)?;
        std::thread::sleep(Duration::from_millis(600));
        queue.read(&other, WORDS)
    });
    let words = read.unwrap().value;
    words.iter().filter(|word| **word != 7).count()
}

/// A job enqueues a copy into a buffer and returns. Meanwhile the last other owner of the buffer
/// drops it, as the future of a cancelled query does. Another queue thread then asks for as much
/// memory. Through the shim copies begin late on any device.
#[test]
fn a_copy_under_way_keeps_its_memory() {
    let test = "queue_threads::a_copy_under_way_keeps_its_memory";
    if !is_child(test, "gpu delay=300") {
        return;
    }
    let device = Device::open("auto").unwrap();
    assert_ne!(device.info().kind, DeviceKind::Cpu);
    for _ in 0..3 {
        let allocated = device.run_blocking(|queue| queue.allocate::<u32>("test", WORDS));
        let buffer = Arc::new(allocated.unwrap().value);
        let mut staging = staging_of(&device, WORDS);
        staging.fill(1);
        let target = Arc::clone(&buffer);
        let (enqueued, wait) = channel();
        let sent = device.run(move |queue| {
            queue.send_to(&target, 0, staging)?;
            drop(target);
            enqueued.send(()).unwrap();
            Ok(())
        });
        wait.recv().unwrap();
        drop(buffer);
        assert_eq!(overwritten(&device), 0, "words of another job");
        futures::executor::block_on(sent).unwrap();
    }
    let idle = device.run_blocking(|_| Ok(()));
    idle.unwrap();
    assert_eq!(device.budget().used(), 0);
}

/// The job itself drops the buffer, takes its memory for another, and drops that before any command
/// has used it.
#[test]
fn memory_taken_once_more_in_a_job_is_kept_for_the_first_copy() {
    let test = "queue_threads::memory_taken_once_more_in_a_job_is_kept_for_the_first_copy";
    if !is_child(test, "gpu delay=300") {
        return;
    }
    let device = Device::open("auto").unwrap();
    let mut staging = staging_of(&device, WORDS);
    staging.fill(1);
    let (enqueued, wait) = channel();
    let sent = device.run(move |queue| {
        let first = queue.allocate::<u32>("test", WORDS)?;
        queue.send_to(&first, 0, staging)?;
        drop(first);
        drop(queue.allocate::<u32>("test", WORDS)?);
        enqueued.send(()).unwrap();
        Ok(())
    });
    wait.recv().unwrap();
    assert_eq!(overwritten(&device), 0, "words of another job");
    futures::executor::block_on(sent).unwrap();
}

/// Memory that commands alone hold counts as long as they may run. It is waited for where memory is
/// short.
#[test]
fn memory_of_commands_counts_for_the_budget() {
    const PART: usize = 8 << 18;
    if !is_child(
        "queue_threads::memory_of_commands_counts_for_the_budget",
        "gpu",
    ) {
        return;
    }
    let device = Device::open("auto").unwrap();
    let limit = 20 << 20;
    let job = device.run_blocking(move |queue| {
        queue.limit_memory(limit);
        for part in 0..8 {
            // Each of another class of size, so that none takes the other's.
            let buffer = queue.allocate::<u32>("test", PART + part * (PART / 8))?;
            queue.fill(&buffer, 1)?;
        }
        Ok(())
    });
    job.unwrap();
    assert!(device.budget().peak() <= limit);
    assert_eq!(device.budget().used(), 0);
}

/// Memory that was locked for one size serves any other: to lock more takes a driver's time.
#[test]
fn page_locked_memory_is_used_again_for_any_size() {
    /// Words of the first region.
    const REGION: usize = 2 << 20;
    let test = "queue_threads::page_locked_memory_is_used_again_for_any_size";
    if !is_child(test, "gpu") {
        return;
    }
    let device = Device::open("auto").unwrap();
    let address = |words: usize| staging_of(&device, words).as_ptr().addr();
    let first = address(REGION / 2);
    assert_eq!([1, REGION / 4 + 5, REGION].map(address), [first; 3]);
    let [a, b] = [(); 2].map(|()| staging_of(&device, REGION / 4));
    let parts = [&a, &b].map(|part| part.as_ptr().addr());
    assert_eq!(
        parts,
        [first, first + REGION],
        "a quarter of the words each"
    );
    drop((b, a));
    assert_eq!(address(REGION), first, "one range again");
    assert_ne!(address(REGION + 1), first, "no region had room");
}

/// Returns the number of this process's threads that belong to a device.
#[cfg(debug_assertions)]
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    };
    tasks
        .map(name)
        .filter(|name| name.starts_with("horton"))
        .count()
}

/// Waits until there are so many.
#[cfg(debug_assertions)]
fn wait_for_threads(number: usize) {
    let began = std::time::Instant::now();
    while threads() != number {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{} instead of {number}",
            threads()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Three of queues, four of memory, and the one that looks after them.
#[cfg(debug_assertions)]
const THREADS: usize = 8;

/// Those that were started end, and a later try has the device.
#[cfg(debug_assertions)]
#[test]
fn a_device_whose_threads_cannot_be_started_leaves_none() {
    use horton_test_support::internals::faults;

    let test = "queue_threads::a_device_whose_threads_cannot_be_started_leaves_none";
    if !is_child(test, "gpu") {
        return;
    }
    for started in 0..THREADS {
        faults::allow_threads(Some(started));
        let error = Device::open("auto").unwrap_err().to_string();
        assert!(error.contains("no thread is left"), "{error}");
        wait_for_threads(0);
    }
    faults::allow_threads(None);
    let device = Device::open("auto").unwrap();
    device.run_blocking(|_| Ok(())).unwrap();
    wait_for_threads(THREADS);
}

/// All three queue threads are late, and the system has one thread for them at first.
#[cfg(debug_assertions)]
#[test]
fn threads_that_could_not_be_replaced_are_all_started_later() {
    use horton_test_support::internals::faults;

    let test = "queue_threads::threads_that_could_not_be_replaced_are_all_started_later";
    if !is_child(test, "gpu") {
        return;
    }
    const LATE: Duration = Duration::from_secs(3);
    let device = Device::open("auto").unwrap();
    let device = device.with_timeout(Some(Duration::from_secs(1)));
    device.run_blocking(|_| Ok(())).unwrap();
    faults::allow_threads(Some(1));
    let late = [(); 3].map(|()| {
        device.run(|_| {
            std::thread::sleep(LATE);
            Ok(())
        })
    });
    for job in late {
        let error = futures::executor::block_on(job).unwrap_err().to_string();
        assert!(error.contains("has not returned for 1.0 s"), "{error}");
    }
    // Those that are late end after their jobs.
    wait_for_threads(THREADS - 2);
    device.run_blocking(|_| Ok(())).unwrap();
    faults::allow_threads(None);
    wait_for_threads(THREADS);
}
