// SPDX-License-Identifier: Apache-2.0
//! Writes flows' paths to the route table.
//!
//! A rerouted flow gets a new region, because packets in flight keep the old one. When the table has grown, the engine
//! scans the packets in flight, and flows then reuse regions that no packet needs.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::engine::flow::FlowId;
use crate::engine::network::{LinkId, Network, VertexId};
use crate::engine::packet::MOST_CURSORS;
use crate::engine::route::{Choice, Paths, RouteError, Router};
use crate::engine::routes::{Routes, words_of_choice, words_of_way};

/// Assumed delay until adaptive switches avoid a port behind which another switch has no link left.
/// Switches for GPU clusters notify each other in hardware (NVIDIA: adaptive routing notification).
pub(super) const NEWS_PS: u64 = 10_000_000;

/// Packets in flight are scanned after this many written words plus a quarter of the table.
const BETWEEN_LOOKS: u64 = 1 << 16;

/// The paths of a flow, the choices along them, and the region where they are written.
#[derive(Clone, Copy)]
pub(super) struct FlowWays<'w> {
    pub(super) paths: &'w Paths,
    pub(super) choices: &'w [[Vec<Choice>; 2]],
    pub(super) region: u32,
}

/// The regions of the route table and their flows.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    /// In ascending order of their starts.
    all: Vec<(u32, FlowId)>,
    spare: FxHashMap<FlowId, Vec<u32>>,
    written: u64,
    between_looks: u64,
}

impl Default for Regions {
    fn default() -> Self {
        let (all, spare) = Default::default();
        Self { all, spare, written: 0, between_looks: BETWEEN_LOOKS }
    }
}

impl Regions {
    pub(super) fn flow_of(&self, cursor: u32) -> FlowId {
        self.all[self.of(cursor)].1
    }

    fn of(&self, cursor: u32) -> usize {
        self.all.partition_point(|(begin, _)| *begin <= cursor) - 1
    }

    pub(super) fn is_look_due(&self, routes: &Routes) -> bool {
        self.written > u64::from(routes.words()) / 4 + self.between_looks
    }

    /// Returns a region for `words`, a spare one of the flow if it has any.
    pub(super) fn take(
        &mut self,
        flow: FlowId,
        words: u64,
        routes: &mut Routes,
    ) -> Result<u32, RouteError> {
        let spare = self.take_spare(flow, words, routes);
        self.written += words;
        if let Some(region) = spare {
            return Ok(region);
        }
        let table = u64::from(routes.words());
        if table + words > u64::from(MOST_CURSORS) {
            return Err(RouteError::TableFull { words: table + words });
        }
        self.all.push((table as u32, flow));
        routes.extend(words as u32);
        Ok(self.all.len() as u32 - 1)
    }

    fn take_spare(&mut self, flow: FlowId, words: u64, routes: &Routes) -> Option<u32> {
        let place = self.spare_place(flow, words, routes)?;
        self.spare.get_mut(&flow).map(|spare| spare.swap_remove(place))
    }

    pub(super) fn has_spare(&self, flow: FlowId, words: u64, routes: &Routes) -> bool {
        self.spare_place(flow, words, routes).is_some()
    }

    fn spare_place(&self, flow: FlowId, words: u64, routes: &Routes) -> Option<usize> {
        self.spare.get(&flow)?.iter().position(|region| {
            let next = self.all.get(*region as usize + 1).map(|(begin, _)| *begin);
            let end = next.unwrap_or_else(|| routes.words());
            u64::from(end - self.all[*region as usize].0) >= words
        })
    }

    /// Regions stay with their flow, so that cursors in probes still identify the flow.
    pub(super) fn keep_only(&mut self, regions: impl Iterator<Item = u32>, cursors: &[u32]) {
        let mut used = vec![false; self.all.len()];
        regions.for_each(|region| used[region as usize] = true);
        cursors.iter().for_each(|cursor| used[self.of(*cursor)] = true);
        self.spare.clear();
        for (region, (_, flow)) in self.all.iter().enumerate().filter(|(at, _)| !used[*at]) {
            self.spare.entry(*flow).or_default().push(region as u32);
        }
        self.written = 0;
    }
}

