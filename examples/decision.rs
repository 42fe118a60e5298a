//! Where a join ran, which side was built, and why: read off the plan after it ran.
//!
//! ```text
//!   cargo run --example decision
//!
//!   create_physical_plan ─▶ collect ─▶ HortonJoinExec::all_in(&plan) ─▶ decisions()
//! ```
//!
//! `EXPLAIN ANALYZE` says the same as text (docs/debugging.md).

use datafusion::error::Result;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::{HortonJoinExec, Place};

const QUERY: &str = "SELECT count(*) FROM \
                     (SELECT value k FROM range(0, 20000)) a JOIN \
                     (SELECT value * 3 k FROM range(0, 50000)) b ON a.k = b.k";

#[tokio::main]
async fn main() -> Result<()> {
    let ctx = horton_join::context(SessionConfig::new());
    horton_join::warm_up(&ctx).await?;
    for enabled in ["auto", "always", "never"] {
        ctx.sql(&format!("SET horton.enabled = '{enabled}'"))
            .await?;
        println!("{enabled}:");
        show_decisions(&ctx).await?;
    }
    Ok(())
}

async fn show_decisions(ctx: &SessionContext) -> Result<()> {
    let plan = ctx.sql(QUERY).await?.create_physical_plan().await?;
    collect(plan.clone(), ctx.task_ctx()).await?;
    let joins = HortonJoinExec::all_in(&plan);
    if joins.is_empty() {
        println!("  DataFusion's own join");
    }
    // A join in partitions makes a decision for each of them, and so do spill partitions.
    for decision in joins.iter().flat_map(|join| join.decisions()) {
        let place = match decision.place {
            Place::Device(device) => format!("on {}", device.info().name),
            Place::Host(reason) => format!("on the host: {reason}"),
        };
        println!(
            "  {:?} side built, {} rows, {place}",
            decision.build, decision.rows
        );
    }
    Ok(())
}
