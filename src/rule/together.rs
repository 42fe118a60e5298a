//! Where the joins of a plan run whose partitions depend on each other.
//!
//! ```text
//!  stock            P ⋈ by o_orderkey                 J on the device, P stock      P ⋈
//!                 ┌─┴──┐                                                          ┌─┴──┐
//!    by o_orderkey J ⋈  repartition, aggregate          all columns of J's rows: repartition …
//!                                                                                 J
//! ```
//!
//! A stock join that partitions its sides leaves its rows partitioned by its key, and what is above it uses that: another
//! join by the same key, or an aggregate. On the device it leaves them as they came, and the node above needs a
//! repartition of its own, unless that is a join that goes to the device too. (TPC-H's query 18 at scale 10 on an
//! H200: two of three joins taken 0.80, all three 1.2 to 1.5.) So the cheapest choice for each tree of such joins is
//! found, children first: what a tree costs with its root on the device, and with its root in stock. Who uses whose partitions
//! is read from the plan that DataFusion's own rule makes of the stock joins, as it would be guessed wrong here.
//!
//! What a join on the device passes on of its probe side's partitions is not followed: such a join is expected to cost its
//! user a repartition that it may not need.
//!
//! The cost: under `auto`, plans with hash joins are copied with scans that know their rows ([`scans`](crate::cost::scans)), and that
//! rule runs once more where some join is worth it alone: a millisecond.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_expr::Distribution;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

use crate::config::{Enabled, HortonConfig};
use crate::cost::rows::Rows;
use crate::cost::scans::with_known_rows;
use crate::device::Device;

use super::route::{Expected, Route, Times, expected};

/// Who relies on how a join's rows are partitioned.
#[derive(Debug, Clone, Copy, PartialEq)]
enum User {
    /// The partitioned join of that place.
    Join(usize),
    /// A node of another kind.
    Other,
}

/// A join's place in the stock plan.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    /// Whether either side is repartitioned for it.
    moves: [bool; 2],
    user: Option<User>,
}

impl Place {
    /// Of a join that has nothing to do with others.
    const ALONE: Self = Self {
        moves: [true; 2],
        user: None,
    };
}

/// A join's share of what a plan takes, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Share {
    device: f64,
    stock: f64,
    /// The repartition of its rows, if it is on the device and its user is not.
    apart: f64,
    user: Option<User>,
}

/// Where the hash joins of `plan` run. Children come before their parents, the left one first.
pub(super) fn routes(
    plan: &Arc<dyn ExecutionPlan>,
    horton: &HortonConfig,
    config: &ConfigOptions,
) -> Result<Vec<Route>> {
    if joins(plan).is_empty() {
        return Ok(Vec::new());
    }
    // Without a device nothing is estimated.
    let plan = match horton.enabled == Enabled::Auto && Device::open(&horton.device).is_ok() {
        true => &with_known_rows(plan)?,
        false => plan,
    };
    let (joins, rows) = (joins(plan), Rows::default());
    let alone = joins.iter().map(|join| expected(join, horton, &rows));
    let mut all = alone.collect::<Result<Vec<_>>>()?;
    let mut places = vec![Place::ALONE; all.len()];
    let is_worth_it = |expected: &Expected| match expected {
        Expected::Settled(_) => false,
        Expected::Times(_, times) => times.estimate.is_worth_it(),
    };
    if all.iter().any(is_worth_it) {
        // Were a join missing there, each would be decided as if it were alone.
        match in_stock(plan, config) {
            Ok(found) if found.len() == all.len() => places = found,
            Ok(_) => log::debug!("joins of the stock plan are others"),
            Err(error) => log::debug!("no stock plan to look at: {error}"),
        }
    }
    let shares: Vec<Share> = all.iter().zip(&places).map(share).collect();
    let taken = cheapest(&shares);
    explain(all.iter_mut().map(Expected::times), &shares, &taken);
    let route = |(expected, taken)| match expected {
        Expected::Settled(route) => route,
        Expected::Times(device, times) => Route::by_times(device, times.estimate, taken),
    };
    Ok(all.into_iter().zip(taken).map(route).collect())
}

/// The hash joins of `plan`, in the order of [`routes`].
fn joins(plan: &Arc<dyn ExecutionPlan>) -> Vec<&HashJoinExec> {
    let below = plan.children().into_iter().flat_map(joins);
    below.chain(plan.downcast_ref()).collect()
}

