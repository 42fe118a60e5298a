//! The commands of a job as events of `tracing`, with the device's times on the host's clock.
//!
//! ```text
//!  host    job begins ─── issued, seen ──────────────────────── finished
//!                            │  seen - queued, finished - end: no less than the clocks differ
//!  device                 queued ─────▶ start ════════ end ─▶ event: begin_ns, end_ns
//! ```
//!
//! OpenCL events have times of the device's clock. A command is queued before its issuer goes on,
//! and has ended before the job has. So the least of these differences is the one between the
//! clocks, too large by a few microseconds at most. Commands stay within their job, whatever a
//! driver says.
//!
//! `clGetDeviceAndHostTimer` is not used: drivers of OpenCL 1.2 lack it. While nobody traces, no
//! time is read.

use std::time::{Duration, Instant};

use ocl::core::{Event, ProfilingInfo};
use tracing::Level;

use super::super::opencl;

/// The purpose of a command.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    Upload,
    Kernel(&'static str),
    Download,
}

impl Stage {
    /// Returns its name in errors.
    pub(super) fn name(self) -> &'static str {
        match self {
            Stage::Upload => "upload",
            Stage::Kernel(name) => name,
            Stage::Download => "download",
        }
    }

    /// Returns the kind of the command.
    fn kind(self) -> &'static str {
        match self {
            Stage::Kernel(_) => "kernel",
            Stage::Upload | Stage::Download => self.name(),
        }
    }
}

/// A command that was issued.
pub(super) struct Command {
    /// Its purpose.
    pub(super) stage: Stage,
    /// Its event.
    pub(super) event: Event,
    /// The time since the job began at which it was issued, if somebody traces.
    pub(super) seen: Option<Duration>,
}

/// The begin of a job, if somebody traces.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct JobClock(Option<Instant>);

/// Nanoseconds of the device's clock: when a command was queued, started and ended. The first is
/// when it was seen, on the host's clock.
type Times = [i128; 4];

impl JobClock {
    /// Begins a job.
    pub(super) fn begin() -> Self {
        Self(tracing::enabled!(Level::TRACE).then(Instant::now))
    }

    /// Returns the time since the job began, if somebody traces.
    pub(super) fn now(self) -> Option<Duration> {
        self.0.map(|began| began.elapsed())
    }

    /// Makes an event of each of the `commands`, which are done. Its times are in nanoseconds since
    /// the span `job` was entered.
    pub(super) fn show(self, commands: &[Command]) {
        let Some(finished) = self.now() else {
            return;
        };
        let timed = commands.iter().filter_map(|c| Some((c.stage, times(c)?)));
        let (stages, times): (Vec<_>, Vec<_>) = timed.unzip();
        for (stage, [begin_ns, end_ns]) in stages.into_iter().zip(on_host(&times, finished)) {
            let (kind, command) = (stage.kind(), stage.name());
            tracing::trace!(kind, command, begin_ns, end_ns);
        }
    }
}

/// Returns the times of a command, where the driver says them.
fn times(command: &Command) -> Option<Times> {
    let clock = |when| opencl::event_time(&command.event, when).ok();
    let [queued, start, end] = [
        clock(ProfilingInfo::Queued)?,
        clock(ProfilingInfo::Start)?,
        clock(ProfilingInfo::End)?,
    ];
    let seen = command.seen?.as_nanos() as i128;
    Some([seen, queued.into(), start.into(), end.into()])
}

/// Returns begin and end of each command on the host's clock. A queue runs them one after the
/// other, all before the job has `finished`.
fn on_host(commands: &[Times], finished: Duration) -> Vec<[u64; 2]> {
    let finished = finished.as_nanos() as i128;
    let differences = commands
        .iter()
        .flat_map(|[seen, queued, _, end]| [seen - queued, finished - end]);
    let difference = differences.min().unwrap_or_default();
    let mut last = 0;
    let each = commands.iter().map(|[.., start, end]| {
        let begin = (start + difference).clamp(last, finished);
        last = (end + difference).clamp(begin, finished);
        [begin as u64, last as u64]
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_times_lie_within_their_job() {
        let finished = Duration::from_nanos(1000);
        // The device's clock is 5000 ahead. The second command was seen when it had ended.
        let commands = [[110, 5100, 5200, 5300], [720, 5400, 5450, 5700]];
        assert_eq!(on_host(&commands, finished), [[210, 310], [460, 710]]);
        // One that was only seen at its end is bounded by the end of the job.
        let late = [[990, 5100, 5200, 5980]];
        assert_eq!(on_host(&late, finished), [[220, 1000]]);
        // Times that cannot be stay within the job, and in order.
        let wrong = [[10, 0, 50, 20], [20, 0, 30, 9_000_000]];
        let shown = on_host(&wrong, finished);
        assert!(shown.iter().flatten().is_sorted());
        assert!(shown.iter().flatten().all(|time| *time <= 1000));
        assert_eq!(on_host(&[], finished), Vec::<[u64; 2]>::new());
    }
}
