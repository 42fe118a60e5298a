//! A consumer that misbehaves, drawn from a seed.
//!
//! ```text
//!  plan ─ reset, copied by with_new_children ─▶ nodes
//!  node ─ streams dropped unread, once or more often
//!       ─ partitions in any order, some never, some twice, one context or several ─▶ streams
//!  stream ─ polled by hand, left in the middle of a poll, dropped at any ─▶ rows
//!
//!  always: what is not left ends, whatever becomes of the others
//! ```
//!
//! Suites that collect whole results, in order and with one context, see none of this. Whoever has
//! a plan read says what its rows must be.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};
use futures::future::poll_fn;

use super::difference::{Checked, differ};
use super::numbers::Random;

/// Time within which all streams end that are not left.
const LIMIT: Duration = Duration::from_secs(100);

/// What a consumer may do to a plan.
#[derive(Debug, Clone, Copy)]
pub struct Allows {
    /// It may ask for a partition again.
    pub again: bool,
    /// It may read a copy of the plan as well.
    pub copies: bool,
    /// It may drop streams unread, and ask for them again.
    pub unread: bool,
}

/// What a consumer does, in numbers of chances: one in so many.
struct Habits {
    /// Times that a node's partitions are asked for, and dropped unread, before all else.
    unread: usize,
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
    fn random(random: &mut Random, allows: Allows) -> Self {
        Self {
            unread: match allows.unread {
                true => random.pick(&[0, 1, 1, 3]),
                false => 0,
            },
            rounds: match allows.again {
                true => random.pick(&[1, 1, 2]),
                false => 1,
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
pub struct Asked {
    pub node: usize,
    pub partition: usize,
    stream: Option<SendableRecordBatchStream>,
    pub batches: Vec<RecordBatch>,
    /// Not polled any more until all others have ended.
    is_left: bool,
    pub is_dropped: bool,
    pub error: Option<DataFusionError>,
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
    pub nodes: Vec<Arc<dyn ExecutionPlan>>,
    asked: Vec<Asked>,
    /// Times that each partition was asked for, at most.
    pub rounds: usize,
    /// Times before that its streams were dropped unread.
    pub unread: usize,
}

impl Kept {
    /// The streams of a node.
    pub fn of(&self, node: usize) -> impl Iterator<Item = &Asked> {
        self.asked.iter().filter(move |asked| asked.node == node)
    }

    /// Streams that were dropped before their ends.
    pub fn dropped(&self) -> usize {
        self.asked.iter().filter(|asked| asked.is_dropped).count()
    }

    /// Returns whether all rows of a node were kept, as often as there are rounds.
    pub fn is_whole(&self, node: usize) -> bool {
        let partitions = self.nodes[node].output_partitioning().partition_count();
        self.of(node).count() == partitions * self.rounds
            && self.of(node).all(|asked| !asked.is_dropped)
    }
}

/// Reads `plan` and copies of it as `seed` says, with contexts that `context` makes.
///
/// # Errors
/// A hang.
pub async fn read(
    plan: &Arc<dyn ExecutionPlan>,
    allows: Allows,
    context: impl Fn() -> Arc<TaskContext>,
    seed: u64,
) -> Checked<Kept> {
    let mut random = Random::new(seed);
    let habits = Habits::random(&mut random, allows);
    let nodes = nodes_of(plan, allows, &mut random)?;
    let mut consumer = Consumer {
        random,
        habits,
        asked: Vec::new(),
    };
    let shared = context();
    for node in &nodes {
        for _ in 0..consumer.habits.unread {
            consumer.leave_unread(node.as_ref(), &context).await;
        }
    }
    for (node, partition) in consumer.order(&nodes) {
        let context = match consumer.habits.own_contexts {
            true => context(),
            false => Arc::clone(&shared),
        };
        let (stream, error) = match nodes[node].execute(partition, context) {
            Ok(stream) => (Some(stream), None),
            Err(error) => (None, Some(error)),
        };
        consumer.asked.push(Asked {
            node,
            partition,
            stream,
            batches: Vec::new(),
            is_left: false,
            is_dropped: false,
            error,
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
        unread: consumer.habits.unread,
    })
}

/// Returns `plan` as if it had never run, and at times a copy of it over inputs of its own.
fn nodes_of(
    plan: &Arc<dyn ExecutionPlan>,
    allows: Allows,
    random: &mut Random,
) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    let first = reset_plan_states(Arc::clone(plan))?;
    let mut nodes = vec![Arc::clone(&first)];
    // A copy of a leaf is the leaf.
    if allows.copies && random.one_in(3) && !first.children().is_empty() {
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
                self.random.shuffle(&mut round);
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

    /// Asks for some or all partitions of `node`, and drops their streams unread, at once or after
    /// what they began had time to go on. Errors come again when the partitions are read.
    async fn leave_unread(
        &mut self,
        node: &dyn ExecutionPlan,
        context: impl Fn() -> Arc<TaskContext>,
    ) {
        let mut partitions: Vec<usize> =
            (0..node.output_partitioning().partition_count()).collect();
        self.random.shuffle(&mut partitions);
        partitions.retain(|_| !self.random.one_in(self.habits.never));
        let shared = context();
        let streams = partitions.into_iter().map(|partition| {
            let context = match self.habits.own_contexts {
                true => context(),
                false => Arc::clone(&shared),
            };
            node.execute(partition, context)
        });
        let streams: Vec<_> = streams.collect();
        if self.random.one_in(2) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(streams);
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
