//! Codes of several words mixed to 64 bits, on which tables go by; the counterpart of
//! `cl/primitives/mix.cl`.
//!
//! ```text
//!  code, two words at a time ──XOR──▶ mix ──▶ … ──▶ 64 bits       from a table's seed on
//! ```
//!
//! One-to-one for codes of two words: what is mixed stands for the code. The seed is random for
//! every table of a join, or someone who knows the function could send codes that all mix to one
//! bucket.

/// Returns the words that are mixed with codes of a table with this `seed`, low word first.
pub(crate) fn seed_words(seed: u32) -> [u32; 2] {
    [seed, seed.rotate_left(16) ^ 0x9e37_79b9]
}

/// Returns a code, low word first, mixed.
pub(crate) fn mixed(code: &[u32], seed: u32) -> u64 {
    let long = |words: &[u32]| words.iter().rev().fold(0, |l, w| l << 32 | u64::from(*w));
    code.chunks(2)
        .fold(long(&seed_words(seed)), |so_far, words| {
            mix(so_far ^ long(words))
        })
}

/// Returns a one-to-one function of good avalanche: the finalizer of MurmurHash3.
fn mix(mut code: u64) -> u64 {
    code ^= code >> 33;
    code = code.wrapping_mul(0xff51_afd7_ed55_8ccd);
    code ^= code >> 33;
    code = code.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    code ^ code >> 33
}
