// SPDX-License-Identifier: Apache-2.0
//! Traffic of a task: a single flow, a ring collective, or several simultaneous flows.

use lightloom_collective::{CollectiveKind, Directions, Ring};
use lightloom_engine::collective::{
    CollectiveStartError, HostRoutes, Placement, RouteShare, StartedCollective, divided, start_bag,
};
use lightloom_engine::steady::Stage;
use lightloom_engine::transport::Transport;
use lightloom_engine::{FlowSpec, Route, VertexId};
use lightloom_step::graph::{PairBytes, TaskPace};
use lightloom_units::{Bytes, Picoseconds};

use super::ring_time::RingExchange;
use crate::substrate::HBD;

pub(super) struct Sends {
    /// `None` means one flow from the first host to the second.
    pub(super) kind: Option<CollectiveKind>,
    pub(super) hosts: Vec<VertexId>,
    pub(super) bytes: Bytes,
    pub(super) directions: Directions,
    pub(super) route: Route,
    pub(super) ways: HostRoutes,
    pub(super) priority: u8,
    /// Effective share of the link rate, inside a domain and between domains.
    pub(super) shares: [f64; 2],
    pub(super) domains: Vec<Option<u32>>,
    pub(super) imbalance: f64,
    pub(super) pairs: Option<PairBytes>,
}

impl Sends {
    pub(super) fn over(
        route: Route,
        kind: Option<CollectiveKind>,
        hosts: Vec<VertexId>,
        bytes: Bytes,
    ) -> Self {
        let (ways, directions) = (HostRoutes::new(), Directions::One);
        let (shares, domains) = ([1.0; 2], Vec::new());
        Self {
            kind,
            hosts,
            bytes,
            directions,
            route,
            ways,
            priority: 0,
            shares,
            domains,
            imbalance: 0.0,
            pairs: None,
        }
    }

    /// Effective shares include headers and acknowledgements.
    pub(super) fn paced(
        mut self,
        pace: &TaskPace,
        transport: &Transport,
        domains: Vec<Option<u32>>,
    ) -> Self {
        let frame = transport.payload.0 + transport.header.0 + transport.acknowledgement.0;
        let payload = transport.payload.0 as f64 / frame.max(1) as f64;
        self.shares = pace.shares().map(|share| (share / payload).min(1.0));
        self.domains = domains;
        self
    }

    fn on_links(&self, bytes: Bytes) -> Bytes {
        let first = self.domains.first().copied().flatten();
        let is_inside = first.is_some() && self.domains.iter().all(|domain| *domain == first);
        Bytes((bytes.0 as f64 / self.shares[usize::from(!is_inside)]) as u64)
    }

    pub(super) fn around(&self) -> Option<RingExchange> {
        Some((self.kind?, Bytes((self.bytes.0 as f64 / self.shares[0]) as u64), self.directions))
    }

    pub(super) fn start<S: Stage>(
        self,
        stage: &mut S,
    ) -> Result<StartedCollective, CollectiveStartError> {
        self.start_after(Picoseconds::ZERO, stage)
    }

    pub(super) fn start_after<S: Stage>(
        self,
        lag: Picoseconds,
        stage: &mut S,
    ) -> Result<StartedCollective, CollectiveStartError> {
        let one = self.on_links(self.bytes);
        let Self { kind, hosts, bytes: size, priority, route, mut ways, shares, domains, .. } =
            self;
        let (now, ranks) = (stage.now() + lag, hosts.len());
        let has_domains = domains.iter().any(Option::is_some);
        let domains = if domains.is_empty() { vec![None; ranks] } else { domains };
        let sets = by_domain(&domains);
        // If all messages use the same kind of link, scale the total size instead of each piece.
        let mut are_inside =
            domains.iter().skip(1).map(|domain| domain.is_some() && *domain == domains[0]);
        let first = are_inside.next();
        let is_even = are_inside.all(|is_inside| Some(is_inside) == first) && sets.len() == ranks;
        let size = if is_even { one } else { size };
        let inside = if has_domains { Route::Within(HBD) } else { route.clone() };
        let Some(kind) = kind else {
            let (from, to) = (hosts[0], hosts[1]);
            let is_inside = domains[0].is_some() && domains[0] == domains[1];
            let flow = FlowSpec { priority, ..FlowSpec::new(from, to, one).at(now) };
            let usual = if is_inside { inside } else { route };
            let ways = ways.remove(&(from, to)).unwrap_or(vec![RouteShare::whole(usual)]);
            return start_bag(stage, divided(&flow, ways));
        };
        let mut schedule = match sets.len() < ranks && !kind.is_pairwise() {
            true => Ring { kind, ranks, size, directions: Directions::One }.schedule_over(&sets)?,
            false => kind.schedule(ranks, size, self.directions)?,
        };
        if kind.is_pairwise() {
            if let Some(pairs) = self.pairs {
                for sending in &mut schedule.sendings {
                    sending.message = Bytes(pairs[sending.from * ranks + sending.to].max(1));
                }
            } else if self.imbalance > 0.0 {
                let even = size.0 as f64 / ranks as f64;
                let extra = even * self.imbalance;
                let [most, least] = [even + extra, even - extra / (ranks as f64 - 1.0)];
                for sending in &mut schedule.sendings {
                    let piece = if sending.to == 0 { most } else { least };
                    sending.message = Bytes(piece.max(1.0) as u64);
                }
            }
        }
        let schedule = schedule.over_domains(&domains, if is_even { [1.0; 2] } else { shares });
        let placement = Placement { inside, ..Placement::new(hosts, route) };
        let placement = placement.at(now).in_priority(priority).along(ways);
        placement.start(&schedule, stage)
    }
}

/// Returns the places of hosts, grouped by domain if all domains have the same number of hosts; otherwise one per group.
pub(crate) fn by_domain(domains: &[Option<u32>]) -> Vec<Vec<usize>> {
    let mut sets: Vec<(Option<u32>, Vec<usize>)> = Vec::new();
    for (at, domain) in domains.iter().enumerate() {
        let known = domain.and_then(|own| sets.iter_mut().find(|(of, _)| *of == Some(own)));
        match known {
            Some((_, own)) => own.push(at),
            None => sets.push((*domain, vec![at])),
        }
    }
    let most = sets.first().map_or(1, |(_, own)| own.len());
    if sets.len() < 2 || sets.iter().any(|(_, own)| own.len() != most) {
        return (0..domains.len()).map(|at| vec![at]).collect();
    }
    sets.into_iter().map(|(_, own)| own).collect()
}
