// SPDX-License-Identifier: Apache-2.0
//! Moves groups one after the other for a shorter step.
//!
//! The state is the node of every rank. From the present placement, the search repeatedly makes the
//! best of these changes until the limit on moves is reached or nothing helps:
//!
//! * Two groups of a job exchange their places in its order. If both hold the same weights, no
//!   group moves.
//! * A group moves to the chain of free nodes whose racks hold the most traffic of its neighbours.
//! * A group takes nodes of another group, which then moves to free nodes.
//!
//! Nodes are free if no group of a job uses them; spare rings are dissolved. The result is not
//! proven to be optimal.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::hbd::Hbd;
use lightloom_fabric::khop::{Hop, Position, Shape, hops_are_compatible};
use lightloom_units::id::{GroupId, NodeId, TorId};

use super::model::{Model, Score, SeatedGroup, SeatedGroups, Weights};
use crate::khop::{Layout, Survey};

/// Limits the time of one search to about 0.1 s.
const EFFORT: usize = 20_000_000;

/// Groups below the busiest racks that a search tries to move.
const MOST_TRIED: usize = 48;

#[derive(Clone)]
pub(super) struct SeatingPoint {
    pub(super) moves: usize,
    pub(super) score: Score,
    pub(super) seating: Vec<SeatedGroups>,
}

struct Edit {
    job: usize,
    place: usize,
    member: SeatedGroup,
}

pub(super) struct SeatingWalk<'a> {
    model: &'a Model<'a>,
    survey: &'a Survey<'a>,
    before: &'a BTreeMap<GroupId, (Vec<NodeId>, Weights)>,
    jobs: Vec<usize>,
    seating: Vec<SeatedGroups>,
    scores: Vec<Score>,
    free: Vec<bool>,
    /// For each position and hop, whether a working fibre starts there.
    joined: Vec<bool>,
    effort: usize,
}

#[derive(Clone, Copy)]
enum Aim {
    Near,
    Apart,
}

struct RackWish {
    /// The present nodes.
    ranks: Vec<NodeId>,
    /// For each rank, the traffic with neighbours by rack.
    of_rank: Vec<BTreeMap<TorId, f64>>,
    of_rack: BTreeMap<TorId, f64>,
    most: f64,
}

fn set_free(hbd: &Hbd, free: &mut [bool], nodes: &[NodeId], is_free: bool) {
    for node in nodes {
        free[hbd.position_of(*node).index()] = is_free;
    }
}

impl<'a> SeatingWalk<'a> {
    pub(super) fn new(
        model: &'a Model<'a>,
        survey: &'a Survey<'a>,
        layout: &Layout,
        before: &'a BTreeMap<GroupId, (Vec<NodeId>, Weights)>,
    ) -> Self {
        let hbd = survey.hbd();
        let mut free: Vec<bool> = (0..hbd.nodes())
            .map(|at| survey.is_whole(Position(at)) && survey.in_reach()[at as usize])
            .collect();
        for node in
            layout.groups.iter().filter(|group| group.job.is_some()).flat_map(|group| &group.nodes)
        {
            free[hbd.position_of(*node).index()] = false;
        }
        let mut seating: Vec<SeatedGroups> = Vec::new();
        for job in (0..).take(layout.jobs.len()) {
            let groups = layout.groups_of(job);
            let members = groups.map(|group| SeatedGroup {
                id: group.id,
                ranks: group.ranks.clone(),
                chain: None,
            });
            seating.push(members.collect());
        }
        let scores =
            seating.iter().enumerate().map(|(job, members)| model.of_job(job, members)).collect();
        let joined = (0..hbd.nodes())
            .flat_map(|at| (0..=hbd.k()).map(move |hop| (at, hop)))
            .map(|(at, hop)| hop > 0 && survey.has_fibre(Position(at), hop.cast_signed()))
            .collect();
        Self {
            model,
            survey,
            before,
            jobs: Vec::new(),
            seating,
            scores,
            free,
            joined,
            effort: EFFORT,
        }
    }

