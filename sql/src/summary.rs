//! The places where the joins of a statement ran, in a few words.
//!
//! ```text
//!  plans ─▶ joins ─▶ decisions ─▶ 3 joins: 2 on NVIDIA H200, 1 on the host (…)
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use horton_join::{Decision, HortonJoinExec, Place};

/// Returns where the joins of `plans` ran; `None` if they have no joins.
pub fn joins(plans: &[Arc<dyn ExecutionPlan>]) -> Option<String> {
    let mut places = Vec::new();
    for plan in plans {
        collect(plan, &mut places);
    }
    let first = places.first()?;
    let joins = match places.len() {
        1 => "1 join".to_owned(),
        several => format!("{several} joins"),
    };
    if places.iter().all(|place| place == first) {
        return Some(format!("{joins} {first}"));
    }
    // In the order of the plan, each place once.
    let mut seen = BTreeSet::new();
    let distinct = places.iter().filter(|place| seen.insert(place.as_str()));
    let counted = distinct.map(|place| {
        let count = places.iter().filter(|other| *other == place).count();
        format!("{count} {place}")
    });
    Some(format!(
        "{joins}: {}",
        counted.collect::<Vec<_>>().join(", ")
    ))
}

fn collect(plan: &Arc<dyn ExecutionPlan>, places: &mut Vec<String>) {
    match HortonJoinExec::downcast(plan.as_ref()) {
        Some(join) => places.push(place(&join.decisions())),
        None if plan.name().ends_with("JoinExec") => {
            places.push(format!("on the host ({})", plan.name()));
        }
        None => {}
    }
    for child in plan.children() {
        collect(child, places);
    }
}

/// Returns where a join ran by the `decisions` on each of its builds.
fn place(decisions: &[Decision]) -> String {
    let mut devices = BTreeSet::new();
    let mut reasons = Vec::new();
    for decision in decisions {
        match &decision.place {
            Place::Device(device) => {
                devices.insert(device.info().name.clone());
            }
            Place::Host(reason) => reasons.push(reason.to_string()),
        }
    }
    let devices: Vec<String> = devices.into_iter().collect();
    let devices = devices.join(" and ");
    match (devices.is_empty(), reasons.first()) {
        (true, None) => "not run".to_owned(),
        (true, Some(reason)) => format!("on the host ({reason})"),
        (false, None) => format!("on {devices}"),
        (false, Some(reason)) => format!(
            "on {devices} but for {} of {} builds on the host ({reason})",
            reasons.len(),
            decisions.len()
        ),
    }
}
