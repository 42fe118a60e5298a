//! Devices that are ready, or not, or not there.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::HostReason;
use horton_join::config::{Enabled, HortonConfig};
use horton_join::device::DeviceKind;
use horton_test_support::{child, test_name};

use super::plans::*;
use super::session::*;
use horton_test_support::joins::*;

const QUERY: &str = "SELECT big.v, small.v FROM big JOIN small ON big.k = small.k";

/// Options that name a device that is not there.
fn unknown(name: &str) -> HortonConfig {
    HortonConfig {
        device: format!("no such device: {name}"),
        min_build_rows: 1,
        ..HortonConfig::default()
    }
}

/// Checks that `error` says what was asked for, and what there is.
fn assert_names_the_devices(error: &str) {
    assert!(error.contains("'no such device: "), "{error}");
    for device in horton_join::device::list().unwrap() {
        assert!(error.contains(&device.label()), "{error}");
    }
}

#[tokio::test]
async fn a_warm_up_says_that_rules_were_lost() {
    let build = |builder: SessionStateBuilder| SessionContext::new_with_state(builder.build());
    let stock = SessionStateBuilder::new().with_default_features().build();
    let rules = stock.physical_optimizers().to_vec();
    let installed = horton_join::install(SessionStateBuilder::new().with_default_features());
    let replaced = build(installed.with_physical_optimizer_rules(rules.clone()));
    let error = horton_join::warm_up(&replaced).await.unwrap_err();
    assert!(
        error.to_string().contains("before horton_join::install"),
        "{error}"
    );
    let kept = SessionStateBuilder::new().with_default_features();
    let kept = build(horton_join::install(
        kept.with_physical_optimizer_rules(rules),
    ));
    horton_join::warm_up(&kept).await.unwrap();
}

#[test]
fn joins_use_the_device_from_the_first_query_after_the_warm_up_on() {
    // In a process where nobody asked for a device before.
    if !child::is_child(
        &test_name!("joins_use_the_device_from_the_first_query_after_the_warm_up_on"),
        &[],
    ) {
        return;
    }
    let horton = horton_cold();
    warm_up(&horton).unwrap();
    let ran = Sessions::new(&config(), horton).same_rows(QUERY);
    let decisions = decisions(&ran.plan);
    assert_place(only(&decisions), At::Device, "after the warm-up");
}

#[test]
fn many_may_wait_for_a_device_at_once() {
    // In a process where nobody asked for a device before.
    if !child::is_child(&test_name!("many_may_wait_for_a_device_at_once"), &[]) {
        return;
    }
    let config = SessionConfig::new().with_option_extension(HortonConfig {
        device: asked(),
        ..HortonConfig::default()
    });
    let sessions: Vec<SessionContext> = (0..8)
        .map(|_| horton_join::context(config.clone()))
        .collect();
    let all = block_on(async move {
        futures::future::join_all(sessions.iter().map(horton_join::warm_up)).await
    });
    assert!(all.iter().all(Result::is_ok), "{all:?}");
}

#[test]
fn a_join_that_always_runs_on_a_device_waits_until_it_is_ready() {
    // In a process where nobody asked for a device before.
    if !child::is_child(
        &test_name!("a_join_that_always_runs_on_a_device_waits_until_it_is_ready"),
        &[],
    ) {
        return;
    }
    let always = HortonConfig {
        enabled: Enabled::Always,
        device: asked(),
        ..HortonConfig::default()
    };
    let ran = Sessions::new(&config(), always).same_rows(QUERY);
    let decisions = decisions(&ran.plan);
    assert_place(only(&decisions), At::Device, "under 'always'");
}

#[test]
fn a_session_that_uses_no_device_cannot_be_warmed_up() {
    let never = HortonConfig {
        enabled: Enabled::Never,
        ..HortonConfig::default()
    };
    let error = warm_up(&never).unwrap_err().to_string();
    assert!(error.contains("horton.enabled"), "{error}");
    let stock = Arc::new(SessionContext::new());
    let error = block_on(async move { horton_join::warm_up(&stock).await });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("horton_join::install"), "{error}");
}

#[test]
fn the_warm_up_for_an_unknown_device_names_those_there_are() {
    for enabled in [Enabled::Auto, Enabled::Always] {
        let error = warm_up(&HortonConfig {
            enabled,
            ..unknown("warm-up")
        });
        assert_names_the_devices(&error.unwrap_err().to_string());
    }
}

