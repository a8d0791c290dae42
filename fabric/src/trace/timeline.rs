// SPDX-License-Identifier: Apache-2.0
//! Converts fault intervals to an ordered list of node state changes.

use std::collections::BTreeSet;

use lightloom_units::id::NodeId;
use serde::Serialize;

use super::TraceTime;

/// Health of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// The node is usable.
    Healthy,
    /// At least one fault of the node is open.
    Faulty,
}

/// A change of a node's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Time of the change.
    pub at: TraceTime,
    /// The node.
    pub node: NodeId,
    /// Health from this time on.
    pub health: Health,
}

/// Health changes, ordered by time. All nodes start healthy, and each changes at most once per
/// instant, because overlapping, nested or adjacent faults form a single outage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    nodes: u32,
    window: TraceTime,
    changes: Vec<Change>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    // Starts sort before ends, so adjacent faults do not leave a gap.
    Start,
    End,
}

impl Timeline {
    /// Merges intervals by counting the open faults per node. Times outside `[0, window)` are cut
    /// off. Panics if a node's index is not less than `nodes`.
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

    /// Creates a snapshot in which these nodes are faulty for a window of one millisecond.
    pub fn constant(nodes: u32, faulty: impl IntoIterator<Item = NodeId>) -> Self {
        let window = TraceTime(1);
        let intervals = faulty.into_iter().map(|node| (node, TraceTime::START, window));
        Self::from_intervals(nodes, window, intervals)
    }

    /// Returns the number of nodes.
    pub const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the end of the window, which begins at zero.
    pub const fn window(&self) -> TraceTime {
        self.window
    }

    /// Returns the changes, ordered by time and then by node.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the faulty nodes at `time`, in order, after the changes at that instant.
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

    /// Returns the first instant with the largest number of faulty nodes.
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

    /// Returns the milliseconds spent with exactly 0, 1, 2, … faulty nodes.
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
    fn fault_beyond_the_window_has_no_end() {
        let cut = timeline(&[(0, 90, 200), (1, 100, 300)]);
        assert_eq!(cut.changes().len(), 1);
        assert_eq!(cut.ms_by_faulty_count(), [90, 10]);
    }

    #[test]
    fn snapshot_is_faulty_from_the_start() {
        let snapshot = Timeline::constant(4, [NodeId(2)]);
        assert_eq!(snapshot.faulty_at(TraceTime::START), [NodeId(2)]);
        assert_eq!(snapshot.ms_by_faulty_count(), [0, 1]);
    }

    proptest! {
        #[test]
        fn node_is_faulty_while_any_of_its_faults_is_open(
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
