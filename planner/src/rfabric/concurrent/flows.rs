// SPDX-License-Identifier: Apache-2.0
//! Minimises the fill of the fullest resource by moving flows to cheaper paths.
//!
//! Uses multiplicative weights (Shahrokhi and Matula, JACM 37, 1990; Garg and Könemann, FOCS 1998). Resource prices
//! grow exponentially with fill, and each flow moves to its cheapest path. The same prices bound the gap to the
//! optimum, because for any choice of paths, the traffic on its cheapest paths costs at most as much as all resources.

use super::congestion::Congestion;

/// Limits on the number of sweeps and on total work, so larger networks get fewer sweeps.
const SWEEPS: usize = 300;
const WORK: usize = 18_000_000;

/// The slack of prices relative to the time shrinks by `SHARPER` per sweep, down to `SHARPEST`.
const SHARPER: f64 = 0.8;
const SHARPEST: f64 = 2e-4;
const FIRST: f64 = 0.3;

/// The prices become sharper once the gap to the optimum is smaller than this many times the gap that their slack causes.
const GAPS: f64 = 2.0;

/// A bound takes as long as a sweep, so only some sweeps compute one.
const SWEEPS_PER_BOUND: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct PricedPath {
    pub(super) arcs: Vec<usize>,
    pub(super) traffic: f64,
}

#[derive(Clone, Debug)]
pub(super) struct PricedFlow {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) traffic: f64,
    pub(super) paths: Vec<PricedPath>,
}

#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) flows: Vec<PricedFlow>,
    pub(super) seconds: f64,
    /// Lower bound on the time for any paths, in seconds.
    pub(super) least_seconds: f64,
    pub(super) proof: Congestion,
}

impl Settled {
    pub(super) fn loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.proof.arcs.len()];
        for path in self.flows.iter().flat_map(|flow| &flow.paths) {
            path.arcs.iter().for_each(|arc| loads[*arc] += path.traffic);
        }
        loads
    }
}

pub(super) struct PriceTree {
    pub(super) price: Vec<f64>,
    last: Vec<Option<usize>>,
}

/// Moves `flows` until their time is within the fraction `tolerance` of the optimum, or provably
/// exceeds `most_seconds`. `None` if a flow has no path.
pub(super) fn settle(
    mut network: Congestion,
    mut flows: Vec<PricedFlow>,
    tolerance: f64,
    most_seconds: f64,
) -> Option<Settled> {
    flows.sort_by_key(|flow| (flow.from, flow.to));
    begin(&mut network, &mut flows)?;
    let mut best = Settled {
        flows: flows.clone(),
        seconds: network.seconds(),
        least_seconds: 0.0,
        proof: network.clone(),
    };
    let mut share = FIRST;
    let sweeps = (WORK / network.nodes().pow(3)).min(SWEEPS);
    for sweep in 0..sweeps {
        network.sharpen(share);
        if sweep % SWEEPS_PER_BOUND == 0 {
            prove(&network, &flows, &mut best);
            let is_hopeless = best.least_seconds >= most_seconds;
            if is_hopeless || best.least_seconds >= best.seconds * (1.0 - tolerance) {
                break;
            }
        }
        for same_source in chunks(&mut flows) {
            let tree = cheapest(&network, &network.arc_prices(), same_source[0].from);
            same_source.iter_mut().for_each(|flow| move_to_cheaper(&mut network, flow, &tree));
        }
        let seconds = network.seconds();
        if seconds < best.seconds {
            best.seconds = seconds;
            best.flows.clone_from(&flows);
        }
        let gap = 1.0 - best.least_seconds / best.seconds;
        if gap < GAPS * network.gap_by_slack(seconds) {
            share = (share * SHARPER).max(SHARPEST);
        }
    }
    Some(best)
}

fn chunks(flows: &mut [PricedFlow]) -> impl Iterator<Item = &mut [PricedFlow]> {
    flows.chunk_by_mut(|a, b| a.from == b.from)
}

