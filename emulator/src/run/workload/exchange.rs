// SPDX-License-Identifier: Apache-2.0
//! All-to-all by binary exchange between hosts that have one circuit at a time.
//!
//! ```text
//!   step 0: i ↔ i xor 1   ──dark──▶   step 1: i ↔ i xor 2   ──dark──▶   step 2: i ↔ i xor 4 …
//! ```
//! This is our interpretation of a sketch in the InfiniteHBD paper's discussion of expert
//! parallelism. In step `k`, a host exchanges half of its data with the host whose number differs
//! in bit `k`, over a fibre that spans `2^k` hosts. Both hosts then switch to the fibres of their
//! next partners. A pair starts as soon as both hosts are ready, so pairs progress independently.

use lightloom_collective::{CollectiveError, Exchange};
use lightloom_engine::collective::CollectiveStartError;
use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, FlowSpec, LinkId, Route, VertexId, message_time};
use lightloom_units::{Bytes, Picoseconds, SimTime};

use super::super::{Context, RunError};
use super::jobs::{Job, JobTurn, Jobs, Pair, Repetition};
use crate::scenario::{Effect, Pattern, Traffic};

#[derive(Debug)]
pub(super) struct HostCircuits {
    hosts: Vec<VertexId>,
    fibres: Vec<Vec<LinkId>>,
    pub(super) switching: Picoseconds,
    /// Step of each host's current fibre. `None` while the host is dark.
    holds: Vec<Option<usize>>,
    wants: Vec<Option<usize>>,
    stuck: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextTurn {
    Dark { host: usize, step: usize },
    Joined { host: usize, step: usize },
}

impl HostCircuits {
    pub(super) fn of(context: &mut Context<'_>) -> Option<Self> {
        let (fibres, switching) = context.substrate.exchange.clone()?;
        let hosts = context.substrate.hosts.clone();
        for fibre in fibres.iter().skip(1).flatten() {
            for link in [*fibre, fibre.reverse()] {
                context.light(link, false);
            }
        }
        let count = hosts.len();
        let (holds, wants, stuck) = (vec![Some(0); count], vec![None; count], vec![0; count]);
        Some(Self { hosts, fibres, switching, holds, wants, stuck })
    }

    pub(super) fn steps(&self) -> usize {
        self.fibres.len()
    }

    pub(super) fn count(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn fibre(&self, host: usize, step: usize) -> LinkId {
        let lower = host & !(1 << step);
        // The lower host of a pair has a zero in the bit of the step, so pair indices omit this bit.
        let (above, below) = (lower >> (step + 1), lower & ((1 << step) - 1));
        self.fibres[step][above << step | below]
    }

    fn lights(&self, link: LinkId) -> bool {
        let cable = LinkId(link.0 & !1);
        let found = self.fibres.iter().enumerate().find_map(|(step, fibres)| {
            fibres.iter().position(|fibre| *fibre == cable).map(|pair| (step, pair))
        });
        let Some((step, pair)) = found else { return true };
        let (above, below) = (pair >> step, pair & ((1 << step) - 1));
        let host = above << (step + 1) | below;
        [host, host | 1 << step].iter().all(|host| self.holds[*host] == Some(step))
    }

    pub(super) fn want(&mut self, host: usize, step: usize) -> Option<NextTurn> {
        self.wants[host] = Some(step);
        match self.holds[host] {
            Some(held) if held == step => self.joined(host, step),
            Some(_) if self.stuck[host] == 0 => {
                self.holds[host] = None;
                Some(NextTurn::Dark { host, step })
            }
            Some(_) | None => None,
        }
    }

    pub(super) fn set_stuck(&mut self, host: usize, stuck: bool) -> Option<NextTurn> {
        let count = &mut self.stuck[host];
        *count = if stuck { *count + 1 } else { *count - 1 };
        let wanted = self.wants[host].filter(|_| *count == 0);
        wanted.and_then(|step| self.want(host, step))
    }

    pub(super) fn come(&mut self, host: usize, step: usize) -> Option<NextTurn> {
        self.holds[host] = Some(step);
        self.joined(host, step)
    }

    fn joined(&mut self, host: usize, step: usize) -> Option<NextTurn> {
        let pair = [host & !(1 << step), host | 1 << step];
        let is_ready = |h: &usize| self.holds[*h] == Some(step) && self.wants[*h] == Some(step);
        if !pair.iter().all(is_ready) {
            return None;
        }
        pair.iter().for_each(|host| self.wants[*host] = None);
        Some(NextTurn::Joined { host: pair[0], step })
    }

    fn exchange<S: Stage>(
        &self,
        engine: &mut S,
        (host, step): (usize, usize),
        size: Bytes,
        priority: u8,
    ) -> Result<BatchId, CollectiveStartError> {
        let batch = engine.add_batch();
        let fibre = self.fibre(host, step);
        let ends = (self.hosts[host], self.hosts[host | 1 << step]);
        for (source, destination, link) in
            [(ends.0, ends.1, fibre), (ends.1, ends.0, fibre.reverse())]
        {
            let flow =
                FlowSpec { priority, ..FlowSpec::new(source, destination, self.half(size)?) };
            let flow = flow.at(engine.now()).over(Route::Links(vec![link])).in_batch(batch);
            engine.add_flow(flow)?;
        }
        Ok(batch)
    }

    pub(super) fn half(&self, size: Bytes) -> Result<Bytes, CollectiveError> {
        let steps = Exchange::Binary.steps(self.count())?;
        let pieces = steps.first().map_or(0, |step| step.ways.len()) as u64;
        Ok(Bytes(size.0.div_ceil(self.count() as u64)) * pieces)
    }
}

impl<'a> Jobs<'a> {
    pub(super) fn begin_exchange(
        &mut self,
        context: &mut Context<'_>,
        place: usize,
        mut step: Repetition,
    ) -> Result<(), RunError> {
        let size = self.traffic[place].bytes;
        let circuits = self.circuits.as_ref().expect("hosts in an exchange have circuits");
        let (count, steps) = (circuits.count(), circuits.steps());
        let half = circuits.half(size).unwrap_or(size);
        let fibre = [circuits.fibre(0, 0)];
        let engine = &context.engine;
        let once = message_time(engine.network(), engine.settings(), &fibre, half);
        step.ideal = once * steps as u64 + circuits.switching * (steps as u64 - 1);
        self.enter(place, step, count / 2 * steps);
        (0..count).try_for_each(|host| self.want(context, host, 0))
    }

