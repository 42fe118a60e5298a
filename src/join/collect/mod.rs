//! Reading the inputs until a build side is there.

pub mod coalesce;
pub mod collected;
mod part;
pub mod race;
pub mod reading;