fn begin(network: &mut Congestion, flows: &mut [PricedFlow]) -> Option<()> {
    for same_source in chunks(flows) {
        let tree = cheapest(network, &network.arc_prices(), same_source[0].from);
        for flow in same_source {
            let arcs = tree.path(network, flow.to)?;
            arcs.iter().for_each(|arc| network.load(*arc, flow.traffic));
            flow.paths = vec![PricedPath { arcs, traffic: flow.traffic }];
        }
    }
    Some(())
}

fn prove(network: &Congestion, flows: &[PricedFlow], best: &mut Settled) {
    let prices = network.arc_prices();
    let mut least = 0.0;
    for same_source in flows.chunk_by(|a, b| a.from == b.from) {
        let tree = cheapest(network, &prices, same_source[0].from);
        least += same_source.iter().map(|flow| flow.traffic * tree.price[flow.to]).sum::<f64>();
    }
    least /= network.prices().iter().sum::<f64>();
    if least > best.least_seconds {
        best.least_seconds = least;
        best.proof.clone_from(network);
    }
}

fn move_to_cheaper(network: &mut Congestion, flow: &mut PricedFlow, tree: &PriceTree) {
    let Some(arcs) = tree.path(network, flow.to) else { return };
    let cheapest = match flow.paths.iter().position(|path| path.arcs == arcs) {
        Some(there) => there,
        None => {
            flow.paths.push(PricedPath { arcs, traffic: 0.0 });
            flow.paths.len() - 1
        }
    };
    for dearer in 0..flow.paths.len() {
        if dearer == cheapest {
            continue;
        }
        let only_in = |one: usize, other: usize| {
            let (one, other) = (&flow.paths[one].arcs, &flow.paths[other].arcs);
            one.iter().filter(|arc| !other.contains(arc))
        };
        let (left, taken) = (|| only_in(dearer, cheapest), || only_in(cheapest, dearer));
        let saved = left().map(|arc| network.price(*arc)).sum::<f64>()
            - taken().map(|arc| network.price(*arc)).sum::<f64>();
        if saved <= 0.0 {
            continue;
        }
        let rise: f64 = left().chain(taken()).map(|arc| network.rise(*arc)).sum();
        let moved = (saved / rise.max(f64::MIN_POSITIVE)).min(flow.paths[dearer].traffic);
        left().for_each(|arc| network.load(*arc, -moved));
        taken().for_each(|arc| network.load(*arc, moved));
        flow.paths[dearer].traffic -= moved;
        flow.paths[cheapest].traffic += moved;
    }
    flow.paths.retain(|path| path.traffic > 0.0);
}

/// Dijkstra's algorithm without a queue, because the networks are small and dense.
pub(super) fn cheapest(network: &Congestion, prices: &[f64], from: usize) -> PriceTree {
    let nodes = network.nodes();
    let mut tree = PriceTree { price: vec![f64::INFINITY; nodes], last: vec![None; nodes] };
    // Prices of nodes whose cheapest path is not final.
    let mut open = tree.price.clone();
    (tree.price[from], open[from]) = (0.0, 0.0);
    loop {
        let (mut node, mut least) = (nodes, f64::INFINITY);
        for (at, &price) in open.iter().enumerate() {
            if price < least {
                (node, least) = (at, price);
            }
        }
        if node == nodes {
            return tree;
        }
        (open[node], tree.price[node]) = (f64::INFINITY, least);
        for &(arc, to) in &network.arcs_from[node] {
            let price = least + prices[arc];
            if price < tree.price[to] {
                (open[to], tree.price[to], tree.last[to]) = (price, price, Some(arc));
            }
        }
    }
}

impl PriceTree {
    fn path(&self, network: &Congestion, to: usize) -> Option<Vec<usize>> {
        let mut path = Vec::new();
        let mut at = to;
        while let Some(arc) = self.last[at] {
            path.push(arc);
            at = network.arcs[arc].from;
        }
        path.reverse();
        (!path.is_empty()).then_some(path)
    }
}
