//! Groups walk through the collectives of their job: what begins when, and what follows what ends.

use lightloom_engine::collective::StartError;
use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, EngineError, FlowId, VertexId};
use lightloom_planner::khop::RingGroup;
use lightloom_units::SimTime;
use lightloom_units::id::GpuId;

use super::Story;
use super::lane::{Begun, finish_step, note_start};
use crate::scenario::collectives::{self, Running};
use crate::scenario::{Collective, ScenarioError};

#[derive(Clone, Copy)]
pub(super) enum Owner {
    Lane(usize),
    Between(usize),
}

impl<'a> Story<'a> {
    /// The collectives of a job in order, repetitions unrolled.
    pub(super) fn program(&self) -> impl Iterator<Item = (usize, &'a Collective)> + 'a {
        let collectives = self.scenario.collectives.iter().enumerate();
        collectives.flat_map(|(index, collective)| {
            (0..collective.repeat).map(move |_| (index, collective))
        })
    }

    pub(super) fn begin(&mut self) -> Result<(), ScenarioError> {
        for lane in 0..self.lanes.len() {
            self.lanes[lane].links = self.links_of_lane(lane);
            self.advance_lane(lane)?;
        }
        for job in 0..self.between.len() {
            self.advance_between(job)?;
        }
        self.plan_turns();
        Ok(())
    }

    /// Begins (or begins again) the next collective of a lane, if it may.
    pub(super) fn advance_lane(&mut self, index: usize) -> Result<(), ScenarioError> {
        let lane = &self.lanes[index];
        if lane.lost || lane.stopped || lane.running.is_some() {
            return Ok(());
        }
        let place = lane.next;
        let next = self.program().nth(place);
        let Some((number, collective)) = next.filter(|(_, next)| !next.kind.is_between_groups())
        else {
            return Ok(());
        };
        let group = self.group_of(index);
        // Struck again while it was being healed: the next plan will see to it.
        if !self.is_ready(&group) {
            return Ok(());
        }
        let ring = self.layout.ring(&self.fabric.hbd, &group);
        let ranks = u32::try_from(ring.len()).expect("bounded");
        let members = ring.iter().map(|gpu| self.installed.vertex(*gpu)).collect();
        let running = collectives::start_ring(&mut self.engine, collective, members)?;
        self.own(&running, Owner::Lane(index));
        let begun = Begun { place, collective: number, ranks, now: self.engine.now() };
        note_start(&mut self.lanes[index].steps, &begun, &running);
        self.lanes[index].running = Some(running);
        Ok(())
    }

    fn own(&mut self, running: &Running, owner: Owner) {
        for part in &running.parts {
            self.owner.insert(part.batch, owner);
        }
    }

    pub(super) fn group_of(&self, lane: usize) -> RingGroup {
        let lane = &self.lanes[lane];
        let is_it = |group: &&RingGroup| group.job == Some(lane.job) && group.ranks == lane.ranks;
        // Groups inside one node share their node: take the one with this lane's place among them.
        let same: Vec<&RingGroup> = self.layout.groups.iter().filter(is_it).collect();
        let twins =
            self.lanes.iter().filter(|other| other.job == lane.job && other.ranks == lane.ranks);
        let place = twins.take_while(|other| !std::ptr::eq(*other, lane)).count();
        same[place.min(same.len() - 1)].clone()
    }

    /// Begins the next collective between the groups of a job once all its lanes have come to it.
    pub(super) fn advance_between(&mut self, job: usize) -> Result<(), ScenarioError> {
        if self.between[job].running.is_some() {
            return Ok(());
        }
        let mine: Vec<usize> = (0..self.lanes.len())
            .filter(|lane| self.lanes[*lane].job as usize == job && !self.lanes[*lane].lost)
            .collect();
        let Some(&first) = mine.first() else { return Ok(()) };
        let place = self.lanes[first].next;
        let next = self.program().nth(place).filter(|(_, next)| next.kind.is_between_groups());
        let Some((number, collective)) = next else { return Ok(()) };
        let has_come = |lane: &usize| {
            let lane = &self.lanes[*lane];
            lane.next == place && !lane.stopped && lane.running.is_none()
        };
        if !mine.iter().all(has_come) {
            return Ok(());
        }
        let ranks = self.ranks_of(&mine);
        let sets = self.fabric.dcn.nodes_per_tor() as usize;
        let first = self.engine.flow_count();
        let begun = collectives::start_between(self.engine.engine_mut(), collective, &ranks, sets);
        let running = match begun {
            Ok(running) => running,
            // An interface is dark: a plan or a repair lets it begin.
            Err(StartError::Flow(EngineError::Route(_))) => {
                let flows = first..self.engine.flow_count();
                flows.for_each(|flow| self.engine.cancel_flow(FlowId::from_index(flow)));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.own(&running, Owner::Between(job));
        let ranks = u32::try_from(mine.len()).expect("bounded");
        let begun = Begun { place, collective: number, ranks, now: self.engine.now() };
        note_start(&mut self.between[job].steps, &begun, &running);
        let alone = running.parts.is_empty();
        self.between[job].running = Some(running);
        if alone { self.between_done(job, self.engine.now()) } else { Ok(()) }
    }

    /// For each lane, its GPUs as vertices in rank order.
    fn ranks_of(&self, lanes: &[usize]) -> Vec<Vec<VertexId>> {
        let gpus = self.fabric.hbd.gpus_per_node();
        let of_group = |lane: &usize| {
            let group = self.group_of(*lane);
            let range = group.segment.map_or(0..gpus, |s| s.first..s.first + s.gpus);
            let ranks = group
                .ranks
                .iter()
                .flat_map(|node| range.clone().map(|gpu| GpuId { node: *node, gpu: gpu % gpus }));
            ranks.map(|gpu| self.installed.vertex(gpu)).collect()
        };
        lanes.iter().map(of_group).collect()
    }

    pub(super) fn done(&mut self, batch: BatchId, at: SimTime) -> Result<(), ScenarioError> {
        let Some(owner) = self.owner.remove(&batch) else {
            self.jobs.batch_done(batch, at, self.engine.now());
            self.plan_turns();
            return Ok(());
        };
        let slot = match owner {
            Owner::Lane(lane) => &mut self.lanes[lane].running,
            Owner::Between(job) => &mut self.between[job].running,
        };
        let running = slot.as_mut().expect("what ends was running");
        running.open -= 1;
        if running.open > 0 {
            return Ok(());
        }
        match owner {
            Owner::Lane(lane) => self.lane_done(lane, at),
            Owner::Between(job) => self.between_done(job, at),
        }
    }

    fn lane_done(&mut self, index: usize, at: SimTime) -> Result<(), ScenarioError> {
        self.done_steps += 1;
        let lane = &mut self.lanes[index];
        lane.running = None;
        lane.next += 1;
        finish_step(&mut lane.steps, at);
        let job = lane.job as usize;
        self.advance_lane(index)?;
        self.advance_between(job)
    }

    fn between_done(&mut self, job: usize, at: SimTime) -> Result<(), ScenarioError> {
        let between = &mut self.between[job];
        between.running = None;
        finish_step(&mut between.steps, at);
        let passed = between.steps.last().expect("what ends has begun").place + 1;
        between.passed = passed;
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].job as usize == job && !self.lanes[lane].lost {
                self.lanes[lane].next = passed;
                self.done_steps += 1;
                self.advance_lane(lane)?;
            }
        }
        self.advance_between(job)
    }
}