pub(super) fn words_of(paths: &Paths, choices: &[[Vec<Choice>; 2]], by_path: bool) -> u64 {
    if !choices.is_empty() {
        let words = choices.iter().flatten().flatten();
        let words: u64 = words.map(|at| words_of_choice(at.links.len())).sum();
        return words + choices.len() as u64 * (2 * words_of_way(0) + 2);
    }
    let there: u64 = paths.iter().map(|path| words_of_way(path.len())).sum();
    there + if by_path { there } else { words_of_way(paths[0].len()) }
}

pub(super) struct RouteWriter<'e> {
    pub(super) routes: &'e mut Routes,
    pub(super) places: &'e [u16],
    pub(super) network: &'e Network,
    pub(super) router: &'e Router,
    pub(super) by_path: bool,
}

impl RouteWriter<'_> {
    /// Also writes the reverse of the first path or of every path. Returns where paths and reverse paths start.
    pub(super) fn write(
        &mut self,
        regions: &Regions,
        FlowWays { paths, choices, region }: FlowWays<'_>,
        ends: [u32; 2],
    ) -> (Vec<u32>, u32) {
        self.routes.write_from(regions.all[region as usize].0);
        let [sender, receiver] = ends;
        if !choices.is_empty() {
            let laid = paths.iter().zip(choices).map(|(path, at)| self.lay_choices(path, at, ends));
            let laid: Vec<(u32, u32)> = laid.collect();
            return (laid.iter().map(|(begin, _)| *begin).collect(), laid[0].1);
        }
        let mut answer = None;
        let data = paths.iter().map(|path| {
            let begin = self.lay_route(path.iter().copied(), receiver);
            // Store the reverse path after the forward one, so that acknowledgements hit warm cache lines.
            if self.by_path || answer.is_none() {
                let back = self.lay_route(path.iter().rev().map(|link| link.reverse()), sender);
                answer.get_or_insert(back);
            }
            begin
        });
        (data.collect(), answer.expect("every flow has a path"))
    }

    fn lay_choices(
        &mut self,
        path: &[LinkId],
        [data, answers]: &[Vec<Choice>; 2],
        [sender, receiver]: [u32; 2],
    ) -> (u32, u32) {
        let (first, last) = (path[0], path[path.len() - 1].reverse());
        let answered = self.lay_route(std::iter::empty(), sender);
        let mut behind = Behind::new(answered);
        self.lay_later(&answers[1..], &mut behind);
        // An acknowledgement starts where the data's path ended, whichever path the data took.
        let delivery = self.lay_route(std::iter::empty(), receiver);
        let answer = self.routes.at();
        debug_assert_eq!(answer, Routes::answer(delivery));
        self.lay_first(last, &answers[0], &behind);
        let mut behind = Behind::new(delivery);
        self.lay_later(&data[1..], &mut behind);
        let begin = self.routes.at();
        self.lay_first(first, &data[0], &behind);
        (begin, answer)
    }

    /// Choices nearest to the destination come first, so that each refers to choices already written.
    fn lay_later(&mut self, choices: &[Choice], behind: &mut Behind) {
        for choice in choices.iter().rev() {
            let begin = self.routes.at();
            self.lay_choice(choice, behind);
            behind.begins.insert(choice.at, begin);
            if !choice.links.iter().any(|link: &LinkId| {
                self.router.is_up(*link) && !behind.nowhere.contains(&self.network.link(*link).to)
            }) {
                behind.nowhere.insert(choice.at);
            }
        }
    }

    fn lay_first(&mut self, first: LinkId, choice: &Choice, behind: &Behind) {
        self.routes.push(self.places[first.index()]);
        self.lay_choice(choice, behind);
    }

    fn lay_choice(&mut self, choice: &Choice, behind: &Behind) {
        self.routes.push_choice(choice.links.len(), choice.salt);
        for link in &choice.links {
            let next = self.network.link(*link).to;
            let rest = behind.begins.get(&next).copied().unwrap_or(behind.end);
            let leads_on = !behind.nowhere.contains(&next);
            self.routes.push_option(self.places[link.index()], leads_on, rest);
        }
    }

    fn lay_route(&mut self, links: impl ExactSizeIterator<Item = LinkId>, end: u32) -> u32 {
        let begin = self.routes.at();
        self.routes.push_route(links.map(|link| self.places[link.index()]), end);
        begin
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
    use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

    use super::*;
    use crate::engine::{Engine, EngineSettings, FlowSpec, LinkChange, LinkSpec, NetworkBuilder};
    use crate::topology::LeafSpine;
    use crate::transport::{Balance, LossRecovery, Reordering, Transport};

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
        engine.regions.between_looks = between_looks;
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
