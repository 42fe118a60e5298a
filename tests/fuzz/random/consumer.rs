//! A consumer that misbehaves, drawn from a seed.
//!
//! ```text
//!  plan ─ reset, copied by with_new_children ─▶ nodes
//!  node ─ partitions in any order, some never, some twice, one context or several ─▶ streams
//!  stream ─ polled by hand, left in the middle of a poll, dropped at any ─▶ rows
//!
//!  of each node:  all asked for and kept ─▶ the stock join's rows, as often as asked for
//!                 some are missing       ─▶ none but those
//!                 a stream of a join that keeps its probe partitions ─▶ that partition's rows
//!  always:        what is not left ends, whatever becomes of the others
//! ```
//!
//! Suites that collect whole results, in order and with one context, see none of this.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::row::RowConverter;
use datafusion::common::JoinType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};
use futures::future::poll_fn;
use rand_mt::Mt64;

use super::case::{Case, Mode, Random};
use super::checks::{Checked, Places, differ};
use super::output::Output;
use super::run::is_exhausted;

/// Time within which all streams end that are not left.
const LIMIT: Duration = Duration::from_secs(100);

/// What a consumer does, in numbers of chances: one in so many.
struct Habits {
    /// Times that a node's partitions are asked for.
    rounds: usize,
    never: usize,
    drops: usize,
    leaves: usize,
    /// A context for each partition.
    own_contexts: bool,
    /// Polls between two partitions that are asked for, at most.
    polls: usize,
}

impl Habits {
    fn random(random: &mut Random, case: &Case) -> Self {
        let repartitions = matches!(case.mode, Mode::Kept | Mode::Repartitioned);
        Self {
            // A RepartitionExec gives each partition out once.
            rounds: if repartitions {
                1
            } else {
                random.pick(&[1, 1, 2])
            },
            never: random.pick(&[3, 8, usize::MAX, usize::MAX]),
            drops: random.pick(&[2, 6, usize::MAX, usize::MAX]),
            leaves: random.pick(&[2, 4, usize::MAX]),
            own_contexts: random.one_in(2),
            polls: random.pick(&[0, 1, 4, 12]),
        }
    }
}

/// A stream that was asked for, and what became of it.
struct Asked {
    node: usize,
    partition: usize,
    stream: Option<SendableRecordBatchStream>,
    batches: Vec<RecordBatch>,
    /// Not polled any more until all others have ended.
    is_left: bool,
    is_dropped: bool,
    error: Option<DataFusionError>,
}

impl Asked {
    fn is_live(&self) -> bool {
        self.stream.is_some() && !self.is_left
    }

    /// Polls its stream once. Returns whether something came.
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let Some(stream) = &mut self.stream else {
            return false;
        };
        match stream.as_mut().poll_next(context) {
            Poll::Pending => return false,
            Poll::Ready(Some(Ok(batch))) => self.batches.push(batch),
            Poll::Ready(Some(Err(error))) => (self.stream, self.error) = (None, Some(error)),
            Poll::Ready(None) => self.stream = None,
        }
        true
    }

    fn drop_stream(&mut self) {
        self.is_dropped |= self.stream.take().is_some();
    }
}

/// The streams of all nodes.
struct Consumer {
    random: Random,
    habits: Habits,
    asked: Vec<Asked>,
}

/// The rows that a consumer kept.
pub struct Kept {
    nodes: Vec<Arc<dyn ExecutionPlan>>,
    asked: Vec<Asked>,
    rounds: usize,
}

