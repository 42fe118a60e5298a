//! What an instruction does with memory that work-items share, by its name.
//!
//! ```text
//!  ds_write_b16 …                  local,  a write of 2 bytes
//!  global_load_dword … glc         global, a read as an atomic does it: past the caches
//!  global_atomic_add …             global, an update
//! ```
//!
//! A load that passes by the caches is what compilers make of an atomic or a volatile load, and of
//! no other. Stores of gfx90a do not show it, so to them a volatile store is a plain one.
//!
//! Source: LLVM's "User Guide for AMDGPU Backend", its tables of memory models.

/// How bytes are accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    AtomicRead,
    /// An atomic write, or a read and a write in one.
    Update,
}

/// An access to memory that work-items share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    pub is_local: bool,
    pub kind: Kind,
    /// Bytes of its words, at most 4.
    pub bytes: u32,
}

impl Access {
    /// Returns what an instruction accesses, if it does.
    pub fn of(text: &str) -> Option<Self> {
        let name = text.split_whitespace().next()?;
        let (unit, operation) = name.split_once('_')?;
        let begins = |parts: &[&str]| parts.iter().any(|part| operation.starts_with(part));
        let has = |parts: &[&str]| parts.iter().any(|part| operation.contains(part));
        let (is_load, is_exchange) = (begins(&["load", "read"]), has(&["xchg"]));
        let is_store = begins(&["store", "write"]) && !is_exchange;
        let is_access = match unit {
            "ds" => !has(&["permute"]),
            "global" | "flat" => true,
            "s" => is_load,
            _ => false,
        };
        let is_coherent = |word| matches!(word, "glc" | "dlc" | "sc0" | "sc1");
        let kind = match text.split_whitespace().any(is_coherent) {
            false if is_load => Kind::Read,
            false if is_store => Kind::Write,
            true if is_load => Kind::AtomicRead,
            _ => Kind::Update,
        };
        let bytes = match () {
            () if has(&["byte", "_u8", "_i8", "_b8"]) => 1,
            () if has(&["short", "_u16", "_i16", "_b16"]) => 2,
            () => 4,
        };
        is_access.then_some(Self {
            is_local: unit == "ds",
            kind,
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_say_what_they_access() {
        let cases = [
            ("ds_read_u16 v0, v1", Some((true, Kind::Read, 2))),
            ("ds_write2_b32 v0, v1, v2", Some((true, Kind::Write, 4))),
            (
                "ds_wrxchg_rtn_b32 v0, v1, v2",
                Some((true, Kind::Update, 4)),
            ),
            (
                "ds_storexchg_rtn_b64 v0, v1, v2",
                Some((true, Kind::Update, 4)),
            ),
            ("ds_bpermute_b32 v0, v1, v2", None),
            (
                "global_load_ubyte v0, v[2:3], off",
                Some((false, Kind::Read, 1)),
            ),
            (
                "global_load_dword v0, v[2:3], off glc",
                Some((false, Kind::AtomicRead, 4)),
            ),
            (
                "global_store_b32 v[2:3], v0, off dlc",
                Some((false, Kind::Update, 4)),
            ),
            (
                "global_atomic_add v0, v1, s[2:3]",
                Some((false, Kind::Update, 4)),
            ),
            (
                "s_load_dwordx8 s[8:15], s[0:1], 0x0",
                Some((false, Kind::Read, 4)),
            ),
            ("scratch_load_dword v0, v2, off", None),
            ("s_barrier", None),
        ];
        for (text, expected) in cases {
            let access = Access::of(text).map(|of| (of.is_local, of.kind, of.bytes));
            assert_eq!(access, expected, "{text}");
        }
    }
}
