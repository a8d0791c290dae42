// SPDX-License-Identifier: Apache-2.0
//! Collectives of jobs. Groups progress independently, but inter-group collectives wait for all groups.

use std::collections::BTreeMap;

use lightloom_collective::{self as collective, Directions, Hierarchical, Ring};
use lightloom_engine::capture::Watch;
use lightloom_engine::collective::{CollectiveStartError, HostRoutes, Placement, RouteShare};
use lightloom_engine::steady::{IslandEngine, Stage};
use lightloom_engine::{BatchId, LinkId, Route, VertexId};
use lightloom_units::id::GroupId;
use lightloom_units::{Picoseconds, SimTime};

use super::super::context::{Context, GroupMove, Notice, Owner};
use super::super::{RunLog, RunResult};
use super::progress::{Begun, Between, GroupProgress, Running, finish_step, note_start};
use super::{Waiting, WaitsFor, Workload, shortened};
use crate::scenario::{Collective, Effect, Prior};
use crate::substrate::{DCN, HBD, Members};

#[derive(Clone, Copy)]
enum BatchOwner {
    Group(usize),
    Between(usize),
}

pub(crate) struct JobGroups<'a> {
    program: Vec<(usize, &'a Collective)>,
    groups: Vec<GroupProgress>,
    between: Vec<Between>,
    parts: BTreeMap<BatchId, BatchOwner>,
    per_set: usize,
    done_steps: usize,
    awaited: Vec<usize>,
    me: Owner,
}

const RESUME: u64 = 0;
const WAKE: u64 = 1;

impl<'a> JobGroups<'a> {
    pub(crate) fn new(
        collectives: &'a [Collective],
        members: Vec<Members>,
        jobs: usize,
        per_set: usize,
        awaited: Vec<usize>,
    ) -> Self {
        let all = collectives.iter().enumerate();
        let program = all.flat_map(|(index, one)| (0..one.repeat).map(move |_| (index, one)));
        Self {
            program: program.collect(),
            groups: members.into_iter().map(GroupProgress::of).collect(),
            between: (0..jobs).map(|_| Between::default()).collect(),
            parts: BTreeMap::new(),
            per_set,
            done_steps: 0,
            awaited,
            me: Owner::Workload(0),
        }
    }

    fn length(&self) -> usize {
        self.program.len()
    }

    fn advance_group(&mut self, context: &mut Context<'_>, index: usize) -> RunResult {
        let group = &self.groups[index];
        if group.log.lost || group.stopped || group.running.is_some() {
            return Ok(());
        }
        let place = group.log.next;
        let next = self.program.get(place).filter(|(_, next)| !next.is_between_groups);
        let Some(&(number, collective)) = next else { return Ok(()) };
        // The group failed again before it resumed, so the next plan handles it.
        if !is_ready(context, &group.members) {
            return Ok(());
        }
        let ring = Ring {
            kind: collective.kind,
            ranks: group.members.ring.len(),
            size: collective.bytes,
            directions: collective.directions,
        };
        let Some(ways) = ways_past(context, &group.members) else { return Ok(()) };
        let placement = Placement::new(group.members.ring.clone(), Route::Within(HBD))
            .at(context.now())
            .in_priority(collective.priority)
            .along(ways);
        let schedule = ring.schedule().map_err(CollectiveStartError::from)?;
        let running = Running::of(vec![placement.start(&schedule, &mut context.engine)?]);
        self.own(context, &running, BatchOwner::Group(index));
        let ranks = u32::try_from(ring.ranks).expect("bounded");
        let begun = Begun { place, collective: number, ranks, now: context.now() };
        note_start(&mut self.groups[index].log.steps, &begun, &running);
        self.groups[index].running = Some(running);
        Ok(())
    }

    fn own(&mut self, context: &mut Context<'_>, running: &Running, part: BatchOwner) {
        for flows in &running.parts {
            context.own(flows.batch, self.me);
            self.parts.insert(flows.batch, part);
        }
    }

