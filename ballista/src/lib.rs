//! Ballista executors whose hash joins run on OpenCL devices.
//!
//! ```text
//!  client ─▶ scheduler: plans, cuts into stages      stock, or ours to pass SET horton.…
//!                 │ HashJoinExec, as it is
//!                 ▼
//!  executor: HortonEngine ─▶ on_device ─▶ stock engine ─▶ shuffle files
//!            options: for_task          device: make_ready, once, at the start
//! ```
//!
//! Ballista's scheduler plans, and its executors run what they get. So joins change on the
//! executor, one [`HortonEngine`] in front of the stock engine, and nothing else need know. A rule
//! on the scheduler would not do: its adaptive planner leaves the rules of a session out.
//!
//! The two programs of this crate are stock but for that: `horton-ballista-executor` and
//! `horton-ballista-scheduler`. An executor of one's own takes these parts instead:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use ballista_core::object_store::runtime_env_with_s3_support;
//! use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
//! use horton_ballista::{HortonEngine, Place, make_ready, session_config};
//! use horton_join::config::{Enabled, HortonConfig};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = HortonConfig { enabled: Enabled::Always, ..HortonConfig::default() };
//! if let Place::Host(reason) = make_ready(&options).await? {
//!     println!("joins run on the host: {reason}");
//! }
//! let mut process = ExecutorProcessConfig::default();
//! let engine = HortonEngine::new(options, process.client_ttl);
//! process.override_execution_engine = Some(Arc::new(engine));
//! process.override_config_producer = Some(Arc::new(session_config));
//! process.override_runtime_producer = Some(Arc::new(runtime_env_with_s3_support));
//! start_executor_process(Arc::new(process)).await?;
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod device;
mod engine;
pub mod logging;
mod options;
mod pool;
mod session;

pub use device::{Place, make_ready};
pub use engine::HortonEngine;
pub use options::{OfMachine, OptionArgs, for_task};
pub use session::session_config;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
