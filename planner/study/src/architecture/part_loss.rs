// SPDX-License-Identifier: Apache-2.0
//! What a design does without one part of its bill, until that is repaired.

/// What one part that is out costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PartLoss {
    /// Nothing: other paths carry its traffic.
    Nothing,
    /// So many GPUs around it are out of service, in whole nodes: 1 is the node of the part.
    Out {
        /// GPUs.
        gpus: u32,
    },
    /// The job on it has this much less bandwidth: of its groups where the part is in their domain, between them where it is in
    /// the data-centre network. Where that costs more than the GPUs around it, these are taken out of service.
    Slower {
        /// Share that is lost.
        share: f64,
        /// GPUs without which nothing is slower, in whole nodes. `None` if taking any out does not help.
        around: Option<u32>,
    },
}

/// A part of which so many do, and the others nothing: links to hosts among all links of a network.
pub(super) fn of_links_to_hosts(share: f64, loss: PartLoss) -> Vec<(f64, PartLoss)> {
    vec![(share, loss), (1.0 - share, PartLoss::Nothing)]
}