    fn advance_between(&mut self, context: &mut Context<'_>, job: usize) -> RunResult {
        if self.between[job].running.is_some() {
            return Ok(());
        }
        let mut mine: Vec<&GroupProgress> = self.groups.iter().collect();
        mine.retain(|group| group.log.job as usize == job && !group.log.lost);
        let Some(first) = mine.first() else { return Ok(()) };
        let place = first.log.next;
        let next = self.program.get(place).filter(|(_, next)| next.is_between_groups);
        let Some(&(number, collective)) = next else { return Ok(()) };
        if !mine.iter().all(|group: &&GroupProgress| {
            group.log.next == place && !group.stopped && group.running.is_none()
        }) {
            return Ok(());
        }
        let count = mine.len();
        let ranks: Vec<Vec<VertexId>> =
            mine.iter().map(|group| group.members.ranks.clone()).collect();
        let per_set = self.per_set;
        let started = context.add(|engine| start_between(engine, collective, &ranks, per_set));
        // A dark interface delays the collective until replanning or repair.
        let Some((running, _)) = started? else { return Ok(()) };
        self.own(context, &running, BatchOwner::Between(job));
        let ranks = u32::try_from(count).expect("bounded");
        let begun = Begun { place, collective: number, ranks, now: context.now() };
        note_start(&mut self.between[job].steps, &begun, &running);
        let alone = running.parts.is_empty();
        self.between[job].running = Some(running);
        let now = context.now();
        if alone { self.between_done(context, job, now) } else { Ok(()) }
    }

    fn group_done(&mut self, context: &mut Context<'_>, index: usize, at: SimTime) -> RunResult {
        self.done_steps += 1;
        let group = &mut self.groups[index];
        group.running = None;
        group.log.next += 1;
        finish_step(&mut group.log.steps, at);
        let job = group.log.job as usize;
        self.advance_group(context, index)?;
        self.advance_between(context, job)
    }

    fn between_done(&mut self, context: &mut Context<'_>, job: usize, at: SimTime) -> RunResult {
        let between = &mut self.between[job];
        between.running = None;
        finish_step(&mut between.steps, at);
        let passed = between.steps.last().expect("a completed collective was started").place + 1;
        between.passed = passed;
        for index in 0..self.groups.len() {
            let log = &mut self.groups[index].log;
            if log.job as usize == job && !log.lost {
                log.next = passed;
                self.done_steps += 1;
                self.advance_group(context, index)?;
            }
        }
        self.advance_between(context, job)
    }

    fn move_group(&mut self, context: &mut Context<'_>, moved: &GroupMove) -> RunResult {
        let index = moved.group;
        if moved.is_formed {
            self.take_up(moved);
        } else {
            self.stop(context, index);
        }
        let Some(members) = &moved.members else {
            self.groups[index].log.lost = true;
            self.groups[index].links.clear();
            return self.advance_between(context, self.groups[index].log.job as usize);
        };
        self.groups[index].members = members.clone();
        self.groups[index].log.lost = false;
        // Links come up at this instant, but routes use them only afterwards.
        let resumes = moved.resumes + Picoseconds(1);
        context.at(resumes, self.me, index as u64 * 2 + RESUME);
        Ok(())
    }

    fn take_up(&mut self, moved: &GroupMove) {
        let Some(members) = &moved.members else { return };
        if moved.group == self.groups.len() {
            self.groups.push(GroupProgress::of(members.clone()));
        }
        let passed = self.between[members.job as usize].passed;
        let group = &mut self.groups[moved.group];
        group.log.next = group.log.next.max(passed);
        group.stopped = true;
    }

    fn stop(&mut self, context: &mut Context<'_>, index: usize) {
        let length = self.length();
        let group = &mut self.groups[index];
        group.stopped = true;
        group.goes_down(context.now(), length);
        let running = group.running.take();
        let between = self.between[group.log.job as usize].running.take();
        for flows in running.into_iter().chain(between).flat_map(|given_up| given_up.parts) {
            self.parts.remove(&flows.batch);
            context.disown(flows.batch);
            flows.cancel(&mut context.engine);
        }
    }

