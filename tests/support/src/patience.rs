//! Tells processes that hang from those that are slow.
//!
//! ```text
//!  second by second:  busy busy busy idle busy idle idle idle idle …  over after IDLE idle ones
//!                     └──────────── or after ALL ────────────────┘    in a row, or ALL of any kind
//! ```
//!
//! A deadlock uses no processor time. Compiling kernels for the first time may take minutes of it
//! where the machine is shared. A process that is stopped for a while is not to blame. Seconds are
//! counted as they are seen, so a stop is one second, however long it was.

/// Idle seconds in a row that are a hang.
const IDLE: u32 = 60;

/// Seconds of any kind that are one: nothing here takes as long.
const ALL: u32 = 600;

/// The time that something has been waited for.
#[derive(Debug, Default)]
pub struct Patience {
    processor_time: Option<u64>,
    idle: u32,
    all: u32,
}

impl Patience {
    /// Counts a second; whether it was one too many.
    pub fn is_over(&mut self) -> bool {
        let before = std::mem::replace(&mut self.processor_time, processor_time());
        // Where the system does not tell, every second counts as busy.
        let is_busy = self.processor_time.is_none() || self.processor_time > before;
        self.idle = if is_busy { 0 } else { self.idle + 1 };
        self.all += 1;
        self.idle >= IDLE || self.all >= ALL
    }

    /// Seconds counted.
    pub fn seconds(&self) -> u32 {
        self.all
    }
}

/// Processor time of this process, in clock ticks of the system (a hundredth of a second).
fn processor_time() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which may hold anything: the state is the first field, the times are the
    // 12th and 13th.
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    let times: Vec<u64> = fields.skip(11).take(2).flat_map(str::parse).collect();
    Some(times.iter().sum())
}
