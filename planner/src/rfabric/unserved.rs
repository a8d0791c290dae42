// SPDX-License-Identifier: Apache-2.0
//! Explains why no choice of circuits can serve the traffic, and suggests a remedy.

use std::collections::BTreeSet;

use lightloom_fabric::fat_tree::{LeafPair, ReconfigurableFatTree};
use lightloom_units::id::LeafId;

use super::phases::Phase;

pub(super) fn why(fabric: &ReconfigurableFatTree, phases: &[&Phase]) -> String {
    let mut peers = vec![BTreeSet::new(); fabric.leaves()];
    for (from, to, bytes) in phases.iter().flat_map(|phase| phase.demand.flows()) {
        // The core serves any traffic between two leaves with uplinks, however slowly.
        let mut ends = [from, to].into_iter();
        let lacks = ends.find(|leaf| fabric.electrical_rate_of(*leaf) <= 0.0);
        let Some(lacks) = lacks else { continue };
        if let Some(reason) = LeafPair::new(from, to).and_then(|pair| closed(fabric, pair)) {
            return format!(
                "{from} sends {bytes} to {to}, {reason}, and {lacks} has no uplink into an electrical core; allow more \
                 loss, permit the pair or add electrical uplinks"
            );
        }
        peers[from.index()].insert(to);
        peers[to.index()].insert(from);
    }
    let short = (0..fabric.leaves()).map(LeafId::from_index).find(|leaf| {
        let ports = fabric.free_ports(*leaf) as usize;
        fabric.electrical_rate_of(*leaf) <= 0.0 && peers[leaf.index()].len() > ports
    });
    match short {
        Some(leaf) => format!(
            "{leaf} exchanges traffic with {} leaves over {} working ports, and has no uplink into an electrical core; add \
             ports or electrical uplinks",
            peers[leaf.index()].len(),
            fabric.free_ports(leaf)
        ),
        None => "every leaf has enough ports, but no choice of circuits on these switches connects all leaves that \
                 exchange traffic; add ports, switches or electrical uplinks"
            .to_owned(),
    }
}

fn closed(fabric: &ReconfigurableFatTree, pair: LeafPair) -> Option<String> {
    if fabric.permits(pair) {
        return None;
    }
    let budget = fabric.spec().loss.budget_db;
    Some(match fabric.least_loss_db(pair) {
        Some(loss) => {
            format!("the best path has a loss of {loss:.1} dB, above the budget of {budget:.1} dB")
        }
        None => "no circuit between them is permitted".to_owned(),
    })
}
