//! The programs of linear probing.
//!
//! ```text
//!  linear   hash · word · local · linear        REUSE 0 | 1, PREFETCH 0 | 1
//!  split    (table/primitives/radix_partition.rs), for insertions into large tables
//! ```

use crate::device::program::ProgramText;
use crate::device::{KernelBody, Queue};
use crate::kernel_sources;
use crate::table::baselines::batch;
use crate::table::launch::{self, LOOK_AHEAD, group_of};
use crate::table::primitives::bucket::BucketSize;
use crate::table::primitives::hash::{self, Reduction};
use crate::table::primitives::radix_partition::{self, Rest};
use crate::table::primitives::word;

use super::layout::Deletion;

/// The number that the split takes for the slots of a bucket; its buffers are multiples of it.
pub(super) const SPLIT_UNIT: BucketSize = BucketSize::Four;

/// The facts that a program depends on.
#[derive(Clone, Copy)]
struct Variant {
    deletion: Deletion,
    body: KernelBody,
    prefetch: bool,
    peek_volatile: bool,
}

impl Variant {
    fn text(self) -> ProgramText {
        let flag = |flag: bool| u8::from(flag).to_string();
        let mut defines = hash::defines(Reduction::MultiplyHigh);
        defines.extend(word::defines(self.peek_volatile));
        defines.extend(batch::defines());
        defines.extend([
            ("WORD", "ulong".to_owned()),
            ("ONE_ITEM", flag(group_of(self.body) == 1)),
            ("LINEAR_GROUP", group_of(self.body).to_string()),
            ("LOOK_AHEAD", LOOK_AHEAD.to_string()),
            ("PREFETCH", flag(self.prefetch)),
            ("REUSE", flag(self.deletion == Deletion::LeavesTombstone)),
        ]);
        let parts = [
            kernel_sources::HASH,
            kernel_sources::WORD,
            kernel_sources::LOCAL,
            kernel_sources::LINEAR,
        ];
        ProgramText::new("linear probing", &defines, &parts)
    }
}

/// Returns the program of a job.
pub(super) fn program(queue: &Queue, deletion: Deletion) -> ProgramText {
    Variant {
        deletion,
        body: queue.body(),
        prefetch: launch::prefetches(queue),
        peek_volatile: queue.volatile_sees_atomics(),
    }
    .text()
}

/// Returns the program that splits items by ranges of slots.
pub(super) fn split_program(queue: &Queue) -> ProgramText {
    let rest = Rest {
        defines: &[],
        parts: &[],
    };
    radix_partition::program(queue, "linear split", SPLIT_UNIT, &rest)
}

/// Returns every program of linear probing under the name of a file; see
/// [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    Deletion::ALL.into_iter().flat_map(|deletion| {
        [KernelBody::Chunk, KernelBody::LocalTile]
            .into_iter()
            .map(move |body| {
                let variant = Variant {
                    deletion,
                    body,
                    prefetch: false,
                    peek_volatile: false,
                };
                let reuse = u8::from(deletion == Deletion::LeavesTombstone);
                let name = format!("linear_reuse{reuse}_{}", group_of(body));
                (name, variant.text())
            })
    })
}
