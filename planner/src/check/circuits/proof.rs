// SPDX-License-Identifier: Apache-2.0
//! Recomputes the upper bound on a phase's rate from its prices.
//!
//! For any circuits and routes, each byte costs at least the price of the cheapest path between its
//! leaves. In one second, all ports and uplinks can carry traffic that costs at most their total
//! price. This total divided by the cost of one phase limits the number of phases per second.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fat_tree::{FatTreeSpec, ReconfigurableFatTree};
use lightloom_fabric::plan::Prices;
use lightloom_units::id::{LeafId, OcsId};

use super::Asked;

/// For more leaves, only the first and last hop of a path are priced.
const ALL_PATHS_TO: usize = 32;

pub(super) fn proven(
    network: &ReconfigurableFatTree,
    asked: &Asked,
    prices: &Prices,
) -> Result<f64, String> {
    let spec = network.spec();
    if !prices.shares.is_empty() && network.is_one_way() {
        return Err("a price is shared by two directions of a one-way circuit".into());
    }
    if !are_valid(spec, prices) {
        return Err("a price is negative, not a number, or for a port that does not exist".into());
    }
    let mut all = 0.0;
    let optics = Optics::of(network);
    for own in &prices.ports {
        all += own.price * f64::from(optics.free[own.bank as usize][own.leaf.index()]);
    }
    for own in prices.core.iter().filter(|own| network.electrical_rate_of(own.leaf) > 0.0) {
        all += own.up + own.down;
    }
    let uplinks = by_uplink(network, prices);
    let paid = match uplinks.len() <= ALL_PATHS_TO {
        true => by_all_paths(&optics, asked, prices, &uplinks),
        false => by_ends(&optics, asked, prices, &uplinks),
    };
    Ok(all / paid)
}

fn are_valid(spec: &FatTreeSpec, prices: &Prices) -> bool {
    let single =
        prices.ports.iter().map(|own| own.leaf).chain(prices.core.iter().map(|own| own.leaf));
    let mut leaves = single.chain(prices.shares.iter().flat_map(|own| [own.from, own.to]));
    let sending = prices.ports.iter().map(|own| own.sending);
    let mut shares = sending.chain(prices.shares.iter().map(|own| own.share));
    let of_ports = prices.ports.iter().map(|own| own.price);
    let mut amounts = of_ports.chain(prices.core.iter().flat_map(|own| [own.up, own.down]));
    prices.ports.iter().all(|own| (own.bank as usize) < spec.banks.len())
        && leaves.all(|leaf| leaf.0 < spec.leaves)
        && shares.all(|share| (0.0..=1.0).contains(&share))
        && amounts.all(|price| price >= 0.0 && price.is_finite())
}

struct Optics<'a> {
    spec: &'a FatTreeSpec,
    free: Vec<Vec<u32>>,
    extra_db: Vec<f64>,
}

impl<'a> Optics<'a> {
    fn of(network: &'a ReconfigurableFatTree) -> Self {
        let spec = network.spec();
        let mut extra_db = vec![0.0; spec.leaves as usize];
        spec.loss.extra_db.iter().for_each(|own| extra_db[own.leaf.index()] += own.db);
        let mut free = Vec::new();
        let mut first = 0;
        for bank in &spec.banks {
            let mut taken = BTreeSet::new();
            for ocs in (first..first + bank.switches).map(OcsId) {
                taken.extend(network.dead_ports(ocs).map(|port| (ocs, port)));
            }
            let last = first + bank.switches;
            let held = spec.held.iter().filter(|held| !spec.usable.contains(held));
            for held in held.filter(|held| (first..last).contains(&held.ocs.0)) {
                taken.extend([(held.ocs, held.a_port), (held.ocs, held.b_port)]);
            }
            let all: Vec<LeafId> = (0..spec.leaves).map(LeafId).collect();
            let leaves = bank.leaves.as_ref().unwrap_or(&all);
            let mut own = vec![0; spec.leaves as usize];
            for leaf in leaves {
                own[leaf.index()] = bank.switches * bank.ports_per_leaf;
            }
            for (_, port) in taken {
                own[leaves[(port / bank.ports_per_leaf) as usize].index()] -= 1;
            }
            free.push(own);
            first = last;
        }
        Self { spec, free, extra_db }
    }

    fn rate(&self, bank: usize) -> f64 {
        self.spec.banks[bank].circuit_rate.map_or(self.spec.circuit_rate, |own| own.0).0 as f64
    }