    fn resume(&mut self, context: &mut Context<'_>, index: usize) -> RunResult {
        if self.groups[index].log.lost {
            return Ok(());
        }
        self.groups[index].links = self.links_of(context, index);
        self.groups[index].stopped = false;
        if is_ready(context, &self.groups[index].members) {
            self.groups[index].comes_back(context.now());
        }
        self.advance_group(context, index)?;
        self.advance_between(context, self.groups[index].log.job as usize)
    }

    /// Resumes a group that no plan has moved, once all its links have light.
    fn wake(&mut self, context: &mut Context<'_>, index: usize) -> RunResult {
        let group = &self.groups[index];
        let is_lit = group.links.iter().all(|link| context.carries(*link));
        if group.stopped || group.log.lost || !is_lit {
            return Ok(());
        }
        let job = group.log.job as usize;
        self.groups[index].comes_back(context.now());
        self.advance_group(context, index)?;
        self.advance_between(context, job)
    }

    fn links_of(&self, context: &Context<'_>, index: usize) -> Vec<LinkId> {
        let members = &self.groups[index].members;
        let mut links = ring_links(context, members).unwrap_or_default();
        if self.program.iter().any(|(_, collective)| collective.is_between_groups) {
            let network = &context.substrate.network;
            for member in &members.ring {
                let outgoing = network.outgoing(*member).iter().copied();
                links.extend(outgoing.filter(|link| network.link(*link).spec.plane == DCN));
            }
        }
        links.extend(links.clone().into_iter().map(LinkId::reverse));
        links.sort_unstable();
        links
    }

    fn reason(&self, context: &Context<'_>, index: usize) -> WaitsFor {
        let group = &self.groups[index];
        if group.stopped {
            return WaitsFor::Transceivers;
        }
        if let Some(link) = group.links.iter().find(|link| !context.carries(**link)) {
            let link = context.substrate.link_name(*link);
            return WaitsFor::DarkLink { link, control_is_gone: context.control_is_gone() };
        }
        let behind = self.groups.iter().enumerate().find(|(other, there)| {
            let log = &there.log;
            *other != index && log.job == group.log.job && !log.lost && log.next < group.log.next
        });
        match (&group.running, behind) {
            (Some(_), _) => WaitsFor::Packets,
            (None, _) if self.between[group.log.job as usize].running.is_some() => {
                WaitsFor::Packets
            }
            (None, Some((other, _))) => WaitsFor::Group(GroupId::from_index(other)),
            (None, None) => WaitsFor::Light,
        }
    }

    fn waits(&self, context: &Context<'_>, index: usize) -> Waiting {
        let group = &self.groups[index];
        let (_, collective) = self.program[group.log.next];
        let last = group.log.steps.last();
        let since = group.down_since.or_else(|| last.map(|step| step.end.unwrap_or(step.start)));
        let what = format!("g{index}, `{}`", collective.name);
        Waiting { what, since, waits_for: self.reason(context, index) }
    }

    fn announce(&mut self, context: &mut Context<'_>) {
        let Self { awaited, program, groups, .. } = self;
        awaited.retain(|number| {
            let past = program.iter().rposition(|(of, _)| of == number).map_or(0, |last| last + 1);
            let mut alive = groups.iter().filter(|group| !group.log.lost).peekable();
            let is_done = alive.peek().is_some() && alive.all(|group| group.log.next >= past);
            if is_done {
                context.post(Notice::Done(Prior::Collective(*number)));
            }
            !is_done
        });
    }

    fn unfinished(&self) -> impl Iterator<Item = usize> + '_ {
        let groups = self.groups.iter().enumerate();
        groups.filter_map(|(index, GroupProgress { log, .. })| {
            (!log.lost && !log.is_through(self.length())).then_some(index)
        })
    }
}

