//! The two sides of a join.

/// A side of a join, as planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The left input: the build side of a `HashJoinExec`.
    Left,
    /// The right input.
    Right,
}

impl Side {
    /// The left and the right one.
    pub const BOTH: [Side; 2] = [Side::Left, Side::Right];

    /// Returns the other one.
    pub fn other(self) -> Self {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Side::Left => "left",
            Side::Right => "right",
        })
    }
}
