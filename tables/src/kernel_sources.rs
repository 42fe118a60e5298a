//! The parts of programs: the files in `cl/`, each once.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

/// The name of a file and its text.
pub(crate) type Part = (&'static str, &'static str);

/// Names the files.
macro_rules! parts {
    ($($name:ident = $file:literal,)*) => {
        $(pub(crate) const $name: Part = ($file, include_str!(concat!("../cl/", $file)));)*

        pub(crate) const ALL: &[Part] = &[$($name),*];
    };
}

parts! {
    BUCKET = "primitives/bucket.cl",
    BUILD = "horton/build.cl",
    CENSUS = "horton/census.cl",
    CHANGING = "horton/changing.cl",
    CACHELINE = "multimap/cacheline.cl",
    CUCKOO = "baselines/cuckoo/place.cl",
    DIRECT = "multimap/direct.cl",
    DISPLACE = "horton/displace.cl",
    DISTINCT = "primitives/distinct.cl",
    FILL = "horton/fill.cl",
    GROUP = "primitives/group.cl",
    HASH = "primitives/hash.cl",
    ITEMS = "baselines/updates/items.cl",
    LANES = "primitives/lanes.cl",
    GATHER_BOUND = "baselines/gather_bound.cl",
    LINEAR = "baselines/linear/table.cl",
    LOCAL = "primitives/local.cl",
    LOOKUP = "horton/lookup.cl",
    MERGE = "baselines/updates/merge.cl",
    MIX = "primitives/mix.cl",
    PAIRS = "multimap/pairs.cl",
    PUT_WIDE = "horton/put_wide.cl",
    RADIX_SORT = "primitives/radix_sort.cl",
    BUCKET_READS = "baselines/bucket_reads.cl",
    ROWS = "primitives/rows.cl",
    SCAN = "primitives/scan.cl",
    SLAB = "baselines/slab/table.cl",
    SLAB_ALLOC = "baselines/slab/alloc.cl",
    RADIX_PARTITION = "primitives/radix_partition.cl",
    SWEEP = "baselines/updates/sweep.cl",
    TILE = "horton/tile.cl",
    MULTIWORD = "multimap/multiword.cl",
    WORD = "primitives/word.cl",
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
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn every_kernel_file_is_a_part() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cl");
        let mut files: Vec<_> = below(&folder)
            .iter()
            .map(|file| {
                file.strip_prefix(&folder)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        files.sort();
        let mut parts: Vec<_> = ALL.iter().map(|(file, _)| *file).collect();
        parts.sort_unstable();
        assert_eq!(files, parts);
    }

    /// Returns all files in `folder` and its folders.
    fn below(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .flat_map(|path| {
                if path.is_dir() {
                    below(&path)
                } else {
                    vec![path]
                }
            })
            .collect()
    }
}