impl Workload for JobGroups<'_> {
    fn begin(&mut self, context: &mut Context<'_>, me: Owner) -> RunResult {
        self.me = me;
        for index in 0..self.groups.len() {
            self.groups[index].links = self.links_of(context, index);
            self.advance_group(context, index)?;
        }
        (0..self.between.len()).try_for_each(|job| self.advance_between(context, job))
    }

    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> RunResult {
        let index = (act / 2) as usize;
        if act % 2 == WAKE { self.wake(context, index) } else { self.resume(context, index) }
    }

    fn batch_done(&mut self, context: &mut Context<'_>, batch: BatchId, at: SimTime) -> RunResult {
        let Some(part) = self.parts.remove(&batch) else { return Ok(()) };
        let slot = match part {
            BatchOwner::Group(index) => &mut self.groups[index].running,
            BatchOwner::Between(job) => &mut self.between[job].running,
        };
        let running = slot.as_mut().expect("a completed collective was running");
        running.open -= 1;
        if running.open > 0 {
            return Ok(());
        }
        match part {
            BatchOwner::Group(index) => self.group_done(context, index, at)?,
            BatchOwner::Between(job) => self.between_done(context, job, at)?,
        }
        self.announce(context);
        Ok(())
    }

    fn hear(&mut self, context: &mut Context<'_>, notice: &Notice) -> RunResult {
        if let Notice::Groups(moves) = notice {
            moves.iter().try_for_each(|moved| self.move_group(context, moved))?;
            self.announce(context);
        }
        Ok(())
    }

    fn fault_began(
        &mut self,
        context: &mut Context<'_>,
        fault: usize,
        links: &[LinkId],
    ) -> RunResult {
        let interfaces = context.events[fault].interfaces();
        let (now, length) = (context.now(), self.length());
        let effect = context.events[fault].effect;
        let links = if let Effect::PauseStorm(_) = effect { &interfaces } else { links };
        let goes_dark = effect.goes_dark();
        for (index, group) in self.groups.iter_mut().enumerate() {
            let is_hit = links.iter().any(|link| group.links.binary_search(link).is_ok());
            if group.log.lost || !is_hit {
                continue;
            }
            context.faults[fault].groups.insert(index);
            if goes_dark {
                group.goes_down(now, length);
            }
        }
        Ok(())
    }

    fn fault_ended(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        let soon = context.now() + Picoseconds(1);
        for index in context.faults[fault].groups.clone() {
            context.at(soon, self.me, index as u64 * 2 + WAKE);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.unfinished().next().is_none()
    }

    fn waits_for_restoration(&self) -> bool {
        true
    }

    fn progress(&self, _: &Context<'_>) -> (f64, f64) {
        let all = (self.length() * self.groups.len()).max(1);
        (self.done_steps as f64, all as f64)
    }

    fn last_end(&self) -> Option<SimTime> {
        let steps = self.groups.iter().flat_map(|group| &group.log.steps);
        let between = self.between.iter().flat_map(|between| &between.steps);
        steps.chain(between).filter_map(|step| step.end).max()
    }

    fn waiting(&self, context: &Context<'_>) -> Vec<Waiting> {
        let all = self.unfinished().map(|index| self.waits(context, index)).collect();
        shortened("groups", all)
    }

    fn finish(mut self: Box<Self>, _: &mut Context<'_>, log: &mut RunLog) {
        log.program_length = self.length();
        for group in &mut self.groups {
            group.comes_back(log.ended);
        }
        log.groups = self.groups.into_iter().map(|group| group.log).collect();
        log.between = self.between.into_iter().map(|between| between.steps).collect();
    }
}