#[test]
fn a_query_for_an_unknown_device_names_those_there_are() {
    for enabled in [Enabled::Auto, Enabled::Always] {
        // A build side too small for the device is no excuse.
        for min_build_rows in [1, usize::MAX] {
            let config = HortonConfig {
                enabled,
                min_build_rows,
                // One that nobody asked for before: the query has to wait for the answer.
                ..unknown(&format!("{enabled} {min_build_rows}"))
            };
            let sessions = Sessions::new(&super::session::config(), config);
            for _ in 0..2 {
                let error = sql(&sessions.horton, QUERY).unwrap_err().to_string();
                assert_names_the_devices(&error);
            }
            // A query without a join asks for no device, nor does EXPLAIN.
            assert_eq!(
                text(&sql(&sessions.horton, "SELECT count(*) FROM big").unwrap()),
                ["3000"]
            );
            assert!(sql(&sessions.horton, &format!("EXPLAIN {QUERY}")).is_ok());
            // A device that is there mends it.
            let set = format!("SET horton.device = '{}'", asked());
            sql(&sessions.horton, &set).unwrap();
            assert_eq!(
                query(&sessions.horton, QUERY).rows,
                query(&sessions.stock, QUERY).rows
            );
        }
    }
}

#[test]
fn small_build_sides_go_to_a_gpu_only_for_many_rows_to_probe_and_only_by_default() {
    let default = HortonConfig::default();
    assert_eq!(default.min_build_rows(DeviceKind::Cpu), 1 << 20);
    assert_eq!(default.min_build_rows(DeviceKind::Gpu), 1 << 16);
    assert_eq!(
        default.min_probe_rows(DeviceKind::Cpu, 1 << 20, || false),
        0
    );
    assert_eq!(
        default.min_probe_rows(DeviceKind::Gpu, (1 << 17) - 1, || false),
        1 << 23
    );
    assert_eq!(
        default.min_probe_rows(DeviceKind::Gpu, (1 << 17) - 1, || true),
        1 << 26
    );
    assert_eq!(
        default.min_probe_rows(DeviceKind::Gpu, 1 << 17, || true),
        1 << 20
    );
    assert_eq!(default.min_probe_rows(DeviceKind::Gpu, 1 << 20, || true), 0);
    let said = HortonConfig {
        min_build_rows: 5,
        ..HortonConfig::default()
    };
    let always = HortonConfig {
        enabled: Enabled::Always,
        ..HortonConfig::default()
    };
    for kind in [DeviceKind::Cpu, DeviceKind::Gpu] {
        assert_eq!(said.min_build_rows(kind), 5);
        assert_eq!(said.min_probe_rows(kind, 5, || true), 0);
        assert_eq!(always.min_build_rows(kind), 0);
        assert_eq!(always.min_probe_rows(kind, 0, || true), 0);
    }
}

/// Keys `0..rows`, in batches of the usual size.
fn keys(rows: usize) -> Side {
    let keys: Vec<Option<i64>> = (0..rows as i64).map(Some).collect();
    Side::new(vec![("k", ints(&keys))]).in_batches_of(8192)
}

#[test]
fn by_default_both_sides_decide_whether_a_gpu_is_asked() {
    side_by_side();
    const BUILD: usize = 140_000;
    let kind = device().info().kind;
    for probe in [200_000, (1 << 20) - 1, 1 << 20] {
        let mut case = open(keys(BUILD), keys(probe), At::Device);
        case.config.min_build_rows = 0;
        case.projection = Some(Vec::new());
        let join = case.on_device();
        let found = run(join.clone(), case.context()).unwrap();
        assert_eq!(found.count(), BUILD);
        let reason = match kind {
            DeviceKind::Cpu => Some(HostReason::FewRows {
                min_build_rows: 1 << 20,
            }),
            _ => (probe < 1 << 20).then_some(HostReason::FewProbeRows { wanted: 1 << 20 }),
        };
        let decisions = join.decisions();
        let decision = only(&decisions);
        assert_eq!((decision.build, decision.rows), (Left, BUILD));
        assert_eq!(
            host_reason(decision),
            reason.as_ref(),
            "{probe} on {kind:?}"
        );
    }
}
