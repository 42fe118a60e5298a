//! Plans that others made: their joins change places, and nothing else of them.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::config::{Enabled, HortonConfig};
use horton_join::{Health, HortonJoinExec, on_device};

use super::plans::warm_up;
use super::session::{config, plan, rows, table};
use horton_test_support::joins::asked;
use horton_test_support::plans::launches;

const QUERIES: [&str; 11] = [
    "SELECT a.k, a.v, b.v FROM small a JOIN big b ON a.k = b.k",
    "SELECT a.k, a.v, b.v FROM small a LEFT JOIN big b ON a.k = b.k",
    "SELECT a.k, a.v, b.v FROM small a RIGHT JOIN big b ON a.k = b.k",
    "SELECT a.k, a.v, b.v FROM small a FULL JOIN big b ON a.k = b.k AND a.v < b.v",
    "SELECT * FROM small a LEFT SEMI JOIN big b ON a.k = b.k",
    "SELECT * FROM small a RIGHT SEMI JOIN big b ON a.k = b.k",
    "SELECT * FROM small a LEFT ANTI JOIN big b ON a.k = b.k",
    "SELECT * FROM small a RIGHT ANTI JOIN big b ON a.k = b.k",
    "SELECT * FROM small a WHERE v < 9 OR EXISTS (SELECT 1 FROM big b WHERE a.k = b.k)",
    "SELECT * FROM small WHERE v NOT IN (SELECT k FROM big WHERE k IS NOT NULL)",
    "SELECT * FROM small WHERE v NOT IN (SELECT k FROM big)",
];

fn names(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let mut names = vec![plan.name().to_owned()];
    names.extend(plan.children().into_iter().flat_map(names_of));
    names
}

fn names_of(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    names(plan)
}

/// DataFusion's own session, whose plans have joins of one mode.
fn coordinator(mode: PartitionMode) -> SessionContext {
    let mut config = config();
    let options = &mut config.options_mut().optimizer;
    if mode == PartitionMode::Partitioned {
        options.hash_join_single_partition_threshold = 0;
        options.hash_join_single_partition_threshold_rows = 0;
    }
    let session = SessionContext::new_with_config(config);
    table(&session, "small", 40, 400);
    table(&session, "big", 3000, 400);
    session
}

/// The options of a worker whose joins are all on the device.
fn worker() -> SessionConfig {
    let horton = HortonConfig {
        enabled: Enabled::Always,
        device: asked(),
        ..HortonConfig::default()
    };
    warm_up(&horton).unwrap();
    config().with_option_extension(horton)
}

#[test]
fn joins_of_every_type_and_mode_are_replaced_where_they_stand() {
    let worker = worker();
    for mode in [PartitionMode::CollectLeft, PartitionMode::Partitioned] {
        let session = coordinator(mode);
        for query in QUERIES {
            let stock = plan(&session, query);
            let replaced = on_device(Arc::clone(&stock), worker.options(), &Health::default());
            let replaced = replaced.unwrap();
            let expected: Vec<_> = names(&stock)
                .iter()
                .map(|name| name.replace("HashJoin", "HortonJoin"))
                .collect();
            assert_eq!(names(&replaced), expected, "{query}");
            let joins = HortonJoinExec::all_in(&replaced);
            assert!(!joins.is_empty(), "{query}");
            assert!(
                joins
                    .iter()
                    .all(|join| *join.stock().partition_mode() != PartitionMode::Auto)
            );
            let stock = plan(&session, query);
            assert_eq!(rows(&session, &replaced), rows(&session, &stock), "{query}");
            assert!(launches(&replaced) > 0, "{query}, {mode:?}");
        }
    }
}

#[test]
fn planners_above_see_the_join_that_was_planned() {
    let session = coordinator(PartitionMode::Partitioned);
    let replaced = on_device(
        plan(&session, QUERIES[0]),
        worker().options(),
        &Health::default(),
    );
    let replaced = replaced.unwrap();
    let join = HortonJoinExec::all_in(&replaced)[0];
    let seen = (join as &dyn ExecutionPlan).downcast_ref::<HashJoinExec>();
    assert_eq!(*seen.unwrap().partition_mode(), PartitionMode::Partitioned);
    // A second time changes nothing.
    let again = on_device(
        Arc::clone(&replaced),
        worker().options(),
        &Health::default(),
    )
    .unwrap();
    let before: *const HortonJoinExec = join;
    assert!(std::ptr::eq(before, HortonJoinExec::all_in(&again)[0]));
}

#[test]
fn never_leaves_a_plan_as_it_is() {
    let session = coordinator(PartitionMode::CollectLeft);
    let stock = plan(&session, QUERIES[0]);
    let never = HortonConfig {
        enabled: Enabled::Never,
        ..HortonConfig::default()
    };
    let never = config().with_option_extension(never);
    let kept = on_device(Arc::clone(&stock), never.options(), &Health::default()).unwrap();
    assert!(Arc::ptr_eq(&kept, &stock));
}

#[test]
fn a_plan_whose_sides_are_open_is_refused() {
    let session = horton_join::context(worker());
    table(&session, "small", 40, 400);
    table(&session, "big", 3000, 400);
    let open = plan(&session, QUERIES[0]);
    let join = HortonJoinExec::all_in(&open)[0];
    let seen = (join as &dyn ExecutionPlan).downcast_ref::<HashJoinExec>();
    assert!(
        seen.is_none(),
        "a join that cannot be executed is no HashJoinExec"
    );
    assert!(
        format!("{join:?}").contains("horton_join::on_device"),
        "what serialisers show"
    );
    let error = on_device(Arc::clone(&open), worker().options(), &Health::default()).unwrap_err();
    assert!(
        error.to_string().contains("horton_join::install"),
        "{error}"
    );
    // A serialiser that took the stock join would make this of it.
    let sent = Arc::clone(join.stock()) as Arc<dyn ExecutionPlan>;
    let error = on_device(sent, worker().options(), &Health::default()).unwrap_err();
    assert!(
        error.to_string().contains("horton_join::install"),
        "{error}"
    );
}

/// Options of a coordinator, of which only the prefix counts.
#[derive(Debug, Clone, Default)]
struct Marker<const DISTRIBUTED: bool>;

impl<const DISTRIBUTED: bool> ConfigExtension for Marker<DISTRIBUTED> {
    const PREFIX: &'static str = if DISTRIBUTED {
        "distributed"
    } else {
        "ballista"
    };
}

impl<const DISTRIBUTED: bool> ExtensionOptions for Marker<DISTRIBUTED> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, _: &str, _: &str) -> Result<()> {
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

#[test]
fn sessions_that_plan_for_others_keep_their_joins() {
    let marked = [
        worker().with_option_extension(Marker::<true>),
        worker().with_option_extension(Marker::<false>),
    ];
    let stock = coordinator(PartitionMode::CollectLeft);
    for config in marked {
        let session = horton_join::context(config);
        table(&session, "small", 40, 400);
        table(&session, "big", 3000, 400);
        for query in QUERIES {
            let plan = plan(&session, query);
            assert!(HortonJoinExec::all_in(&plan).is_empty(), "{query}");
            assert_eq!(names(&plan), names(&self::plan(&stock, query)), "{query}");
        }
    }
}