    fn concerned(&self) -> Vec<usize> {
        let step = self.score().step;
        (0..self.scores.len())
            .filter(|job| self.scores[*job].step >= step * (1.0 - 1e-6) || self.moves_of(*job) > 0)
            .collect()
    }

    /// Returns the best placements for each number of moves up to `most`, fewest first. Without
    /// `all_jobs`, jobs that neither lost a node nor delay the step change only to make room.
    pub(super) fn points(mut self, all_jobs: bool, most: usize) -> Vec<SeatingPoint> {
        self.jobs = if all_jobs { (0..self.scores.len()).collect() } else { self.concerned() };
        let may_move: Vec<bool> = (0..self.scores.len()).map(|job| self.may_move(job)).collect();
        self.jobs.retain(|job| may_move[*job]);
        let mut points = Vec::new();
        loop {
            while self.improve(self.moves()) {}
            points.push(SeatingPoint {
                moves: self.moves(),
                score: self.score(),
                seating: self.seating.clone(),
            });
            if self.effort == 0 || !self.improve(most) {
                return points;
            }
        }
    }

    fn may_move(&self, job: usize) -> bool {
        let is_allowed = u32::try_from(job).is_ok_and(|job| self.survey.may_move(job));
        self.model.jobs[job].may_move && is_allowed
    }

    fn score(&self) -> Score {
        self.scores.iter().fold(Score::default(), |sum, own| sum.with(*own))
    }

    fn moves(&self) -> usize {
        (0..self.seating.len()).map(|job| self.moves_of(job)).sum()
    }

    fn moves_of(&self, job: usize) -> usize {
        (0..self.seating[job].len()).filter(|place| self.is_moved(job, *place)).count()
    }

    fn rack_of(&self, node: NodeId) -> TorId {
        self.model.fabric.dcn.tor_of(node)
    }

    fn is_moved(&self, job: usize, place: usize) -> bool {
        let now = &self.seating[job][place];
        self.before.get(&now.id).is_some_and(|(ranks, weights)| {
            *ranks != now.ranks || *weights != self.model.jobs[job].weights[place]
        })
    }

    fn improve(&mut self, most: usize) -> bool {
        let now = (self.score(), self.moves());
        let mut best: Option<(f64, Vec<Edit>)> = None;
        for job in self.jobs.clone() {
            for place in self.busiest(job) {
                for edits in self.edits(job, place, most > now.1) {
                    let (edits, score, moves) = self.tried(edits, now.1);
                    if moves > most || !score.is_better_than(&now.0) {
                        continue;
                    }
                    let extra = moves.saturating_sub(now.1).max(1) as f64;
                    let gain = score.gain_over(&now.0) / extra;
                    if best.as_ref().is_none_or(|(most, _)| gain > *most) {
                        best = Some((gain, edits));
                    }
                }
                if self.effort == 0 {
                    break;
                }
            }
        }
        let Some((_, edits)) = best else { return false };
        self.make(edits);
        true
    }

    fn busiest(&self, job: usize) -> Vec<usize> {
        let members = &self.seating[job];
        let racks = self.model.racks(job, members);
        let mut places: Vec<(usize, f64)> = Vec::new();
        for (place, member) in members.iter().enumerate() {
            let mut neighbours = self.model.jobs[job].neighbours[place].iter();
            let crosses = neighbours.any(|(other, _)| {
                let mut pairs = member.ranks.iter().zip(&members[*other].ranks);
                pairs.any(|(one, other)| self.rack_of(*one) != self.rack_of(*other))
            });
            if crosses {
                let loads = member.ranks.iter().map(|node| racks[self.rack_of(*node).index()]);
                places.push((place, loads.fold(0.0, f64::max)));
            }
        }
        places.sort_by(|one, other| other.1.total_cmp(&one.1));
        places.truncate(MOST_TRIED);
        places.into_iter().map(|(place, _)| place).collect()
    }