    fn want(
        &mut self,
        context: &mut Context<'_>,
        host: usize,
        step: usize,
    ) -> Result<(), RunError> {
        let next = self.circuits.as_mut().and_then(|circuits| circuits.want(host, step));
        self.follow(context, next)
    }

    pub(super) fn come(
        &mut self,
        context: &mut Context<'_>,
        host: usize,
        step: usize,
    ) -> Result<(), RunError> {
        let next = self.circuits.as_mut().and_then(|circuits| circuits.come(host, step));
        self.follow(context, next)
    }

    fn follow(
        &mut self,
        context: &mut Context<'_>,
        next: Option<NextTurn>,
    ) -> Result<(), RunError> {
        let Some(circuits) = &self.circuits else { return Ok(()) };
        match next {
            None => Ok(()),
            Some(NextTurn::Dark { host, step }) => {
                let come = context.now() + circuits.switching;
                self.relight(context);
                self.plan(context, come, JobTurn::Come(host, step));
                Ok(())
            }
            Some(NextTurn::Joined { host, step }) => self.join(context, host, step),
        }
    }

    fn join(
        &mut self,
        context: &mut Context<'_>,
        host: usize,
        step: usize,
    ) -> Result<(), RunError> {
        let all: &'a [Traffic] = self.traffic;
        let is_running = |(at, job): &(usize, &Job)| {
            let is_exchange = matches!(all[*at].run, Pattern::CircuitExchange);
            is_exchange && job.running && job.open > 0
        };
        let running = self.jobs.iter().enumerate().find(is_running);
        let Some((place, _)) = running else { return Ok(()) };
        let Some(circuits) = &self.circuits else { return Ok(()) };
        let traffic = &all[place];
        let first = context.engine.flow_count() as u32;
        let pair = (host, step);
        let batch = circuits.exchange(&mut context.engine, pair, traffic.bytes, traffic.priority);
        let workload = || traffic.name.clone();
        let batch = batch.map_err(|error| RunError::Workload { workload: workload(), error })?;
        let flows = first..context.engine.flow_count() as u32;
        context.note_flows(flows.clone());
        context.own(batch, self.me);
        self.pairs.insert(batch, Pair(place, host, step));
        if let Some(now) = self.jobs[place].steps.last_mut() {
            now.flows.push(flows);
        }
        self.relight(context);
        Ok(())
    }

    fn relight(&self, context: &mut Context<'_>) {
        let Some(circuits) = &self.circuits else { return };
        let fibres = circuits.fibres.iter().flatten();
        for link in fibres.flat_map(|fibre| [*fibre, fibre.reverse()]) {
            let is_lit = circuits.lights(link);
            if context.is_lit(link) != is_lit {
                context.light(link, is_lit);
            }
        }
    }

    pub(super) fn pair_done(
        &mut self,
        context: &mut Context<'_>,
        Pair(place, host, step): Pair,
        at: SimTime,
    ) -> Result<(), RunError> {
        let steps = self.circuits.as_ref().map_or(0, HostCircuits::steps);
        for host in [host, host | 1 << step] {
            if step + 1 < steps {
                self.want(context, host, step + 1)?;
            }
        }
        self.part_done(place, at, context.now());
        Ok(())
    }

    pub(super) fn stick(
        &mut self,
        context: &mut Context<'_>,
        fault: usize,
        stuck: bool,
    ) -> Result<(), RunError> {
        let event = &context.events[fault];
        if event.effect != Effect::Stuck || self.circuits.is_none() {
            return Ok(());
        }
        for host in event.parts.iter().flat_map(|part| &part.hosts) {
            let set = |circuits: &mut HostCircuits| circuits.set_stuck(*host as usize, stuck);
            let next = self.circuits.as_mut().and_then(set);
            self.follow(context, next)?;
        }
        Ok(())
    }
}
