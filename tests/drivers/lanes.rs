//! Memory that a lane's commands still use is nobody else's.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use horton_join::device::{Device, DeviceKind};

use super::child::is_child;

/// Words of a buffer: on a GPU, a copy takes long enough.
const WORDS: usize = 64 << 20 >> 2;

/// A job enqueues a copy into a buffer and returns; meanwhile the last other owner of the buffer drops it, as the
/// future of a cancelled query does, and another lane asks for as much memory. Through the shim copies begin late on any
/// device.
#[test]
fn a_copy_under_way_keeps_its_memory() {
    let test = "lanes::a_copy_under_way_keeps_its_memory";
    if !is_child(test, "gpu delay=300") {
        return;
    }
    let device = Device::open("auto").unwrap();
    assert_ne!(device.info().kind, DeviceKind::Cpu);
    for _ in 0..3 {
        let allocated = device.run_blocking(|queue| queue.allocate::<u32>("test", WORDS));
        let buffer = Arc::new(allocated.unwrap().value);
        let mut staging = futures::executor::block_on(device.staging("test", WORDS)).unwrap();
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
        let read = device.run_blocking(|queue| {
            let other = queue.allocate::<u32>("test", WORDS)?;
            queue.fill(&other, 7)?;
            queue.read(&other, 1)?;
            std::thread::sleep(Duration::from_millis(600));
            queue.read(&other, WORDS)
        });
        let overwritten = read
            .unwrap()
            .value
            .iter()
            .filter(|word| **word != 7)
            .count();
        assert_eq!(overwritten, 0, "words of another job");
        futures::executor::block_on(sent).unwrap();
    }
    let idle = device.run_blocking(|_| Ok(()));
    idle.unwrap();
    assert_eq!(device.budget().used(), 0);
}
