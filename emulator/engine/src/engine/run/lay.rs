// SPDX-License-Identifier: Apache-2.0
//! Writes flows' paths to the route table.
//!
//! A rerouted flow gets a new region, because packets in flight keep the old one. When the table has grown, the engine
//! scans the packets in flight, and flows then reuse regions that no packet needs.

use lightloom_units::SimTime;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Engine;
use super::flows::FlowState;
use crate::engine::control::Act;
use crate::engine::flow::FlowId;
use crate::engine::network::{LinkId, VertexId};
use crate::engine::packet::{MOST_CURSORS, Packet};
use crate::engine::probe::Probe;
use crate::engine::route::{Choice, FlowName, Paths, Route, RouteError};
use crate::engine::routes::{Routes, words_of_choice, words_of_way};
use crate::transport::Balance;

/// Assumed delay until adaptive switches avoid a port behind which another switch has no link left.
/// Switches for GPU clusters notify each other in hardware (NVIDIA: adaptive routing notification).
pub(super) const NEWS_PS: u64 = 10_000_000;

/// Packets in flight are scanned after this many written words plus a quarter of the table.
const BETWEEN_LOOKS: u64 = 1 << 16;

#[derive(Clone, Debug)]
pub(super) struct SpareRegions {
    of: FxHashMap<FlowId, Vec<u32>>,
    written: u64,
    between_looks: u64,
}

impl Default for SpareRegions {
    fn default() -> Self {
        Self { of: FxHashMap::default(), written: 0, between_looks: BETWEEN_LOOKS }
    }
}

impl<P: Probe> Engine<P> {
    pub(super) fn choices_of(
        &mut self,
        name: FlowName,
        route: &Route,
        paths: &Paths,
    ) -> Vec<[Vec<Choice>; 2]> {
        let is_adaptive = self.settings.transport.balance == Balance::Adaptive;
        if !is_adaptive || route.plane().is_none() || paths[0].len() == 1 {
            return Vec::new();
        }
        let of_path = |path: &[LinkId]| {
            let (first, last) = (path[0], path[path.len() - 1].reverse());
            [(name, first), (name.back(), last)]
                .map(|(name, first)| self.router.choices(&self.network, name, (route, first)))
        };
        paths.iter().map(of_path).collect()
    }

    pub(super) fn region_for(
        &mut self,
        flow: FlowId,
        paths: &Paths,
        choices: &[[Vec<Choice>; 2]],
    ) -> Result<u32, RouteError> {
        let words = self.words_for(paths, choices);
        let table = u64::from(self.shared.routes.words());
        let is_led_anew = flow.index() < self.flows.len();
        let mut spare = self.spare_region(flow, words);
        let is_worth_it = self.spare.written > table / 4 + self.spare.between_looks;
        if is_led_anew && spare.is_none() && is_worth_it {
            self.look_for_spare_regions();
            spare = self.spare_region(flow, words);
        }
        self.spare.written += words;
        if let Some(region) = spare {
            return Ok(region);
        }
        if table + words > u64::from(MOST_CURSORS) {
            return Err(RouteError::TableFull { words: table + words });
        }
        self.ways.push((table as u32, flow));
        self.shared.routes.extend(words as u32);
        Ok(self.ways.len() as u32 - 1)
    }

    fn words_for(&self, paths: &Paths, choices: &[[Vec<Choice>; 2]]) -> u64 {
        let by_choice = |[data, answers]: &[Vec<Choice>; 2]| {
            let choices = data.iter().chain(answers);
            2 * words_of_way(0) + 2 + choices.map(|at| words_of_choice(at.links.len())).sum::<u64>()
        };
        if !choices.is_empty() {
            return choices.iter().map(by_choice).sum();
        }
        let there: u64 = paths.iter().map(|path| words_of_way(path.len())).sum();
        let by_path = self.settings.transport.answers_by_path();
        there + if by_path { there } else { words_of_way(paths[0].len()) }
    }

    fn size_of(&self, region: u32) -> u64 {
        let next = self.ways.get(region as usize + 1).map(|(begin, _)| *begin);
        let end = next.unwrap_or_else(|| self.shared.routes.words());
        u64::from(end - self.ways[region as usize].0)
    }

