// SPDX-License-Identifier: Apache-2.0
//! Rebuilds a group in its place with the least change, by an exact search of chains in ascending
//! order along the line. If a closed line is shorter than the section that the group can reach, it
//! is cut open at one point, and chains across the cut are not tried.
//!
//! Candidates are the group's working nodes and the idle nodes within reach. The search decides
//! place by place whether a candidate joins the chain. At each place it keeps the cheapest history
//! of every state. A state consists of the chain's length, its last node and hop, and the
//! candidates within K places that joined. These candidates matter because a lit circuit goes dark
//! if only one of its ends joins.
//!
//! The cost is the number of replaced nodes; ties are decided by the number of switched bundles.
//! The search first allows one replaced node, then two, and so on, so a typical search visits very
//! few states.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::hbd::Hbd;
use lightloom_fabric::khop::{Hop, Position, Shape, hops_are_compatible};
use lightloom_units::id::{BundleId, NodeId};

use super::super::document::selected_port;
use super::super::grouping::wrapped;
use super::super::layout::switched_bundles;
use super::super::{Layout, RingGroup, Survey};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// Keeps every working node of the group and switches at most 2K bundles.
    SmallOnly,
    /// Keeps at least one node.
    Any,
}

/// `idle` includes the working nodes of `old`.
pub(super) fn rebuild(
    fabric: &Fabric,
    survey: &Survey<'_>,
    layout: &Layout,
    idle: &[bool],
    old: &RingGroup,
    effort: Effort,
) -> Option<RingGroup> {
    let search = Search::new(&fabric.hbd, survey, layout, idle, old)?;
    let lost = search.length - search.own;
    let chain = match effort {
        Effort::SmallOnly => {
            let (chain, switched) = search.run(lost)?;
            (switched <= 2 * u32::from(fabric.hbd.k())).then_some(chain)?
        }
        Effort::Any => (lost..search.length).find_map(|replaced| search.run(replaced))?.0,
    };
    let mut group = RingGroup::chain(&fabric.hbd, &chain);
    group.job = old.job;
    group.ranks = keep_ranks(old, &group.nodes);
    Some(group)
}

fn keep_ranks(old: &RingGroup, nodes: &[NodeId]) -> Vec<NodeId> {
    let mut newcomers = nodes.iter().filter(|node| !old.nodes.contains(node));
    let ranks = old.ranks.iter().map(|node| match nodes.contains(node) {
        true => *node,
        false => *newcomers.next().expect("each leaver has a newcomer"),
    });
    ranks.collect()
}

struct Candidate {
    place: u64,
    position: Position,
    is_own: bool,
    lit_down: Vec<u8>,
    /// Lit bundles whose far end failed. They go dark if the node does not join the chain.
    widowed: u32,
    /// Lit bundles whose far end works but cannot join. That far end goes dark if this node joins.
    outside: u32,
}

struct Search<'a> {
    hbd: &'a Hbd,
    survey: &'a Survey<'a>,
    layout: &'a Layout,
    length: usize,
    own: usize,
    candidates: Vec<Candidate>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    placed: usize,
    replaced: usize,
    /// The candidate that joined last. Unused while `placed` is 0 and after the chain is complete.
    last: usize,
    back: Hop,
    /// Bit d is set if the candidate d places below the current one joined, for d up to K.
    joined: u128,
}

#[derive(Clone, Copy)]
struct History {
    switched: u32,
    trail: usize,
}

const NO_TRAIL: usize = usize::MAX;

impl<'a> Search<'a> {
    fn new(
        hbd: &'a Hbd,
        survey: &'a Survey<'a>,
        layout: &'a Layout,
        idle: &[bool],
        old: &RingGroup,
    ) -> Option<Self> {
        let own: Vec<Position> = old.nodes.iter().map(|node| hbd.position_of(*node)).collect();
        let length = old.nodes.len();
        let (start, width) = window(hbd, &own, length);
        let first = u64::from(start.0);
        let places = (0..width).filter(|place| survey.is_usable(wrapped(hbd, first + place), idle));
        let places: Vec<u64> = places.collect();
        let mut search = Self { hbd, survey, layout, length, own: 0, candidates: Vec::new() };
        for place in &places {
            let position = wrapped(hbd, first + place);
            let candidate = search.candidate(*place, position, &places, own.contains(&position));
            search.own += usize::from(candidate.is_own);
            search.candidates.push(candidate);
        }
        (search.candidates.len() >= length && search.own > 0).then_some(search)
    }

    fn candidate(&self, place: u64, position: Position, places: &[u64], is_own: bool) -> Candidate {
        let node = self.hbd.node_at(position);
        let mut candidate =
            Candidate { place, position, is_own, lit_down: Vec::new(), widowed: 0, outside: 0 };
        for bundle in (0..self.hbd.k()).map(|bundle| BundleId { node, bundle }) {
            let Some(port) = selected_port(bundle, self.layout.path(bundle)) else { continue };
            let Some(far) = self.survey.working_peer(port) else {
                candidate.widowed += 1;
                continue;
            };
            let apart = self.apart(position, self.hbd.position_of(far.bundle.node));
            let far_place = u64::try_from(place.cast_signed() + apart).ok();
            if far_place.is_none_or(|far| places.binary_search(&far).is_err()) {
                candidate.outside += 1;
            } else if apart < 0 {
                candidate.lit_down.push(u8::try_from(-apart).expect("at most K"));
            }
        }
        candidate
    }

