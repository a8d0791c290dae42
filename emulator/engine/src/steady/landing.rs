// SPDX-License-Identifier: Apache-2.0
//! Forwards requests to the engines: finds the affected islands, creates new ones and splits diverging classes.

use lightloom_units::SimTime;
use rustc_hash::{FxHashMap, FxHashSet};

use super::apart::{Apart, Asked, FlowPlace, Island, IslandAct, LinkCopy};
use super::class::Class;
use super::description::{Description, GlobalNames, IslandChange};
use super::{Entangled, LocalProbe};
use crate::engine::{
    BatchId, Engine, EngineSettings, FlowGate, FlowId, FlowSpec, LinkChange, LinkId, Marking,
    Route, VertexId,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tie {
    Cable(u32),
    Batch(BatchId),
    Flow(FlowId),
    Island(u32),
}

#[derive(Debug, Default)]
pub(super) struct Knots {
    pub(super) places: FxHashMap<Tie, u32>,
    towards: Vec<u32>,
}

impl Knots {
    pub(super) fn place(&mut self, tie: Tie) -> u32 {
        let new = self.towards.len() as u32;
        let place = *self.places.entry(tie).or_insert(new);
        if place == new {
            self.towards.push(new);
        }
        self.root(place)
    }
    fn root(&mut self, mut place: u32) -> u32 {
        while self.towards[place as usize] != place {
            let next = self.towards[self.towards[place as usize] as usize];
            self.towards[place as usize] = next;
            place = next;
        }
        place
    }
    fn tie(&mut self, one: Tie, other: Tie) {
        let (one, other) = (self.place(one), self.place(other));
        self.towards[other as usize] = one;
    }
}

impl<P: LocalProbe> Apart<P> {
    pub(super) fn land(&mut self) -> Result<(), Entangled> {
        if self.asked.is_empty() {
            return Ok(());
        }
        let mut asked = std::mem::take(&mut self.asked);
        if self.remembers {
            asked.retain(|asked| self.matters(*asked));
        }
        self.refuse_switches(&asked)?;
        self.retire(&asked);
        let mut knots = self.tie(&asked);
        if self.remembers {
            return self.land_remembering(asked, knots);
        }
        let homes = self.homes(&mut knots)?;
        let mut begun: Vec<Vec<Asked>> = Vec::new();
        let mut new: FxHashMap<u32, usize> = FxHashMap::default();
        let mut going_on: Vec<(u32, Asked)> = Vec::new();
        for asked in asked {
            let flow = match asked {
                Asked::Change(link, _) => {
                    let copy = self.copy_of(link);
                    going_on.extend(copy.map(|copy| (copy.island, asked)));
                    continue;
                }
                Asked::Flow(flow)
                | Asked::Gate(flow, _)
                | Asked::Cancel(flow)
                | Asked::Reroute(flow, _) => flow,
            };
            let own = self.flows[flow.index()].place.map(|place| place.island);
            if let Some(island) = own.or_else(|| homes.get(&knots.place(Tie::Flow(flow))).copied())
            {
                going_on.push((island, asked));
                continue;
            }
            let place = *new.entry(knots.place(Tie::Flow(flow))).or_insert(begun.len());
            if place == begun.len() {
                begun.push(Vec::new());
            }
            begun[place].push(asked);
        }
        self.go_on(going_on)?;
        self.begin(begun);
        Ok(())
    }

    /// Shared buffers and pauses couple flows without common links, and random marking differs by link id.
    fn refuse_switches(&self, asked: &[Asked]) -> Result<(), Entangled> {
        let by_chance = self.settings.marking != Marking::Threshold;
        let is_shared = self.settings.queueing.is_some_and(|queueing| {
            !self.remembers || queueing.buffer.is_some() || queueing.pause.is_some()
        });
        let flows = asked.iter().filter_map(|asked| match asked {
            Asked::Flow(flow) => Some(&self.flows[flow.index()]),
            _ => None,
        });
        let mut links = flows.flat_map(|flow| flow.links());
        if (is_shared || by_chance)
            && links.any(|link| !self.network.role(self.network.link(link).from).is_host())
        {
            return Err(Entangled);
        }
        Ok(())
    }

    fn retire(&mut self, asked: &[Asked]) {
        let mut looked_at = FxHashSet::default();
        let present = self.present();
        let new = asked.iter().filter_map(|asked| match asked {
            Asked::Flow(flow) | Asked::Reroute(flow, _) => Some(*flow),
            _ => None,
        });
        for flow in new {
            let links: Vec<LinkId> = self.flows[flow.index()].links().collect();
            for link in links {
                let Some(copy) = self.copy_of(link) else { continue };
                if looked_at.insert(copy.island) {
                    let island = &self.islands[copy.island as usize];
                    let class = &self.classes[island.class as usize];
                    let quiet = match self.remembers {
                        true => self.is_quiet(copy.island),
                        false => class.until <= present && class.engine.is_quiet(),
                    };
                    self.islands[copy.island as usize].retired = quiet;
                }
            }
        }
    }

    fn link_tie(&self, link: LinkId) -> Tie {
        self.copy_of(link).map_or(Tie::Cable(link.0 >> 1), |copy| Tie::Island(copy.island))
    }

    pub(super) fn flow_tie(&self, flow: FlowId) -> Tie {
        let place = self.flows[flow.index()].place;
        place.map_or(Tie::Flow(flow), |place| Tie::Island(place.island))
    }

    fn tie(&self, asked: &[Asked]) -> Knots {
        let mut knots = Knots::default();
        for asked in asked {
            match asked {
                Asked::Flow(id) => {
                    let flow = &self.flows[id.index()];
                    for link in flow.links() {
                        knots.tie(Tie::Flow(*id), self.link_tie(link));
                    }
                    if let Some(batch) = flow.spec.batch {
                        let batch = match self.batches[batch.index()].place {
                            Some((island, _)) => Tie::Island(island),
                            None => Tie::Batch(batch),
                        };
                        knots.tie(Tie::Flow(*id), batch);
                    }
                    for gate in &flow.spec.gates {
                        knots.tie(Tie::Flow(*id), self.flow_tie(gate.flow));
                    }
                }
                Asked::Gate(flow, gate) => {
                    knots.tie(self.flow_tie(*flow), self.flow_tie(gate.flow));
                }
                Asked::Reroute(id, _) => {
                    for link in self.flows[id.index()].links() {
                        knots.tie(self.flow_tie(*id), self.link_tie(link));
                    }
                }
                Asked::Cancel(_) | Asked::Change(..) => {}
            }
        }
        knots
    }

    fn homes(&self, knots: &mut Knots) -> Result<FxHashMap<u32, u32>, Entangled> {
        let islands: Vec<u32> = knots
            .places
            .keys()
            .filter_map(|tie| match tie {
                Tie::Island(island) => Some(*island),
                _ => None,
            })
            .collect();
        let mut homes = FxHashMap::default();
        for island in islands {
            let root = knots.place(Tie::Island(island));
            let second = homes.insert(root, island).is_some();
            if second || self.islands[island as usize].retired {
                return Err(Entangled);
            }
        }
        // Existing islands cannot grow.
        let cables: Vec<Tie> =
            knots.places.keys().filter(|tie| matches!(tie, Tie::Cable(_))).copied().collect();
        for cable in cables {
            if homes.contains_key(&knots.place(cable)) {
                return Err(Entangled);
            }
        }
        Ok(homes)
    }

    fn go_on(&mut self, asked: Vec<(u32, Asked)>) -> Result<(), Entangled> {
        let mut by_island: FxHashMap<u32, Vec<IslandChange>> = FxHashMap::default();
        let mut touched: Vec<u32> = Vec::new();
        for (island, asked) in asked {
            let class = self.islands[island as usize].class;
            if self.classes[class as usize].until > self.present() {
                return Err(Entangled);
            }
            let act = self.act_on(island, asked);
            by_island.entry(island).or_default().push(act);
            if !touched.contains(&class) {
                touched.push(class);
            }
        }
        for class in touched {
            let members = std::mem::take(&mut self.classes[class as usize].members);
            let mut ways: Vec<(Vec<IslandChange>, Vec<u32>)> = Vec::new();
            let mut places: FxHashMap<Vec<IslandChange>, usize> = FxHashMap::default();
            for member in members {
                let acts = by_island.remove(&member).unwrap_or_default();
                let place = *places.entry(acts).or_insert_with_key(|acts| {
                    ways.push((acts.clone(), Vec::new()));
                    ways.len() - 1
                });
                ways[place].1.push(member);
            }
            self.part(class, ways);
        }
        Ok(())
    }

    fn part(&mut self, class: u32, ways: Vec<(Vec<IslandChange>, Vec<u32>)>) {
        for place in (0..ways.len()).rev() {
            let (acts, members) = &ways[place];
            let index = if place == 0 { class as usize } else { self.classes.len() };
            if place > 0 {
                let split = self.classes[class as usize].split(Vec::new());
                self.live.push(self.classes.len() as u32);
                self.classes.push(split);
            }
            for member in members {
                self.islands[*member as usize].class = index as u32;
            }
            let class = &mut self.classes[index];
            class.members.clone_from(members);
            class.apply(self.now, acts.clone());
        }
    }

    fn act_on(&mut self, island: u32, asked: Asked) -> IslandChange {
        match asked {
            Asked::Flow(id) => {
                let links = self.links_on(id, 0);
                let class = self.islands[island as usize].class;
                let network = self.classes[class as usize].engine.network();
                let source = network.link(links[0]).from;
                let destination = network.link(links[links.len() - 1]).to;
                self.flow_on(island, id, links, source, destination)
            }
            Asked::Gate(flow, gate) => IslandChange::Gate(
                self.local_flow(flow),
                FlowGate { flow: self.local_flow(gate.flow), ..gate },
            ),
            Asked::Cancel(flow) => IslandChange::Cancel(self.local_flow(flow)),
            Asked::Change(link, change) => {
                IslandChange::Change(self.copy_of(link).expect("the island holds it").link, change)
            }
            Asked::Reroute(flow, path) => {
                IslandChange::Reroute(self.local_flow(flow), self.links_on(flow, path as usize))
            }
        }
    }

    /// The links of a path in its island, which holds all of them.
    fn links_on(&self, flow: FlowId, path: usize) -> Vec<LinkId> {
        let path = self.flows[flow.index()].paths[path].iter();
        path.map(|link| self.copy_of(*link).expect("the island holds it").link).collect()
    }

    fn local_flow(&self, flow: FlowId) -> FlowId {
        self.flows[flow.index()].place.expect("the flow was added earlier").flow
    }

    fn flow_on(
        &mut self,
        island: u32,
        id: FlowId,
        links: Vec<LinkId>,
        source: VertexId,
        destination: VertexId,
    ) -> IslandChange {
        let home = &mut self.islands[island as usize];
        let flow = FlowId::from_index(home.flows.len());
        home.flows.push(id);
        self.flows[id.index()].place = Some(FlowPlace { island, flow });
        let batch = self.flows[id.index()].spec.batch.map(|id| {
            let batch = &mut self.batches[id.index()];
            let (_, local) = *batch.place.get_or_insert_with(|| {
                home.batches.push(id);
                (island, BatchId::from_index(home.batches.len() - 1))
            });
            local
        });
        let spec = self.flows[id.index()].spec.clone();
        let gates = spec.gates.iter();
        let gates =
            gates.map(|gate| FlowGate { flow: self.local_flow(gate.flow), ..*gate }).collect();
        let route = Route::Links(links);
        IslandChange::Flow(FlowSpec { source, destination, route, gates, batch, ..spec })
    }

    fn begin(&mut self, begun: Vec<Vec<Asked>>) {
        let mut places: FxHashMap<Description, u32> = FxHashMap::default();
        for asked in begun {
            let island = self.islands.len() as u32;
            let now = self.now;
            let asked = asked.into_iter().map(|asked| (now, 0, asked)).collect();
            let description = self.describe(island, now, asked);
            let new = self.classes.len() as u32;
            let class = *places.entry(description).or_insert_with_key(|description| {
                let mut class = self.new_class(island, description, now);
                let acts = acts_from(description, now).into_iter().map(|(_, act)| act);
                class.apply(now, acts.collect());
                self.classes.push(class);
                self.live.push(new);
                new
            });
            self.islands[island as usize].class = class;
            self.classes[class as usize].members.push(island);
        }
    }

    pub(super) fn new_class(
        &self,
        island: u32,
        description: &Description,
        begin: SimTime,
    ) -> Class<P> {
        let links = &self.islands[island as usize].links;
        let network = description.network(self.network.shortest_delay());
        let settings = EngineSettings { threads: 1, ..self.settings };
        let engine = Engine::with_probe(network, settings, self.probe.local(links));
        let engine = engine.expect("packet sizes were checked earlier");
        let mut class = Class::new(engine, Vec::new());
        (class.until, class.begin) = (begin.0, begin.0);
        class
    }

    pub(super) fn describe(
        &mut self,
        island: u32,
        begin: SimTime,
        asked: Vec<IslandAct>,
    ) -> Description {
        let mut seen = FxHashSet::default();
        let mut links: Vec<LinkId> = Vec::new();
        for (.., asked) in &asked {
            if let Asked::Flow(flow) = asked {
                let path = self.flows[flow.index()].links();
                links.extend(path.filter(|link| seen.insert(link.0 >> 1)));
            }
        }
        let names = GlobalNames::of(&self.network, &links);
        let (roles, cables) = names.describe(&self.network, |link| self.probe.kind(link));
        for (index, link) in names.links.iter().enumerate().step_by(2) {
            // The even global link of a cable may be its odd local link.
            let link_there = LinkId((index as u32) ^ (link.0 & 1));
            self.copies.entry(link.0 >> 1).or_default().push(LinkCopy { island, link: link_there });
        }
        let mut acts = self.changes_of(&names.links, begin);
        let vertex_of: FxHashMap<VertexId, VertexId> =
            (0..).zip(&names.vertices).map(|(index, vertex)| (*vertex, VertexId(index))).collect();
        self.islands.push(Island {
            class: 0,
            links: names.links,
            flows: Vec::new(),
            batches: Vec::new(),
            retired: false,
            superseded: false,
            shift: 0,
            past: if self.remembers { asked.clone() } else { Vec::new() },
        });
        for (at, number, asked) in asked {
            let act = match asked {
                Asked::Flow(id) => {
                    let links = self.links_on(id, 0);
                    let FlowSpec { source, destination, .. } = self.flows[id.index()].spec;
                    self.flow_on(island, id, links, vertex_of[&source], vertex_of[&destination])
                }
                other => self.act_on(island, other),
            };
            acts.push((at, number, act));
        }
        acts.sort_by_key(|(at, number, _)| (*at, *number));
        let relative = acts.into_iter().map(|(at, _, mut act)| {
            if let IslandChange::Flow(spec) = &mut act {
                spec.start = SimTime(spec.start.0 - begin.0);
            }
            (at.0 - begin.0, act)
        });
        Description { roles, cables, acts: relative.collect() }
    }

    fn changes_of(&self, links: &[LinkId], begin: SimTime) -> Vec<(SimTime, u64, IslandChange)> {
        let mut acts = Vec::new();
        for (index, link) in links.iter().enumerate() {
            let act = |change| IslandChange::Change(LinkId::from_index(index), change);
            let mut later: Vec<(SimTime, u64, LinkChange)> = Vec::new();
            let (mut is_up, mut rate) = (self.router.is_up(*link), self.rates.get(link).copied());
            if begin < self.now {
                (is_up, rate) = (true, None);
                for &(at, number, change) in self.changes.get(link).into_iter().flatten() {
                    match change {
                        _ if at > begin => later.push((at, number, change)),
                        LinkChange::Down => is_up = false,
                        LinkChange::Up => is_up = true,
                        LinkChange::Rate(_) => rate = Some(change),
                        LinkChange::Healthy => rate = None,
                        // Links with random effects are never in islands.
                        LinkChange::BitErrors(_)
                        | LinkChange::PacketLoss(_)
                        | LinkChange::Jitter(_)
                        | LinkChange::Paused(_) => {}
                    }
                }
            }
            if !is_up {
                acts.push((begin, 0, act(LinkChange::Down)));
            }
            acts.extend(rate.map(|rate| (begin, 0, act(rate))));
            acts.extend(later.into_iter().map(|(at, number, change)| (at, number, act(change))));
        }
        acts
    }
}

pub(super) fn acts_from(description: &Description, begin: SimTime) -> Vec<(u64, IslandChange)> {
    let mut acts = description.acts.clone();
    for (_, act) in &mut acts {
        if let IslandChange::Flow(spec) = act {
            spec.start = SimTime(spec.start.0 + begin.0);
        }
    }
    acts
}
