//! The parts of programs: the files in `cl/`, each once.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

/// The name of a file and its text.
pub(crate) type Part = (&'static str, &'static str);

/// Names the files.
macro_rules! parts {
    ($($name:ident = $file:literal,)*) => {
        $(pub(crate) const $name: Part = ($file, include_str!(concat!("../cl/", $file)));)*

        const ALL: &[Part] = &[$($name),*];
    };
}

parts! {
    BUCKET = "bucket.cl",
    BUILD = "build.cl",
    CENSUS = "census.cl",
    CHANGING = "changing.cl",
    CODES = "codes.cl",
    CUCKOO = "cuckoo.cl",
    DIGIT_OF_HOT = "digit_of_hot.cl",
    DIGIT_OF_KEY = "digit_of_key.cl",
    DIGIT_OF_RANGE = "digit_of_range.cl",
    DIRECT = "direct.cl",
    DISPLACE = "displace.cl",
    DISTINCT = "distinct.cl",
    FILL = "fill.cl",
    GATHER = "gather.cl",
    GROUP_HOT = "group_hot.cl",
    GROUP_RANGE = "group_range.cl",
    GROUP_SORT = "group_sort.cl",
    HASH = "hash.cl",
    ITEMS = "items.cl",
    LANES = "lanes.cl",
    LINEAR = "linear.cl",
    LOCAL = "local.cl",
    LOOKUP = "lookup.cl",
    MERGE = "merge.cl",
    MIX = "mix.cl",
    PAIRS = "pairs.cl",
    PUT_WIDE = "put_wide.cl",
    RADIX_PASS = "radix_pass.cl",
    READS = "reads.cl",
    ROWS = "rows.cl",
    SCAN = "scan.cl",
    SLAB = "slab.cl",
    SLAB_ALLOC = "slab_alloc.cl",
    SPLIT = "split.cl",
    SWEEP = "sweep.cl",
    TILE = "tile.cl",
    WIDE = "wide.cl",
    WORD = "word.cl",
}

/// Tells one version of the kernels from another.
pub(crate) fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let mut hash = Sha256::new();
        ALL.iter().for_each(|(_, text)| hash.update(text));
        format!("{:x}", hash.finalize())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_file_is_a_part() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("cl");
        let files = std::fs::read_dir(folder).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        files.sort();
        let mut parts: Vec<_> = ALL.iter().map(|(file, _)| *file).collect();
        parts.sort_unstable();
        assert_eq!(files, parts);
    }
}