    fn apart(&self, from: Position, to: Position) -> i64 {
        let apart = i64::from(to.0) - i64::from(from.0);
        let nodes = i64::from(self.hbd.nodes());
        match self.hbd.shape() {
            Shape::Line => apart,
            Shape::Ring => (apart + nodes / 2).rem_euclid(nodes) - nodes / 2,
        }
    }

    /// Also returns the number of bundles that the chain switches.
    fn run(&self, replaced: usize) -> Option<(Vec<Position>, u32)> {
        let spare_own = (self.own + replaced).checked_sub(self.length)?;
        let mut trails: Vec<(usize, usize)> = Vec::new();
        let start = State { placed: 0, replaced: 0, last: 0, back: 0, joined: 0 };
        let mut states = BTreeMap::from([(start, History { switched: 0, trail: NO_TRAIL })]);
        let (mut own_seen, mut before) = (0, 0);
        for (index, candidate) in self.candidates.iter().enumerate() {
            let moved = candidate.place - before;
            before = candidate.place;
            own_seen += usize::from(candidate.is_own);
            let mut next = BTreeMap::new();
            for (state, history) in states {
                let joined = if moved < 128 { state.joined << moved } else { 0 };
                let state = State { joined, ..state };
                let own_joined = state.placed - state.replaced;
                if own_seen - own_joined <= spare_own {
                    let switched = history.switched + self.stays_out(candidate, joined);
                    keep(&mut next, state, History { switched, ..history });
                }
                let joins = self.join(state, index).filter(|(state, _)| state.replaced <= replaced);
                if let Some((state, switched)) = joins {
                    trails.push((index, history.trail));
                    let trail = trails.len() - 1;
                    keep(
                        &mut next,
                        state,
                        History { switched: history.switched + switched, trail },
                    );
                }
            }
            states = next;
        }
        let complete = states.iter().filter(|(state, _)| state.placed == self.length);
        let (_, best) =
            complete.min_by_key(|(state, history)| (state.replaced, history.switched))?;
        Some((self.walk_back(&trails, best.trail), best.switched))
    }

    fn stays_out(&self, candidate: &Candidate, joined: u128) -> u32 {
        let cut_off = candidate.lit_down.iter().filter(|down| joined >> **down & 1 == 1).count();
        candidate.widowed + u32::try_from(cut_off).expect("at most K")
    }

    fn join(&self, state: State, index: usize) -> Option<(State, u32)> {
        if state.placed == self.length {
            return None;
        }
        let candidate = &self.candidates[index];
        let left_out =
            candidate.lit_down.iter().filter(|down| state.joined >> **down & 1 == 0).count();
        let mut switched = candidate.outside + u32::try_from(left_out).expect("at most K");
        let mut back = 0;
        if state.placed > 0 {
            let last = &self.candidates[state.last];
            back = Hop::try_from(candidate.place - last.place)
                .ok()
                .filter(|hop| *hop <= self.reach())?;
            let fits = state.back == 0 || hops_are_compatible(self.hbd.k(), -state.back, back);
            if !fits || !self.survey.has_fibre(last.position, back) {
                return None;
            }
            switched += self.switched(last, state.back, Some(back));
        }
        let placed = state.placed + 1;
        if placed == self.length {
            switched += self.switched(candidate, back, None);
        }
        let complete = placed == self.length;
        let state = State {
            placed,
            replaced: state.replaced + usize::from(!candidate.is_own),
            last: if complete { 0 } else { index },
            back: if complete { 0 } else { back },
            joined: state.joined | 1,
        };
        Some((state, switched))
    }

    fn reach(&self) -> Hop {
        Hop::try_from(self.hbd.k()).expect("K is at most 64")
    }

    fn switched(&self, candidate: &Candidate, back: Hop, forward: Option<Hop>) -> u32 {
        let node = self.hbd.node_at(candidate.position);
        let hops = [(back != 0).then_some(-back), forward];
        switched_bundles(self.hbd, self.layout, node, hops)
    }

    fn walk_back(&self, trails: &[(usize, usize)], mut trail: usize) -> Vec<Position> {
        let mut chain = Vec::with_capacity(self.length);
        while trail != NO_TRAIL {
            let (index, before) = trails[trail];
            chain.push(self.candidates[index].position);
            trail = before;
        }
        chain.reverse();
        chain
    }
}

fn keep(states: &mut BTreeMap<State, History>, state: State, history: History) {
    let entry = states.entry(state).or_insert(history);
    if history.switched < entry.switched {
        *entry = history;
    }
}

/// Returns the start and the width of the section within reach of a chain that keeps a node of the old chain.
fn window(hbd: &Hbd, own: &[Position], length: usize) -> (Position, u64) {
    let nodes = u64::from(hbd.nodes());
    let margin = (length as u64 - 1) * u64::from(hbd.k());
    let (first, last) = (own[0], own[own.len() - 1]);
    match hbd.shape() {
        Shape::Ring => {
            let span = (u64::from(last.0) + nodes - u64::from(first.0)) % nodes;
            let width = (span + 2 * margin + 1).min(nodes);
            let start = (u64::from(first.0) + nodes - margin % nodes) % nodes;
            (Position(u32::try_from(start).expect("a position")), width)
        }
        Shape::Line => {
            let (low, high) = (u64::from(first.0.min(last.0)), u64::from(first.0.max(last.0)));
            let start = low.saturating_sub(margin);
            let end = (high + margin + 1).min(nodes);
            (Position(u32::try_from(start).expect("a position")), end - start)
        }
    }
}
