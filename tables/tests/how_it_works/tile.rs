//! The words of a bucket that each lane of a tile reads.
//!
//! ```text
//!  a table whose words are their own numbers ─ read_tile (cl/horton/tile.cl) ─▶ numbers, by lane
//! ```

use std::fmt::Write as _;

use horton_tables::device::{Arg, ProgramText, Queue};
use horton_tables::table::programs;
use horton_tables_test_support::env::device;
use horton_tables_test_support::tables::run;

use super::check;

const SLOTS: usize = 8;

/// Lanes of a tile: each reads two of [`SLOTS`] slots.
const LANES: usize = 4;

/// A kernel behind the text of a lookup: lane after lane, the words that it reads of each bucket.
const PROBE: &str = "
__kernel void words_by_lane(__global const ulong *table, __global ulong *out) {
  TILE_LOCALS
  ulong2 words[UNROLL * PAIRS];
  const uint bucket = get_local_id(0);
  send_bucket(bucket TILE_PASS);
  read_tile(table, bucket, 0, false, words TILE_PASS);
  for (uint i = 0; i < UNROLL * PAIRS; ++i) {
    out[2 * (get_local_id(0) * UNROLL * PAIRS + i)] = words[i].x;
    out[2 * (get_local_id(0) * UNROLL * PAIRS + i) + 1] = words[i].y;
  }
}
";

/// Returns the program of a tile that talks through local memory, which runs everywhere.
fn program() -> ProgramText {
    let (_, lookup) = (programs().into_iter())
        .find(|(name, _)| name == "horton_lookup_8_local_tile")
        .unwrap();
    let text = format!("{}\n{PROBE}", lookup.source());
    ProgramText::new("words by lane", &[], &[("tile.cl", text.leak())])
}

/// Returns the numbers of the slots that each lane reads, bucket after bucket.
fn words_by_lane() -> Vec<Vec<u64>> {
    let job = |queue: &mut Queue| {
        let numbers: Vec<u64> = (0..(LANES * SLOTS) as u64).collect();
        let table = queue.buffer_from("table", &numbers)?;
        let out = queue.allocate("words", LANES * SLOTS)?;
        let args = [Arg::Longs(&table), Arg::Longs(&out)];
        queue.launch(&program(), "words_by_lane", (LANES, LANES), &args)?;
        queue.read(&out, LANES * SLOTS)
    };
    let words = run(&device(), job).value;
    words.chunks(SLOTS).map(<[u64]>::to_vec).collect()
}

#[test]
fn a_lane_reads_two_slots_of_each_bucket() {
    let mut picture = String::from("          ");
    for lane in 0..LANES {
        write!(picture, "   lane {lane}  ").unwrap();
    }
    picture.truncate(picture.trim_end().len());
    picture.push('\n');
    let lanes = words_by_lane();
    for bucket in 0..LANES {
        write!(picture, "  key {bucket}   ").unwrap();
        for words in &lanes {
            let pair = &words[2 * bucket..][..2];
            assert!(pair.iter().all(|word| *word as usize / SLOTS == bucket));
            write!(picture, "  [s{} s{}]  ", pair[0] % 8, pair[1] % 8).unwrap();
        }
        picture.truncate(picture.trim_end().len());
        writeln!(picture, "     the bucket of lane {bucket}'s key").unwrap();
    }
    check("lanes", &picture);
}