    fn join(&self, bank: usize, a: usize, b: usize) -> bool {
        let loss = self.spec.banks[bank].insertion_loss_db + self.spec.loss.path_db;
        let fits = loss + self.extra_db[a] + self.extra_db[b] <= self.spec.loss.budget_db;
        let [one, two] = [a, b].map(LeafId::from_index);
        let forbidden = &self.spec.forbidden;
        let is_forbidden = forbidden.contains(&(one, two)) || forbidden.contains(&(two, one));
        a != b && fits && !is_forbidden && self.free[bank][a] > 0 && self.free[bank][b] > 0
    }

    fn banks_of(&self, leaf: usize) -> impl Iterator<Item = usize> + '_ {
        let leaves = self.spec.leaves as usize;
        (0..self.spec.banks.len())
            .filter(move |bank| (0..leaves).any(|other| self.join(*bank, leaf, other)))
    }
}

/// Returns what traffic pays that each leaf sends and receives over its ports. A leaf may have several prices.
/// Returns the prices of sending and receiving over the ports of each bank and leaf.
fn by_port(optics: &Optics<'_>, prices: &Prices) -> Vec<Vec<[f64; 2]>> {
    let leaves = optics.spec.leaves as usize;
    let mut ports = vec![vec![[0.0; 2]; leaves]; optics.spec.banks.len()];
    for own in &prices.ports {
        let [sent, received] = &mut ports[own.bank as usize][own.leaf.index()];
        *sent += own.price * own.sending;
        *received += own.price * (1.0 - own.sending);
    }
    ports
}

fn by_uplink(network: &ReconfigurableFatTree, prices: &Prices) -> Vec<[f64; 2]> {
    let mut bits = vec![[0.0; 2]; network.leaves()];
    for (leaf, own) in bits.iter_mut().enumerate() {
        if network.electrical_rate_of(LeafId::from_index(leaf)) <= 0.0 {
            *own = [f64::INFINITY; 2];
        }
    }
    for own in &prices.core {
        let rate = network.electrical_rate_of(own.leaf);
        if rate > 0.0 {
            let [up, down] = bits[own.leaf.index()];
            bits[own.leaf.index()] = [up + own.up / rate, down + own.down / rate];
        }
    }
    bits
}

fn by_all_paths(optics: &Optics<'_>, asked: &Asked, prices: &Prices, uplinks: &[[f64; 2]]) -> f64 {
    let leaves = uplinks.len();
    let ports = by_port(optics, prices);
    let mut leans = BTreeMap::new();
    for own in &prices.shares {
        let (bank, from, to) = (own.bank as usize, own.from.index(), own.to.index());
        leans.insert((bank, from, to), own.share);
        leans.insert((bank, to, from), 1.0 - own.share);
    }
    let mut cost = vec![vec![f64::INFINITY; leaves + 1]; leaves + 1];
    for (from, [up, down]) in uplinks.iter().enumerate() {
        (cost[from][leaves], cost[leaves][from], cost[from][from]) = (*up, *down, 0.0);
        for (to, cheapest) in cost[from].iter_mut().enumerate().take(leaves) {
            for bank in (0..optics.spec.banks.len()).filter(|bank| optics.join(*bank, from, to)) {
                let ([sent, back], [there, received]) = (ports[bank][from], ports[bank][to]);
                let price = match leans.get(&(bank, from, to)) {
                    Some(share) => share * (sent + back + there + received),
                    None => sent + received,
                };
                *cheapest = cheapest.min(price / optics.rate(bank));
            }
        }
    }
    for middle in 0..=leaves {
        let onward = cost[middle].clone();
        for row in &mut cost {
            let first = row[middle];
            row.iter_mut().zip(&onward).for_each(|(all, rest)| *all = all.min(first + rest));
        }
    }
    let flows = asked.flows.iter();
    flows.map(|((from, to), bytes)| 8.0 * bytes * cost[*from as usize][*to as usize]).sum()
}

fn by_ends(optics: &Optics<'_>, asked: &Asked, prices: &Prices, uplinks: &[[f64; 2]]) -> f64 {
    let ports = by_port(optics, prices);
    let mut known: BTreeMap<(u32, usize), f64> = BTreeMap::new();
    let mut pays = 0.0;
    for ((from, to), bytes) in &asked.flows {
        for (leaf, direction) in [(*from, 0), (*to, 1)] {
            let price = *known.entry((leaf, direction)).or_insert_with(|| {
                let leaf = leaf as usize;
                let own = optics
                    .banks_of(leaf)
                    .map(|bank| ports[bank][leaf][direction] / optics.rate(bank));
                own.fold(uplinks[leaf][direction], f64::min)
            });
            pays += 8.0 * bytes * price;
        }
    }
    pays
}