/// Reads `plan` and copies of it as `seed` says, with contexts that `context` makes.
///
/// # Errors
/// The errors of executing them; a hang.
pub async fn read(
    plan: &Arc<dyn ExecutionPlan>,
    case: &Case,
    context: impl Fn() -> Arc<TaskContext>,
    seed: u64,
) -> Checked<Kept> {
    let mut random = Random(Mt64::new(seed));
    let habits = Habits::random(&mut random, case);
    let nodes = nodes_of(plan, &mut random)?;
    let mut consumer = Consumer {
        random,
        habits,
        asked: Vec::new(),
    };
    let shared = context();
    for (node, partition) in consumer.order(&nodes) {
        let context = match consumer.habits.own_contexts {
            true => context(),
            false => Arc::clone(&shared),
        };
        let stream = nodes[node].execute(partition, context)?;
        consumer.asked.push(Asked {
            node,
            partition,
            stream: Some(stream),
            batches: Vec::new(),
            is_left: false,
            is_dropped: false,
            error: None,
        });
        consumer.meddle().await;
    }
    let ended = tokio::time::timeout(LIMIT, consumer.drain()).await;
    if ended.is_err() {
        let open = consumer.asked.iter().filter(|asked| asked.is_live());
        let open: Vec<_> = open.map(|asked| (asked.node, asked.partition)).collect();
        return differ("hang", format!("no end of {open:?} (node, partition)"));
    }
    consumer.come_back();
    let ended = tokio::time::timeout(LIMIT, consumer.drain()).await;
    if ended.is_err() {
        return differ("hang", "streams that were left do not end");
    }
    Ok(Kept {
        nodes,
        asked: consumer.asked,
        rounds: consumer.habits.rounds,
    })
}

/// Returns `plan` as if it had never run, and at times a copy of it over inputs of its own.
fn nodes_of(
    plan: &Arc<dyn ExecutionPlan>,
    random: &mut Random,
) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    let first = reset_plan_states(Arc::clone(plan))?;
    let mut nodes = vec![Arc::clone(&first)];
    if random.one_in(3) {
        let inputs = first.children().into_iter().cloned();
        let inputs = inputs.map(reset_plan_states).collect::<Result<_>>()?;
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        nodes.push(first.replace_children(inputs, options)?);
    }
    Ok(nodes)
}

impl Consumer {
    /// Draws the order in which partitions of `nodes` are asked for: of each node round by round.
    fn order(&mut self, nodes: &[Arc<dyn ExecutionPlan>]) -> Vec<(usize, usize)> {
        let mut of_nodes: Vec<Vec<usize>> = Vec::new();
        for node in nodes {
            let mut order = Vec::new();
            for _ in 0..self.habits.rounds {
                let count = node.output_partitioning().partition_count();
                let mut round: Vec<usize> = (0..count).collect();
                for at in (1..count).rev() {
                    round.swap(at, self.random.below(at + 1));
                }
                round.retain(|_| !self.random.one_in(self.habits.never));
                order.extend(round);
            }
            order.reverse();
            of_nodes.push(order);
        }
        let mut all = Vec::new();
        while of_nodes.iter().any(|order| !order.is_empty()) {
            let node = self.random.below(of_nodes.len());
            all.extend(of_nodes[node].pop().map(|partition| (node, partition)));
        }
        all
    }

    /// Polls some streams by hand, drops and leaves others.
    async fn meddle(&mut self) {
        for _ in 0..self.random.below(self.habits.polls + 1) {
            let at = self.random.below(self.asked.len());
            let one = &mut self.asked[at];
            if one.is_live() {
                poll_fn(|context| {
                    one.poll(context);
                    Poll::Ready(())
                })
                .await;
            }
            self.give_up(at);
            tokio::task::yield_now().await;
        }
    }

    /// Drops or leaves a stream, by chance.
    fn give_up(&mut self, at: usize) {
        let (drops, leaves) = (self.habits.drops, self.habits.leaves);
        if self.random.one_in(drops.saturating_mul(4)) {
            self.asked[at].drop_stream();
        } else if self.random.one_in(leaves.saturating_mul(2)) {
            self.asked[at].is_left = true;
        }
    }

    /// Reads all streams that are not left to their ends, or drops them on the way.
    async fn drain(&mut self) {
        poll_fn(|context| self.poll_all(context)).await;
    }