/// Sets of `per_set` groups (the nodes under a top-of-rack switch) first reduce internally and then
/// with each other. A flat ring is used if there is only one set or any set is incomplete.
fn start_between(
    engine: &mut IslandEngine<Watch>,
    collective: &Collective,
    groups: &[Vec<VertexId>],
    per_set: usize,
) -> Result<Running, CollectiveStartError> {
    let (now, size) = (engine.now(), collective.bytes);
    let engine = engine.engine_mut();
    let ranks = groups.first().map_or(0, Vec::len);
    let sets_fit = per_set > 1 && groups.len().is_multiple_of(per_set) && groups.len() > per_set;
    let mut parts = Vec::with_capacity(ranks);
    for rank in 0..ranks {
        let peers: Vec<VertexId> = groups.iter().map(|group| group[rank]).collect();
        let schedule = if sets_fit {
            Hierarchical { groups: vec![per_set; peers.len() / per_set], size }.schedule()?
        } else {
            let (kind, directions) = (collective::CollectiveKind::AllReduce, Directions::Both);
            Ring { kind, ranks: peers.len(), size, directions }.schedule()?
        };
        let placement =
            Placement::new(peers, Route::Within(DCN)).at(now).in_priority(collective.priority);
        parts.push(placement.start(&schedule, engine)?);
    }
    Ok(Running::of(parts))
}

fn is_ready(context: &Context<'_>, members: &Members) -> bool {
    context.is_calm() || ring_links(context, members).is_some()
}

/// Returns one link per hop, or two if the hop crosses a switch. `None` while any of them is dark.
pub(super) fn ring_links(context: &Context<'_>, members: &Members) -> Option<Vec<LinkId>> {
    let light = &members.light;
    let hops = if members.is_closed { light.len() } else { light.len() - 1 };
    let hops: Option<Vec<Vec<LinkId>>> =
        (0..hops).map(|at| lit_links(context, light[at], light[(at + 1) % light.len()])).collect();
    hops.map(|hops| hops.concat())
}

/// Returns routes in both directions around a ring. `None` while any link is dark.
pub(super) fn ways_past(context: &Context<'_>, members: &Members) -> Option<HostRoutes> {
    let Members { ring, light, .. } = members;
    if ring.len() == light.len() {
        return Some(HostRoutes::new());
    }
    let links = ring_links(context, members)?;
    let ranks: Vec<usize> = (0..light.len()).filter(|at| ring.contains(&light[*at])).collect();
    Some(ways_along(light, &ranks, |at| links[at]))
}

/// Positions are numbered in the direction of the light, and `link` returns the link to the next position.
pub(super) fn ways_along(
    light: &[VertexId],
    ranks: &[usize],
    link: impl Fn(usize) -> LinkId,
) -> HostRoutes {
    let mut ways = HostRoutes::new();
    for (place, from) in ranks.iter().enumerate() {
        let to = ranks[(place + 1) % ranks.len()];
        let hops = (to + light.len() - from) % light.len();
        if hops > 1 {
            let there: Vec<LinkId> =
                (0..hops).map(|hop| link((from + hop) % light.len())).collect();
            let back = there.iter().rev().map(|link| link.reverse()).collect();
            ways.insert((light[*from], light[to]), vec![RouteShare::whole(Route::Links(there))]);
            ways.insert((light[to], light[*from]), vec![RouteShare::whole(Route::Links(back))]);
        }
    }
    ways
}

fn lit_links(context: &Context<'_>, from: VertexId, to: VertexId) -> Option<Vec<LinkId>> {
    if let Some(link) = lit_link(context, from, |end| end == to) {
        return Some(vec![link]);
    }
    let up = lit_link(context, from, |end| context.substrate.place_of(end).is_none())?;
    let switch = context.substrate.network.link(up).to;
    Some(vec![up, lit_link(context, switch, |end| end == to)?])
}

fn lit_link(
    context: &Context<'_>,
    from: VertexId,
    is_end: impl Fn(VertexId) -> bool,
) -> Option<LinkId> {
    let network = &context.substrate.network;
    network.outgoing(from).iter().copied().find(|link| {
        let ends = network.link(*link);
        ends.spec.plane == HBD && is_end(ends.to) && context.carries(*link)
    })
}
