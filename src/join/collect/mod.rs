//! Reading the inputs until a build side is there.

pub mod coalesce;
pub mod race;
pub mod reading;