    fn tried(&mut self, mut edits: Vec<Edit>, moves: usize) -> (Vec<Edit>, Score, usize) {
        let before = self.moves_among(&edits);
        self.exchange(&mut edits);
        let mut jobs: Vec<usize> = edits.iter().map(|edit| edit.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let mut score = Score::default();
        for (job, own) in self.scores.iter().enumerate() {
            score = score.with(match jobs.contains(&job) {
                true => self.model.of_job(job, &self.seating[job]),
                false => *own,
            });
        }
        let groups: usize = jobs.iter().map(|job| self.seating[*job].len()).sum();
        self.effort = self.effort.saturating_sub(20 * groups);
        let moves = moves + self.moves_among(&edits) - before;
        self.exchange(&mut edits);
        (edits, score, moves)
    }

    fn moves_among(&self, edits: &[Edit]) -> usize {
        edits.iter().filter(|edit| self.is_moved(edit.job, edit.place)).count()
    }

    fn exchange(&mut self, edits: &mut [Edit]) {
        for edit in edits {
            std::mem::swap(&mut self.seating[edit.job][edit.place], &mut edit.member);
        }
    }

    fn make(&mut self, mut edits: Vec<Edit>) {
        self.exchange(&mut edits);
        for edit in &edits {
            set_free(self.survey.hbd(), &mut self.free, &edit.member.ranks, true);
        }
        for edit in &edits {
            let now = &self.seating[edit.job][edit.place];
            set_free(self.survey.hbd(), &mut self.free, &now.ranks, false);
            self.scores[edit.job] = self.model.of_job(edit.job, &self.seating[edit.job]);
        }
    }

    /// If `may_push` is set, other groups may have to leave their nodes to the group at `place`.
    fn edits(&mut self, job: usize, place: usize, may_push: bool) -> Vec<Vec<Edit>> {
        let mut all = self.places_exchanged(job, place, may_push);
        let is_known = self.before.contains_key(&self.seating[job][place].id);
        let must_move = self.is_moved(job, place) || !is_known;
        if !may_push && !must_move {
            return all;
        }
        let mut free = self.free.clone();
        set_free(self.survey.hbd(), &mut free, &self.seating[job][place].ranks, true);
        for aim in [Aim::Near, Aim::Apart] {
            if let Some(member) = self.moved(job, place, &free, aim) {
                all.push(vec![Edit { job, place, member }]);
            }
            if must_move {
                all.extend(self.moved_to_other_places(job, place, &free, aim));
            }
        }
        for (other, at) in if may_push { self.in_the_way(job, place) } else { Vec::new() } {
            all.extend(self.pushed(job, place, other, at, free.clone()));
        }
        all
    }

    fn moved_to_other_places(
        &mut self,
        job: usize,
        place: usize,
        free: &[bool],
        aim: Aim,
    ) -> Vec<Vec<Edit>> {
        let weights = &self.model.jobs[job].weights;
        let others: Vec<usize> = (0..weights.len())
            .filter(|other| *other != place && weights[*other] == weights[place])
            .collect();
        let mut all = Vec::new();
        for other in others {
            if self.effort == 0 {
                break;
            }
            self.seating[job].swap(place, other);
            let moved = self.moved(job, other, free, aim);
            self.seating[job].swap(place, other);
            if let Some(member) = moved {
                let one = Edit { job, place, member: self.seating[job][other].clone() };
                all.push(vec![one, Edit { job, place: other, member }]);
            }
        }
        all
    }

    fn pushed(
        &mut self,
        job: usize,
        place: usize,
        other: usize,
        at: usize,
        mut free: Vec<bool>,
    ) -> Option<Vec<Edit>> {
        let gone = self.seating[other][at].clone();
        set_free(self.survey.hbd(), &mut free, &gone.ranks, true);
        let member = self.moved(job, place, &free, Aim::Near)?;
        if !member.ranks.iter().any(|node| gone.ranks.contains(node)) {
            return None;
        }
        set_free(self.survey.hbd(), &mut free, &member.ranks, false);
        let was = std::mem::replace(&mut self.seating[job][place], member);
        let away = self.moved(other, at, &free, Aim::Near);
        let member = std::mem::replace(&mut self.seating[job][place], was);
        Some(vec![Edit { job, place, member }, Edit { job: other, place: at, member: away? }])
    }

    fn places_exchanged(&self, job: usize, place: usize, may_move: bool) -> Vec<Vec<Edit>> {
        let (members, weights) = (&self.seating[job], &self.model.jobs[job].weights);
        let mut all: Vec<Vec<Edit>> = (0..members.len())
            .filter(|other| *other != place && (may_move || weights[*other] == weights[place]))
            .map(|other| {
                let [one, two] = [&members[place], &members[other]].map(Clone::clone);
                vec![Edit { job, place, member: two }, Edit { job, place: other, member: one }]
            })
            .collect();
        for other in (0..members.len()).filter(|other| other.abs_diff(place) > 1) {
            let range = place.min(other)..=place.max(other);
            if range.clone().any(|at| weights[at] != weights[place]) {
                continue;
            }
            let edits = range.map(|at| {
                let from = match at {
                    _ if at == other => place,
                    _ if other > place => at + 1,
                    _ => at - 1,
                };
                Edit { job, place: at, member: members[from].clone() }
            });
            all.push(edits.collect());
        }
        all
    }

    fn in_the_way(&self, job: usize, place: usize) -> Vec<(usize, usize)> {
        let wish = self.wish(job, place);
        let neighbours: BTreeSet<usize> =
            self.model.jobs[job].neighbours[place].iter().map(|(other, _)| *other).collect();
        let mut found = Vec::new();
        for (other, members) in
            self.seating.iter().enumerate().filter(|(other, _)| self.may_move(*other))
        {
            for (at, member) in members.iter().enumerate() {
                let is_own = other == job && (at == place || neighbours.contains(&at));
                let mut racks = member.ranks.iter().map(|node| self.rack_of(*node));
                if !is_own && racks.any(|rack| wish.of_rack.contains_key(&rack)) {
                    found.push((other, at));
                }
            }
        }
        found.truncate(MOST_TRIED);
        found
    }

    fn wish(&self, job: usize, place: usize) -> RackWish {
        let members = &self.seating[job];
        let ranks = members[place].ranks.clone();
        let length = ranks.len();
        let mut wish = RackWish {
            ranks,
            of_rank: vec![BTreeMap::new(); length],
            of_rack: BTreeMap::new(),
            most: 0.0,
        };
        for (other, weight) in &self.model.jobs[job].neighbours[place] {
            wish.most = wish.most.max(*weight);
            for (rank, node) in members[*other].ranks.iter().enumerate().take(length) {
                let rack = self.rack_of(*node);
                *wish.of_rank[rank].entry(rack).or_default() += weight;
                *wish.of_rack.entry(rack).or_default() += weight;
            }
        }
        wish
    }

    fn moved(&mut self, job: usize, place: usize, free: &[bool], aim: Aim) -> Option<SeatedGroup> {
        let wish = self.wish(job, place);
        let hbd = self.survey.hbd();
        let own = self.seating[job][place].clone();
        let racks = self.model.racks(job, &self.seating[job]);
        let most = racks.iter().fold(1e-12_f64, |most, load| most.max(*load));
        let weights = (0..hbd.nodes()).map(|at| {
            let node = hbd.node_at(Position(at));
            let rack = self.rack_of(node);
            let stays = if own.ranks.contains(&node) { 0.05 * wish.most } else { 0.0 };
            let load = racks[rack.index()] / most;
            let wanted = wish.of_rack.get(&rack).copied();
            stays
                + match aim {
                    Aim::Near => wanted.unwrap_or(-0.3 * wish.most * load),
                    Aim::Apart => wanted.unwrap_or(0.0) - wish.most * load,
                }
        });
        let weights: Vec<f64> = weights.collect();
        let chain = self.best_chain(own.ranks.len(), free, &weights)?;
        let nodes: Vec<NodeId> = chain.iter().map(|at| hbd.node_at(*at)).collect();
        let ranks = self.ranked(&wish, nodes);
        (ranks != own.ranks).then_some(SeatedGroup { id: own.id, ranks, chain: Some(chain) })
    }

    fn ranked(&self, wish: &RackWish, mut nodes: Vec<NodeId>) -> Vec<NodeId> {
        loop {
            let mut is_better = false;
            for one in 0..nodes.len() {
                for other in one + 1..nodes.len() {
                    let [first, second] = [nodes[one], nodes[other]];
                    let kept = self.gain(wish, one, first) + self.gain(wish, other, second);
                    let exchanged = self.gain(wish, one, second) + self.gain(wish, other, first);
                    if exchanged > kept + 1e-12 {
                        nodes.swap(one, other);
                        is_better = true;
                    }
                }
            }
            if !is_better {
                return nodes;
            }
        }
    }

    fn gain(&self, wish: &RackWish, rank: usize, node: NodeId) -> f64 {
        let stays = if wish.ranks[rank] == node { 0.01 * wish.most } else { 0.0 };
        wish.of_rank[rank].get(&self.rack_of(node)).copied().unwrap_or(0.0) + stays
    }

    fn best_chain(
        &mut self,
        length: usize,
        free: &[bool],
        weights: &[f64],
    ) -> Option<Vec<Position>> {
        let hbd = self.survey.hbd();
        let (nodes, reach) = (hbd.nodes() as usize, usize::from(hbd.k()));
        let over = match hbd.shape() {
            Shape::Ring => (length - 1) * reach,
            Shape::Line => 0,
        };
        if over >= nodes {
            return None;
        }
        let (places, width) = (nodes + over, reach + 1);
        self.effort = self.effort.saturating_sub(length * places * width * 2);
        let slots = ChainSlots { places, width };
        let mut best = vec![f64::NEG_INFINITY; length * places * width];
        let mut from = vec![0_u8; length * places * width];
        for place in (0..nodes).filter(|place| free[*place]) {
            best[slots.at(0, place, 0)] = weights[place];
        }
        let fits: Vec<bool> = (0..width * width)
            .map(|pair| [pair / width, pair % width])
            .map(|hops| hops.map(|hop| Hop::try_from(hop).expect("K is at most 64")))
            .map(|[back, on]| back == 0 || on > 0 && hops_are_compatible(hbd.k(), -back, on))
            .collect();
        for joined in 1..length {
            for place in (0..places).filter(|place| free[place % nodes]) {
                for on in 1..=reach.min(place) {
                    let last = place - on;
                    if !self.joined[last % nodes * width + on] {
                        continue;
                    }
                    for back in (0..width).filter(|back| fits[back * width + on]) {
                        let total = best[slots.at(joined - 1, last, back)] + weights[place % nodes];
                        let slot = slots.at(joined, place, on);
                        if total > best[slot] {
                            best[slot] = total;
                            from[slot] = u8::try_from(back).expect("K is at most 64");
                        }
                    }
                }
            }
        }
        let totals = best[slots.at(length - 1, 0, 0)..].iter().enumerate();
        let (end, _) = totals
            .filter(|(_, total)| **total > f64::NEG_INFINITY)
            .max_by(|one, other| one.1.total_cmp(other.1))?;
        let (mut place, mut on) = (end / width, end % width);
        let mut chain = Vec::with_capacity(length);
        for joined in (0..length).rev() {
            chain.push(Position(u32::try_from(place % nodes).expect("a position")));
            let back = usize::from(from[slots.at(joined, place, on)]);
            (place, on) = (place - on, back);
        }
        chain.reverse();
        Some(chain)
    }
}

/// Indices of the number of joined nodes, the last place and the hop to it.
struct ChainSlots {
    places: usize,
    width: usize,
}

impl ChainSlots {
    fn at(&self, joined: usize, place: usize, hop: usize) -> usize {
        (joined * self.places + place) * self.width + hop
    }
}
