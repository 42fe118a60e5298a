//! The session of one task on a worker.
//!
//! ```text
//!  plan and headers arrive ─▶ worker_session ─▶ session with horton.…, and the rewrite
//!  plan decoded            ─▶ the rewrite    ─▶ on_device(plan, options, the process's health)
//! ```
//!
//! Workers run no optimizer rules, so rules in the session would do nothing. The rewrite is the one
//! place that datafusion-distributed has for a change of engine.

use std::future::{Ready, ready};
use std::sync::LazyLock;

use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion_distributed::{
    DistributedExt, WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse, WorkerQueryContext,
    WorkerSessionBuilder,
};
use horton_join::config::HortonConfig;
use horton_join::{Health, HortonJoinExec, on_device};

use crate::options;

/// The health of the devices of this process. Options arrive again with each task, and a device
/// that failed one of them should not be tried by all.
static HEALTH: LazyLock<Health> = LazyLock::new(Health::default);

/// Returns the session builder of a worker whose hash joins run on a device. `own` are the
/// worker's options, such as those of its command line.
///
/// ```text
///  own options + those of the query ─▶ session of a task ─▶ its joins on the device
/// ```
///
/// What a query sets to other than the default overrides `own`. A device that `own` names stays,
/// as such names belong to a machine. Coordinators send options if their session has
/// `with_distributed_option_extension(HortonConfig::default())`.
///
/// Functions and codecs of your own are added with `map`:
///
/// ```
/// use datafusion::execution::SessionStateBuilder;
/// use datafusion_distributed::{MappedWorkerSessionBuilderExt, Worker};
/// use horton_distributed::worker_session;
/// use horton_join::config::HortonConfig;
///
/// let session = worker_session(HortonConfig::default())
///     .map(|builder: SessionStateBuilder| Ok(builder.build()));
/// let worker = Worker::from_session_builder(session);
/// # drop(worker);
/// ```
///
/// See also: [`warm_up_for`](horton_join::warm_up_for), to be called when the worker starts.
pub fn worker_session(
    own: HortonConfig,
) -> impl WorkerSessionBuilder + Clone + Send + Sync + 'static {
    move |context: WorkerQueryContext| -> Ready<Result<SessionState>> {
        ready(session(&own, context))
    }
}

fn session(own: &HortonConfig, context: WorkerQueryContext) -> Result<SessionState> {
    let options = options::for_task(own, &context.headers)?;
    let mut builder = context
        .builder
        .with_distributed_worker_plan_rewrite_handler(rewrite);
    let config = builder.config().get_or_insert_default();
    config.options_mut().extensions.insert(options);
    Ok(builder.build())
}

/// Puts the joins of a stage on the device.
fn rewrite(event: WorkerPlanRewriteEvent<'_>) -> Result<WorkerPlanRewriteEventResponse> {
    let plan = on_device(event.plan, event.session_config.options(), &HEALTH)?;
    let joins = HortonJoinExec::all_in(&plan).len();
    log::debug!("a task has {joins} joins for the device");
    Ok(WorkerPlanRewriteEventResponse::new(plan))
}
