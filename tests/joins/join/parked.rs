//! Streams that are not polled any more keep nothing that others wait for.
//!
//! A join reads its sides alternately, and leaves streams of joins below in the middle of a poll.
//! Were leave to upload assigned to such a stream, nobody would give it back.

use datafusion::prelude::SessionConfig;
use horton_join::config::{Enabled, Filters, HortonConfig, Knobs};
use horton_test_support::joins::{asked, block_on};
use horton_test_support::text::text;

const QUERY: &str = "SELECT count(*) FROM (SELECT b.value v FROM range(0, 1000) a
     JOIN range(0, 1000000) b ON a.value = b.value % 1000) ab
     JOIN range(0, 900000) c ON ab.v = c.value";

#[test]
fn streams_that_nobody_polls_keep_no_leave_to_upload() {
    for round in 0..6 {
        let horton = HortonConfig {
            enabled: Enabled::Always,
            device: asked(),
            chunk_rows: 4096,
            filters: Filters::Off,
            knobs: Knobs {
                sample_rows: 5000 * (1 + round % 3),
                ..Knobs::default()
            },
            ..HortonConfig::default()
        };
        let config = SessionConfig::new().with_target_partitions(16);
        let session = horton_join::context(config.with_option_extension(horton));
        let rows = block_on(async move { session.sql(QUERY).await?.collect().await });
        assert_eq!(text(&rows.unwrap()), ["900000"]);
    }
}