    fn poll_all(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let live = (0..self.asked.len()).filter(|at| self.asked[*at].is_live());
            let mut live: Vec<usize> = live.collect();
            if live.is_empty() {
                return Poll::Ready(());
            }
            let count = live.len();
            live.rotate_left(self.random.below(count));
            let mut came = false;
            for at in live {
                came |= self.asked[at].poll(context);
                if self.random.one_in(self.habits.drops.saturating_mul(16)) {
                    self.asked[at].drop_stream();
                    came = true;
                }
            }
            if !came {
                return Poll::Pending;
            }
        }
    }

    /// Reads streams again that were left, or drops them.
    fn come_back(&mut self) {
        for at in 0..self.asked.len() {
            if self.asked[at].is_left && self.random.one_in(3) {
                self.asked[at].drop_stream();
            }
            self.asked[at].is_left = false;
        }
    }
}

impl Kept {
    /// Checks the rows that were kept against `all`, those of the stock join without a limit, by
    /// partition.
    pub fn check(self, case: &Case, converter: &RowConverter, all: &Output) -> Checked<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            let asked = || self.asked.iter().filter(|asked| asked.node == index);
            if let Some(error) = asked().find_map(|asked| asked.error.as_ref()) {
                match is_exhausted(case, error) {
                    true => continue,
                    false => return differ("error", error),
                }
            }
            let partitions = node.output_partitioning().partition_count();
            let kept = asked().filter(|asked| !asked.is_dropped);
            let batches = kept.map(|asked| asked.batches.clone()).collect();
            let found = Output::new(converter, batches)?;
            let is_whole = case.fetch.is_none()
                && asked().count() == partitions * self.rounds
                && asked().all(|asked| !asked.is_dropped);
            self.check_rows(is_whole, all, &found)?;
            let places = Places::of(node);
            if keeps_partitions(case) && !places.has_spilled() {
                let kept = asked().filter(|asked| !asked.is_dropped);
                check_partitions(kept, converter, all)?;
            }
        }
        Ok(())
    }

    /// Checks that `found` are rows of `all`, each as often as at most; exactly if it `is_whole`.
    fn check_rows(&self, is_whole: bool, all: &Output, found: &Output) -> Checked<()> {
        let mut left: HashMap<&[u8], isize> = all.multiset();
        left.values_mut().for_each(|n| *n *= self.rounds as isize);
        for (row, times) in found.multiset() {
            *left.entry(row).or_default() -= times;
        }
        let count = all.count() * self.rounds;
        let is_more = found.count() > count || left.values().any(|n| *n < 0);
        let is_less = found.count() < count || left.values().any(|n| *n > 0);
        if is_more || is_whole && is_less {
            let rounds = self.rounds;
            let found = found.counts();
            return differ(
                "rows of a consumer",
                format!("{found:?} of {rounds} × {:?}", all.counts()),
            );
        }
        Ok(())
    }
}

/// Returns whether stream `p` of the case's join has the rows of probe partition `p` alone.
fn keeps_partitions(case: &Case) -> bool {
    let is_fixed = !matches!(case.mode, Mode::Open { .. }) && case.fetch.is_none();
    let of_probe = matches!(
        case.join_type,
        JoinType::Inner
            | JoinType::Right
            | JoinType::RightSemi
            | JoinType::RightAnti
            | JoinType::RightMark
    );
    is_fixed && of_probe
}

/// Checks that each stream has the rows of its partition.
fn check_partitions<'a>(
    asked: impl Iterator<Item = &'a Asked>,
    converter: &RowConverter,
    all: &Output,
) -> Checked<()> {
    for asked in asked {
        let found = Output::new(converter, vec![asked.batches.clone()])?;
        let expected = Output::new(converter, vec![all.batches[asked.partition].clone()])?;
        if found.count() != expected.count() || found.multiset() != expected.multiset() {
            let (found, expected) = (found.count(), expected.count());
            let partition = asked.partition;
            return differ(
                "rows of a consumer's partition",
                format!("{found} rows of partition {partition}, not {expected}"),
            );
        }
    }
    Ok(())
}