/// The places of the hash joins of `plan` in the stock plan that comes of it.
fn in_stock(plan: &Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Vec<Place>> {
    let stock = EnsureRequirements::new().optimize(Arc::clone(plan), config)?;
    Ok(places(&stock))
}

/// The places of the hash joins of `plan`, whose rows are where they have to be.
fn places(plan: &Arc<dyn ExecutionPlan>) -> Vec<Place> {
    let mut places = Vec::new();
    partitioned_by(plan, &mut places);
    places
}

/// Appends the places of `node`'s joins; returns those that partitioned the rows that `node` returns.
fn partitioned_by(node: &Arc<dyn ExecutionPlan>, places: &mut Vec<Place>) -> Vec<usize> {
    let children = node.children();
    let mut sources: Vec<Vec<usize>> = children
        .iter()
        .map(|child| partitioned_by(child, places))
        .collect();
    let here = places.len();
    let mode = node
        .downcast_ref::<HashJoinExec>()
        .map(|join| *join.partition_mode());
    if mode.is_some() {
        places.push(Place::ALONE);
    }
    let user = match mode {
        Some(PartitionMode::Partitioned) => User::Join(here),
        _ => User::Other,
    };
    let required = node.input_distribution_requirements().into_per_child();
    for (required, sources) in required.iter().zip(&mut sources) {
        match required {
            Distribution::UnspecifiedDistribution => {}
            Distribution::SinglePartition => sources.clear(),
            _ => sources
                .drain(..)
                .for_each(|join| places[join].user = Some(user)),
        }
    }
    if mode == Some(PartitionMode::Partitioned) {
        let is_moved = |side: usize| children.get(side).is_some_and(|child| is_by_hash(child));
        places[here].moves = [0, 1].map(is_moved);
        return vec![here];
    }
    match node.is::<RepartitionExec>() || node.output_partitioning().partition_count() == 1 {
        true => Vec::new(),
        false => sources.concat(),
    }
}

fn is_by_hash(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<RepartitionExec>() && matches!(node.output_partitioning(), Partitioning::Hash(..))
}

fn share((expected, place): (&Expected, &Place)) -> Share {
    let user = place.user;
    let Expected::Times(_, times) = expected else {
        return Share {
            device: f64::INFINITY,
            stock: 0.0,
            apart: 0.0,
            user,
        };
    };
    Share {
        device: times.estimate.with_margin(),
        stock: times.estimate.stock - unmoved(times, place),
        apart: times.output,
        user,
    }
}

/// What a stock join does not spend whose sides come partitioned.
fn unmoved(times: &Times, place: &Place) -> f64 {
    let sides = times.sides.iter().zip(place.moves);
    let saved: f64 = sides.filter(|(_, moves)| !moves).map(|(ms, _)| ms).sum();
    saved.min(times.estimate.stock)
}

/// Which joins go to the device, so that all together take the least time.
fn cheapest(joins: &[Share]) -> Vec<bool> {
    // With all that is below, where a join is on the device and where it is not.
    let mut device: Vec<f64> = joins.iter().map(|join| join.device).collect();
    let mut stock: Vec<f64> = joins.iter().map(|join| join.stock).collect();
    for (at, join) in joins.iter().enumerate() {
        if let Some(User::Join(user)) = join.user {
            device[user] += device[at].min(stock[at]);
            stock[user] += stock[at].min(device[at] + join.apart);
        }
    }
    let mut taken = vec![false; joins.len()];
    for (at, join) in joins.iter().enumerate().rev() {
        taken[at] = device[at] + apart(join, &taken) < stock[at];
    }
    taken
}

/// What a join on the device makes its user spend, where that is decided.
fn apart(join: &Share, taken: &[bool]) -> f64 {
    match join.user {
        None => 0.0,
        Some(User::Join(user)) if taken[user] => 0.0,
        Some(_) => join.apart,
    }
}

/// What EXPLAIN shows: a stock join's time without repartitions that it does not need but with those of the joins
/// below that are on the device; a join's time on the device with the one that its rows need.
fn explain<'a>(
    all: impl IntoIterator<Item = Option<&'a mut Times>>,
    shares: &[Share],
    taken: &[bool],
) {
    let mut stock: Vec<f64> = shares.iter().map(|share| share.stock).collect();
    for (at, share) in shares.iter().enumerate() {
        if let (Some(User::Join(user)), true) = (share.user, taken[at]) {
            stock[user] += share.apart;
        }
    }
    for (at, times) in all.into_iter().enumerate() {
        if let Some(times) = times {
            times.estimate.stock = stock[at];
            times.estimate.device += apart(&shares[at], taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::datasource::MemTable;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;
    use crate::cost::Estimate;

    /// Keeps the plan that rule 1 sees.
    #[derive(Debug, Default)]
    struct Keep(Mutex<Option<Arc<dyn ExecutionPlan>>>);

    impl PhysicalOptimizerRule for Keep {
        fn optimize(
            &self,
            plan: Arc<dyn ExecutionPlan>,
            _: &ConfigOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            *self.0.lock().unwrap() = Some(Arc::clone(&plan));
            Ok(plan)
        }

        fn name(&self) -> &str {
            "keep"
        }

        fn schema_check(&self) -> bool {
            true
        }
    }

    /// The places that are found where rule 1 looks, which are those in the plan that DataFusion makes.
    async fn places_of(sql: &str) -> Vec<Place> {
        let mut config = SessionConfig::new().with_target_partitions(4);
        let optimizer = &mut config.options_mut().optimizer;
        optimizer.hash_join_single_partition_threshold = 0;
        optimizer.hash_join_single_partition_threshold_rows = 0;
        optimizer.join_reordering = false;
        let keep = Arc::new(Keep::default());
        let mut rules = PhysicalOptimizer::new().rules;
        let selection = rules
            .iter()
            .position(|rule| rule.name() == "join_selection");
        rules.insert(selection.unwrap() + 1, Arc::clone(&keep) as _);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_default_features()
            .with_physical_optimizer_rules(rules);
        let context = SessionContext::new_with_state(state.build());
        for table in ["a", "b", "c"] {
            let columns = ["k", "l", "v"].map(|name| {
                let values = Int64Array::from_iter_values(0..100);
                (name, Arc::new(values) as ArrayRef)
            });
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            let partitions = vec![vec![batch.clone()]; 4];
            let provider = MemTable::try_new(batch.schema(), partitions).unwrap();
            context.register_table(table, Arc::new(provider)).unwrap();
        }
        let frame = context.sql(sql).await.unwrap();
        let made = places(&frame.create_physical_plan().await.unwrap());
        let seen = keep.0.lock().unwrap().take().unwrap();
        let known = with_known_rows(&seen).unwrap();
        let found = in_stock(&known, context.state().config_options()).unwrap();
        assert_eq!(found, made, "{sql}");
        assert_eq!(joins(&known).len(), found.len());
        found
    }

    fn place(moves: [bool; 2], user: Option<User>) -> Place {
        Place { moves, user }
    }

    #[tokio::test]
    async fn a_join_by_the_same_key_uses_the_partitions_below() {
        let same = "SELECT * FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k";
        assert_eq!(
            places_of(same).await,
            [
                place([true; 2], Some(User::Join(1))),
                place([false, true], None),
            ]
        );
        let other = "SELECT * FROM a JOIN b ON a.k = b.k JOIN c ON b.l = c.l";
        let alone = place([true; 2], None);
        assert_eq!(places_of(other).await, [alone, alone]);
        let right = "SELECT * FROM c JOIN (SELECT a.k + 0 AS n, b.k FROM a JOIN b ON a.k = b.k) j ON c.k = j.k";
        assert_eq!(
            places_of(right).await,
            [
                place([true; 2], Some(User::Join(1))),
                place([true, false], None),
            ]
        );
    }

    #[tokio::test]
    async fn places_are_found_in_plans_of_other_shapes() {
        let both =
            "SELECT * FROM a JOIN b ON a.k = b.k AND a.l = b.l JOIN c ON b.l = c.l AND b.k = c.k";
        assert_eq!(
            places_of(both).await,
            [
                place([true; 2], Some(User::Join(1))),
                place([false, true], None),
            ]
        );
        for (sql, joins) in [
            ("SELECT v FROM a", 0),
            (
                "SELECT a.v FROM a JOIN b ON a.k = b.k UNION ALL SELECT c.v FROM c JOIN b ON c.k = b.k",
                2,
            ),
            (
                "SELECT v, (SELECT count(*) FROM b JOIN c ON b.k = c.k) FROM a WHERE l IN (SELECT l FROM c)",
                2,
            ),
            (
                "WITH RECURSIVE r AS (SELECT 1 AS k UNION ALL SELECT r.k + 1 FROM r JOIN a ON r.k = a.k) SELECT * FROM r",
                1,
            ),
            ("SELECT * FROM a CROSS JOIN b WHERE a.k < b.k", 0),
        ] {
            assert_eq!(places_of(sql).await.len(), joins, "{sql}");
        }
    }

    #[tokio::test]
    async fn an_aggregate_by_the_key_uses_the_partitions_below() {
        let sums =
            |key: &str| format!("SELECT {key}, sum(b.v) FROM a JOIN b ON a.k = b.k GROUP BY {key}");
        assert_eq!(
            places_of(&sums("a.k")).await,
            [place([true; 2], Some(User::Other))]
        );
        assert_eq!(places_of(&sums("a.l")).await, [place([true; 2], None)]);
        let all = "SELECT sum(b.v) FROM a JOIN b ON a.k = b.k";
        assert_eq!(places_of(all).await, [place([true; 2], None)]);
        // The aggregate partitions, the join uses that.
        let below = "SELECT * FROM (SELECT k, sum(v) FROM a GROUP BY k) s JOIN b ON s.k = b.k";
        assert_eq!(places_of(below).await, [place([false, true], None)]);
    }

    fn share(device: f64, stock: f64, apart: f64, user: Option<User>) -> Share {
        Share {
            device,
            stock,
            apart,
            user,
        }
    }

    #[test]
    fn explain_shows_what_the_other_decisions_cost() {
        let times = |device, stock| Times {
            estimate: Estimate { device, stock },
            sides: [3.0, 4.0],
            output: 50.0,
        };
        let (below, above) = (times(10.0, 100.0), times(20.0, 30.0));
        let left = Place {
            moves: [false, true],
            user: None,
        };
        let saved = unmoved(&above, &left);
        assert_eq!((saved, unmoved(&below, &Place::ALONE)), (3.0, 0.0));
        let shares = [
            share(10.0, 100.0, 50.0, Some(User::Join(1))),
            share(20.0, 30.0 - saved, 50.0, None),
        ];
        for (taken, wanted) in [
            // The join above has to repartition; or the one below pays for it.
            ([true, false], [(60.0, 100.0), (20.0, 77.0)]),
            ([true, true], [(10.0, 100.0), (20.0, 77.0)]),
            ([false, false], [(60.0, 100.0), (20.0, 27.0)]),
        ] {
            let mut found = [below, above];
            explain(found.each_mut().map(Some), &shares, &taken);
            let found = found.map(|times| (times.estimate.device, times.estimate.stock));
            assert_eq!(found, wanted, "{taken:?}");
        }
    }

    #[test]
    fn joins_without_users_are_decided_alone() {
        let joins = [
            share(1.0, 2.0, 9.0, None),
            share(3.0, 2.0, 9.0, None),
            share(f64::INFINITY, 0.0, 0.0, None),
        ];
        assert_eq!(cheapest(&joins), [true, false, false]);
    }

    #[test]
    fn a_join_stays_where_its_rows_would_have_to_be_repartitioned() {
        let below = |apart| {
            let joins = [
                share(10.0, 30.0, apart, Some(User::Join(1))),
                share(f64::INFINITY, 40.0, 0.0, None),
            ];
            cheapest(&joins)
        };
        assert_eq!(below(15.0), [true, false]);
        assert_eq!(below(25.0), [false, false]);
        let aggregated = |apart| cheapest(&[share(10.0, 30.0, apart, Some(User::Other))]);
        assert_eq!(aggregated(15.0), [true]);
        assert_eq!(aggregated(25.0), [false]);
    }

    #[test]
    fn a_join_goes_with_those_below_if_all_gain_more_than_it_loses() {
        let chain = |above: f64| {
            let joins = [
                share(10.0, 30.0, 50.0, Some(User::Join(1))),
                share(10.0, 30.0, 50.0, Some(User::Join(2))),
                share(above, 20.0, 50.0, None),
            ];
            cheapest(&joins)
        };
        assert_eq!(chain(50.0), [true; 3]);
        assert_eq!(chain(70.0), [false; 3]);
    }
}
