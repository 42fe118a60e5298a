//! The chips that are emulated, and the driver that the library passes for.

/// An AMD GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// CDNA 2 (MI200), waves of 64.
    Gfx90a,
    /// CDNA 3 (MI300), waves of 64.
    Gfx942,
    /// RDNA 3 (RX 7900), waves of 32.
    Gfx1100,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 3] = [Target::Gfx90a, Target::Gfx942, Target::Gfx1100];

    /// Returns the target of that name, as LLVM has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Target::Gfx90a => "gfx90a",
            Target::Gfx942 => "gfx942",
            Target::Gfx1100 => "gfx1100",
        }
    }

    /// Returns the work-items of a wave.
    pub fn wave_size(self) -> u32 {
        match self {
            Target::Gfx90a | Target::Gfx942 => 64,
            Target::Gfx1100 => 32,
        }
    }

    /// Returns whether its instructions are those of RDNA.
    pub fn is_rdna(self) -> bool {
        self == Target::Gfx1100
    }
}

/// The driver that the library passes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Driver {
    /// AMD's own: OpenCL 2.0, 64-bit atomics, no shuffles.
    Rocm,
    /// Mesa's: OpenCL 3.0, shuffles, no 64-bit atomics.
    Rusticl,
}