    fn spare_region(&mut self, flow: FlowId, words: u64) -> Option<u32> {
        let spare = self.spare.of.get(&flow)?;
        let place = spare.iter().position(|region| self.size_of(*region) >= words)?;
        self.spare.of.get_mut(&flow).map(|spare| spare.swap_remove(place))
    }

    /// Regions stay with their flow, so that cursors in probes still identify the flow.
    fn look_for_spare_regions(&mut self) {
        let mut used = vec![false; self.ways.len()];
        self.flows.iter().for_each(|flow| used[flow.region as usize] = true);
        let ways = &self.ways;
        let mut note = |cursor: u32| {
            let region = ways.partition_point(|(begin, _)| *begin <= cursor);
            used[region - 1] = true;
        };
        for shard in &self.shards {
            shard.receivers.iter().for_each(|receiver| note(receiver.cursor));
            shard.see_in_flight(&mut |packet: &Packet| {
                if !packet.is_pause_frame() {
                    note(packet.cursor());
                }
            });
        }
        self.spare.of.clear();
        for (region, (_, flow)) in self.ways.iter().enumerate().filter(|(at, _)| !used[*at]) {
            self.spare.of.entry(*flow).or_default().push(region as u32);
        }
        self.spare.written = 0;
    }

    /// Also writes the reverse of the first path or of every path. Returns where paths and reverse paths start.
    pub(super) fn lay_routes(
        &mut self,
        (paths, choices, region): (&Paths, &[[Vec<Choice>; 2]], u32),
        ends: [u32; 2],
    ) -> (Vec<u32>, u32) {
        self.shared.routes.write_from(self.ways[region as usize].0);
        let [sender, receiver] = ends;
        if !choices.is_empty() {
            let laid =
                paths.iter().zip(choices).map(|(path, at)| self.lay_choices((path, at), ends));
            let laid: Vec<(u32, u32)> = laid.collect();
            return (laid.iter().map(|(begin, _)| *begin).collect(), laid[0].1);
        }
        let by_path = self.settings.transport.answers_by_path();
        let mut answer = None;
        let lay = |path: &[LinkId]| {
            let begin = self.lay_route(path.iter().copied(), receiver);
            // Store the reverse path after the forward one, so that acknowledgements hit warm cache lines.
            if by_path || answer.is_none() {
                let back = self.lay_route(path.iter().rev().map(|link| link.reverse()), sender);
                answer.get_or_insert(back);
            }
            begin
        };
        let data = paths.iter().map(lay).collect();
        (data, answer.expect("every flow has a path"))
    }

    fn lay_choices(
        &mut self,
        (path, [data, answers]): (&[LinkId], &[Vec<Choice>; 2]),
        [sender, receiver]: [u32; 2],
    ) -> (u32, u32) {
        self.shared.chooses = true;
        let (first, last) = (path[0], path[path.len() - 1].reverse());
        let answered = self.lay_route(std::iter::empty(), sender);
        let mut behind = Behind::new(answered);
        self.lay_later(&answers[1..], &mut behind);
        // An acknowledgement starts where the data's path ended, whichever path the data took.
        let delivery = self.lay_route(std::iter::empty(), receiver);
        let answer = self.shared.routes.at();
        debug_assert_eq!(answer, Routes::answer(delivery));
        self.lay_first((last, &answers[0]), &behind);
        let mut behind = Behind::new(delivery);
        self.lay_later(&data[1..], &mut behind);
        let begin = self.shared.routes.at();
        self.lay_first((first, &data[0]), &behind);
        (begin, answer)
    }

    /// Choices nearest to the destination come first, so that each refers to choices already written.
    fn lay_later(&mut self, choices: &[Choice], behind: &mut Behind) {
        for choice in choices.iter().rev() {
            let begin = self.shared.routes.at();
            self.lay_choice(choice, behind);
            behind.begins.insert(choice.at, begin);
            if !choice.links.iter().any(|link: &LinkId| {
                self.router.is_up(*link) && !behind.nowhere.contains(&self.network.link(*link).to)
            }) {
                behind.nowhere.insert(choice.at);
            }
        }
    }

    fn lay_first(&mut self, (first, choice): (LinkId, &Choice), behind: &Behind) {
        self.shared.routes.push(self.layout.places[first.index()]);
        self.lay_choice(choice, behind);
    }

