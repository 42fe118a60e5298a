//! The join operator.
//!
//! ```text
//!  execution_plan: execute(p) ─▶ execute: once per plan, or per partition (Partitioned)
//!    input           buffered ─▶ choose_build_side: both alternately, until one ends
//!    dynamic_filter  its keys, to the scans of the probe side
//!    prepare         on the device │ on the host: DataFusion's own join over what was read
//!    build_side      keys ─▶ normalized keys ─▶ lookup::table, on the device
//!    probe           one stream per partition
//!       chunk of batches ─▶ normalized keys ─▶ lookup::device ─▶ candidate pairs
//!       ─▶ verified ─▶ residual filter ─▶ output: join type, columns ─▶ RecordBatch
//!    spill           both sides in spill partitions, each pair of them prepared like that
//! ```
//!
//! * [`exec`]: the plan node; `execution_plan`: what planners and streams ask of it; [`sides`]:
//!   which may be built, and which is read first; [`properties`]: what it promises of its rows
//! * [`read_ahead`]: whether the side that is not read first is empty
//! * [`execute`]: how an [`execution`] begins; [`open_inputs`]: when inputs are opened; [`steps`]
//!   of recursive queries
//! * [`opened`]: a join whose rows can be read; `stream`: how they are polled
//! * [`decision`]: the decisions, and what EXPLAIN shows of it
//!
//! What all of these use: [`side`], [`rows`] of the build side, [`mod@concat`] of many arrays into
//! one, [`bitmap`]s of rows, the bytes of batches (`batch_bytes`), the [`memory`] pool,
//! [`metrics`].

mod batch_bytes;
pub mod bitmap;
pub mod build_side;
pub mod concat;
pub mod decision;
pub mod dynamic_filter;
pub mod exec;
pub mod execute;
pub mod execution;
mod execution_plan;
pub mod input;
pub mod key_range;
pub mod lookup;
pub mod memory;
pub mod metrics;
pub mod open_inputs;
pub mod opened;
pub mod output;
pub mod prepare;
pub mod probe;
pub mod properties;
pub mod read_ahead;
pub mod rows;
pub mod side;
pub mod sides;
pub mod spill;
pub mod steps;
mod stream;
mod waiting;
