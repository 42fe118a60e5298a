//! A device whose driver names the chip is found by the name of its board.

use horton_join::device::Device;

use super::child::{QUERIES, check_rows, is_child, metric, session, sql};

#[tokio::test]
async fn joins_run_on_a_device_that_is_named_by_its_board() {
    let test = "board::joins_run_on_a_device_that_is_named_by_its_board";
    if !is_child(test, "board=Radeon-RX-7900") {
        return;
    }
    let label = Device::open("radeon-rx").unwrap().info().label();
    assert!(label.ends_with(" (Radeon-RX-7900)"), "{label}");
    let session = session().await;
    sql(&session, "SET horton.device = 'radeon-rx'").await;
    check_rows(&session).await;
    for query in QUERIES {
        let launches = metric(&session, query, "kernel_launches").await;
        assert!(launches > 0, "{query}");
    }
}
