//! Workers of [datafusion-distributed](datafusion_distributed) whose hash joins run on OpenCL
//! devices.
//!
//! ```text
//!  coordinator:  SQL ─▶ DataFusion's plan ─▶ stages ──┐      theirs, and the options horton.…
//!                                                     │ gRPC: plan, and options in headers
//!  worker:       worker_session ─▶ options, rewrite ◀─┘      theirs, with a session of ours
//!                stage ─▶ HashJoinExec becomes HortonJoinExec ─▶ rows
//! ```
//!
//! Only workers change. `HashJoinExec` travels as it is, so no codec is needed, and a coordinator
//! may have workers of both kinds. Joins on the coordinator instead would hide from its planner,
//! which looks for `HashJoinExec` to decide where rows change places.
//!
//! # Worker
//!
//! [`worker_session`] is all that a worker of your own needs. The binary
//! `horton-distributed-worker` is one with flags.
//!
//! ```no_run
//! use datafusion_distributed::Worker;
//! use horton_distributed::worker_session;
//! use horton_join::config::HortonConfig;
//! use tonic::transport::Server;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let own = HortonConfig::default();
//! if let Err(reason) = horton_join::warm_up_for(&own).await {
//!     println!("joins run on the host: {reason}");
//! }
//! let worker = Worker::from_session_builder(worker_session(own)).into_worker_server();
//! Server::builder().add_service(worker).serve("127.0.0.1:8081".parse()?).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Coordinator
//!
//! `with_distributed_option_extension` lets `SET horton.… = …` travel. Without it, workers use
//! their own options.
//!
//! ```
//! use datafusion::execution::SessionStateBuilder;
//! use datafusion::prelude::SessionContext;
//! use datafusion_distributed::{DistributedExt, SessionStateBuilderExt};
//! use horton_join::config::HortonConfig;
//!
//! # #[tokio::main]
//! # async fn main() -> datafusion::error::Result<()> {
//! let state = SessionStateBuilder::new()
//!     .with_default_features()
//!     .with_distributed_planner()
//!     .with_distributed_option_extension(HortonConfig::default())
//!     // .with_distributed_worker_resolver(…)
//!     .build();
//! let session = SessionContext::new_with_state(state);
//! session.sql("SET horton.enabled = 'always'").await?;
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]

mod options;
mod session;

pub use session::worker_session;
