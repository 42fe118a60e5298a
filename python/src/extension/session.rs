//! What the extension has of one session of `datafusion`, and what its joins run with.
//!
//! ```text
//!  datafusion.SessionContext ─▶ planner, contexts           held weakly: no cycle keeps it alive
//!  Extension(options)        ─▶ options, memory, health     one set for each session
//! ```

use std::fmt;
use std::sync::Arc;

use datafusion::execution::context::QueryPlanner;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_ffi::execution::FFI_TaskContextProvider;
use datafusion_ffi::query_planner::FFI_QueryPlanner;
use horton_join::Health;
use horton_join::config::{Enabled, HortonConfig};
use tokio::runtime::Handle;

use super::decisions::Decisions;
use super::host_input::HostInput;

/// A session.
pub struct Session {
    planner: Arc<dyn QueryPlanner + Send + Sync>,
    contexts: FFI_TaskContextProvider,
    state: SessionState,
    config: SessionConfig,
    memory: Arc<RuntimeEnv>,
    health: Health,
    runtime: Handle,
    decisions: Decisions,
}

impl Session {
    /// Returns what is known of a session. `config` has the options of this crate.
    pub fn new(
        planner: &FFI_QueryPlanner,
        contexts: FFI_TaskContextProvider,
        config: SessionConfig,
        memory: Arc<RuntimeEnv>,
        runtime: Handle,
        decisions: Decisions,
    ) -> Self {
        // The plans that it is asked for are made already, so that rules would change them.
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_physical_optimizer_rules(Vec::new())
            .build();
        Self {
            planner: planner.into(),
            contexts,
            state,
            config,
            memory,
            health: Health::default(),
            runtime,
            decisions,
        }
    }

    /// Returns the planner of the host.
    pub fn planner(&self) -> &dyn QueryPlanner {
        self.planner.as_ref()
    }

    /// Returns DataFusion's functions, and no rules.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Returns the options.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Returns the failures of the session's devices.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Returns the runtime that joins run in.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns whether no join is to be taken over.
    pub fn is_off(&self) -> bool {
        let horton = self.config.options().extensions.get::<HortonConfig>();
        horton.is_none_or(|horton| horton.enabled == Enabled::Never)
    }

    /// Returns `plans` as inputs of a join.
    pub fn inputs(&self, plans: &[Arc<dyn ExecutionPlan>]) -> Vec<Arc<dyn ExecutionPlan>> {
        let input = |plan: &Arc<dyn ExecutionPlan>| {
            let plan = Arc::clone(plan);
            Arc::new(HostInput::new(plan, self.contexts.clone())) as Arc<dyn ExecutionPlan>
        };
        plans.iter().map(input).collect()
    }

    /// Returns the context of a join, for a query that has the context `asked`.
    pub fn context(&self, asked: &TaskContext) -> Arc<TaskContext> {
        let mut config = asked.session_config().clone();
        if let Some(horton) = self.config.options().extensions.get::<HortonConfig>() {
            config.options_mut().extensions.insert(horton.clone());
        }
        Arc::new(TaskContext::new(
            asked.task_id(),
            asked.session_id(),
            config,
            asked.scalar_functions().clone(),
            asked.higher_order_functions().clone(),
            asked.aggregate_functions().clone(),
            asked.window_functions().clone(),
            Arc::clone(&self.memory),
        ))
    }

    /// Returns the decisions of the last query.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}
