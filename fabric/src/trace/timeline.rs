// SPDX-License-Identifier: Apache-2.0
//! Intervals become changes: an ordered list of nodes that fail and nodes that come back.

use std::collections::BTreeSet;

use lightloom_units::id::NodeId;
use serde::Serialize;

use super::{FaultTrace, TraceTime};

/// Whether a node can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It can.
    Healthy,
    /// It cannot: at least one of its faults is open.
    Faulty,
}

/// A node that fails or comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// When.
    pub at: TraceTime,
    /// Which node.
    pub node: NodeId,
    /// What it is from now on.
    pub health: Health,
}

/// All changes of a set of nodes over a window, in order of time. All nodes begin healthy.
///
/// A node changes at most once at an instant, always to the state it does not have, and never
/// for zero time: faults that overlap, nest or follow each other without a gap are one outage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    nodes: u32,
    window: TraceTime,
    changes: Vec<Change>,
}

/// One end of an interval in which a node is faulty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    // Starts sort before ends, so faults that touch do not leave a gap of no length.
    Start,
    End,
}

impl Timeline {
    /// Counts, per node, the faults that are open, and notes when the count leaves or
    /// reaches zero. What lies outside `[0, window)` is cut off.
    ///
    /// # Panics
    /// If an interval names a node that is not below `nodes`.
    pub fn from_intervals(
        nodes: u32,
        window: TraceTime,
        intervals: impl IntoIterator<Item = (NodeId, TraceTime, TraceTime)>,
    ) -> Self {
        let mut edges: Vec<(TraceTime, NodeId, Edge)> = intervals
            .into_iter()
            .filter(|(_, start, end)| start < end && *start < window)
            .flat_map(|(node, start, end)| [(start, node, Edge::Start), (end, node, Edge::End)])
            .collect();
        edges.sort_unstable();
        let mut open = vec![0_u32; nodes as usize];
        let mut changes = Vec::with_capacity(edges.len());
        for (at, node, edge) in edges.into_iter().filter(|(at, ..)| *at < window) {
            let count = &mut open[node.index()];
            match edge {
                Edge::Start if *count == 0 => {
                    changes.push(Change { at, node, health: Health::Faulty });
                }
                Edge::End if *count == 1 => {
                    changes.push(Change { at, node, health: Health::Healthy });
                }
                Edge::Start | Edge::End => {}
            }
            match edge {
                Edge::Start => *count += 1,
                Edge::End => *count -= 1,
            }
        }
        Self { nodes, window, changes }
    }

    /// Nodes that are faulty for the whole of a window of one millisecond: a snapshot.
    pub fn constant(nodes: u32, faulty: impl IntoIterator<Item = NodeId>) -> Self {
        let window = TraceTime(1);
        let intervals = faulty.into_iter().map(|node| (node, TraceTime::START, window));
        Self::from_intervals(nodes, window, intervals)
    }

    /// How many nodes there are.
    #[must_use]
    pub const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Where the window ends; it begins at zero.
    #[must_use]
    pub const fn window(&self) -> TraceTime {
        self.window
    }

    /// The changes, in order of time, then of node.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The faulty nodes at `time`, in order, with the changes of that very instant done.
    #[must_use]
    pub fn faulty_at(&self, time: TraceTime) -> Vec<NodeId> {
        let mut faulty = BTreeSet::new();
        for change in self.changes.iter().take_while(|change| change.at <= time) {
            match change.health {
                Health::Faulty => faulty.insert(change.node),
                Health::Healthy => faulty.remove(&change.node),
            };
        }
        faulty.into_iter().collect()
    }

    /// The first instant at which the most nodes are faulty.
    #[must_use]
    pub fn worst(&self) -> TraceTime {
        let (mut count, mut most, mut worst) = (0_u32, 0, TraceTime::START);
        for changes in self.changes.chunk_by(|a, b| a.at == b.at) {
            for change in changes {
                match change.health {
                    Health::Faulty => count += 1,
                    Health::Healthy => count -= 1,
                }
            }
            if count > most {
                (most, worst) = (count, changes[0].at);
            }
        }
        worst
    }