    fn lay_choice(&mut self, choice: &Choice, behind: &Behind) {
        let routes = &mut self.shared.routes;
        routes.push_choice(choice.links.len(), choice.salt);
        for link in &choice.links {
            let next = self.network.link(*link).to;
            let rest = behind.begins.get(&next).copied().unwrap_or(behind.end);
            let leads_on = !behind.nowhere.contains(&next);
            routes.push_option(self.layout.places[link.index()], leads_on, rest);
        }
    }

    fn lay_route(&mut self, links: impl Iterator<Item = LinkId>, end: u32) -> u32 {
        let routes = &mut self.shared.routes;
        let begin = routes.at();
        links.for_each(|link| routes.push(self.layout.places[link.index()]));
        routes.push_end(end);
        begin
    }

    pub(super) fn plan_news(&mut self) {
        if self.shared.chooses {
            self.control.plan(SimTime(self.now.0 + NEWS_PS), Act::LinkNews);
        }
    }

    pub(super) fn hear_news(&mut self) {
        for flow in 0..self.flows.len() {
            let state: &mut FlowState = &mut self.flows[flow];
            // Acknowledgements of finished flows may still be in flight.
            if state.choices.is_empty() {
                continue;
            }
            let ends = [state.sender.index, state.receiver.index];
            let (paths, choices) =
                (std::mem::take(&mut state.paths), std::mem::take(&mut state.choices));
            let region = state.region;
            self.lay_routes((&paths, &choices, region), ends);
            let state = &mut self.flows[flow];
            (state.paths, state.choices) = (paths, choices);
        }
    }
}

struct Behind {
    begins: FxHashMap<VertexId, u32>,
    nowhere: FxHashSet<VertexId>,
    end: u32,
}

impl Behind {
    fn new(end: u32) -> Self {
        Self { begins: FxHashMap::default(), nowhere: FxHashSet::default(), end }
    }
}

#[cfg(test)]
mod tests {
    use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

    use super::*;
    use crate::engine::{EngineSettings, FlowSpec, LinkChange, LinkSpec, NetworkBuilder};
    use crate::topology::LeafSpine;
    use crate::transport::{LossRecovery, Reordering, Transport};

    fn led_anew(between_looks: u64) -> (u32, String) {
        let link = LinkSpec::new(BitsPerSecond::from_gbps(100), Picoseconds::from_micros(1))
            .with_queue(Bytes(1 << 20), Bytes(1 << 17));
        let shape = LeafSpine {
            leaves: 2,
            spines: 4,
            hosts_per_leaf: 4,
            host_link: link,
            spine_link: link,
        };
        let mut builder = NetworkBuilder::new();
        let hosts = shape.build_into(&mut builder);
        let transport = Transport {
            balance: Balance::Spray { paths: 8 },
            recovery: LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(64) },
            ..Transport::default()
        };
        let settings = EngineSettings { transport, ..EngineSettings::default() };
        let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
        engine.spare.between_looks = between_looks;
        let flows: Vec<FlowId> = (0..4)
            .map(|at| engine.add_flow(FlowSpec::new(hosts[at], hosts[at + 4], Bytes(4 << 20))))
            .collect::<Result<_, _>>()
            .unwrap();
        let cable = engine.paths(flows[0])[0][1];
        for round in 0..200_u64 {
            for (state, change) in [LinkChange::Down, LinkChange::Up].into_iter().enumerate() {
                let at = SimTime((2 * round + state as u64 + 1) * 700_000);
                engine.change_link(at, cable, change);
                engine.run(at);
                flows.iter().for_each(|flow| engine.reroute_flow(*flow).unwrap());
            }
        }
        engine.run(SimTime(10_000_000_000));
        let records: Vec<_> = engine.records().collect();
        assert!(records.iter().all(|record| record.end.is_some()));
        (engine.shared.routes.words(), format!("{records:?} {:?}", engine.packets()))
    }

    /// Regression test: after 40 repairs with 8,192 sprayed flows, the table was full and the run panicked.
    #[test]
    fn reuses_path_regions_without_packets() {
        let (always, grown) = (led_anew(0), led_anew(u64::MAX / 2));
        assert_eq!(always.1, grown.1, "the storage order of paths does not affect the result");
        let once = grown.0 / 401;
        assert!(
            always.0 < 40 * once,
            "{} words used, but all flows together need {once}",
            always.0
        );
    }
}