    /// For each number of faulty nodes from zero up, the milliseconds of the window with just
    /// that many.
    #[must_use]
    pub fn ms_by_faulty_count(&self) -> Vec<u64> {
        let mut spent = vec![0];
        let (mut count, mut since) = (0_usize, TraceTime::START);
        for change in &self.changes {
            spent[count] += change.at.ms_since(since);
            since = change.at;
            match change.health {
                Health::Faulty => count += 1,
                Health::Healthy => count -= 1,
            }
            if count == spent.len() {
                spent.push(0);
            }
        }
        spent[count] += self.window.ms_since(since);
        spent
    }
}

impl FaultTrace {
    /// The trace with every server taken as one node, over its whole length: faults are cut at
    /// `end`, not at the window.
    #[must_use]
    pub fn server_timeline(&self, end: TraceTime) -> Timeline {
        let intervals =
            self.faults.iter().map(|fault| (NodeId(fault.server.0), fault.start, fault.end));
        Timeline::from_intervals(self.servers, end, intervals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timeline(intervals: &[(u32, u64, u64)]) -> Timeline {
        let intervals = intervals.iter().map(|&(n, s, e)| (NodeId(n), TraceTime(s), TraceTime(e)));
        Timeline::from_intervals(8, TraceTime(100), intervals)
    }

    #[test]
    fn nested_overlapping_and_touching_faults_are_one_outage() {
        let merged = timeline(&[(3, 10, 50), (3, 20, 30), (3, 40, 60), (3, 60, 70), (1, 5, 5)]);
        let expected = [
            Change { at: TraceTime(10), node: NodeId(3), health: Health::Faulty },
            Change { at: TraceTime(70), node: NodeId(3), health: Health::Healthy },
        ];
        assert_eq!(merged.changes(), expected);
    }

    #[test]
    fn what_lasts_beyond_the_window_has_no_end() {
        let cut = timeline(&[(0, 90, 200), (1, 100, 300)]);
        assert_eq!(cut.changes().len(), 1);
        assert_eq!(cut.ms_by_faulty_count(), [90, 10]);
    }

    #[test]
    fn a_snapshot_is_faulty_from_the_start() {
        let snapshot = Timeline::constant(4, [NodeId(2)]);
        assert_eq!(snapshot.faulty_at(TraceTime::START), [NodeId(2)]);
        assert_eq!(snapshot.ms_by_faulty_count(), [0, 1]);
    }

    proptest! {
        /// Against the definition, instant by instant.
        #[test]
        fn a_node_is_faulty_while_any_of_its_faults_is_open(
            intervals in prop::collection::vec((0_u32..8, 0_u64..110, 0_u64..40), 0..40)
        ) {
            let intervals: Vec<_> = intervals.into_iter().map(|(n, s, d)| (n, s, s + d)).collect();
            let merged = timeline(&intervals);
            let mut spent = [0_u64; 9];
            let most = |now| merged.faulty_at(TraceTime(now)).len();
            let worst = (0..100).rev().max_by_key(|now| most(*now)).unwrap_or(0);
            prop_assert_eq!(merged.worst(), TraceTime(worst));
            for now in 0..100 {
                let expected: Vec<NodeId> = (0..8)
                    .filter(|n| intervals.iter().any(|(m, s, e)| m == n && *s <= now && now < *e))
                    .map(NodeId)
                    .collect();
                spent[expected.len()] += 1;
                prop_assert_eq!(merged.faulty_at(TraceTime(now)), expected);
            }
            for (count, ms) in merged.ms_by_faulty_count().into_iter().enumerate() {
                prop_assert_eq!(ms, spent[count]);
            }
        }
    }
}
