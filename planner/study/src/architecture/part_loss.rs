// SPDX-License-Identifier: Apache-2.0
//! The effect of a failed part of a design's bill until its repair.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PartLoss {
    /// The failure has no effect, because other paths carry the traffic of the part.
    Nothing,
    /// GPUs around the part are out of service. They are whole nodes.
    Out {
        /// Number of GPUs; 1 means the node of the part.
        gpus: u32,
    },
    /// The job has less bandwidth within its groups if the part is in their domain, and between
    /// groups if it is in the data-centre network. If removing the GPUs around the part costs less
    /// than this slowdown, they are taken out of service instead.
    Slower {
        share: f64,
        /// Number of GPUs whose removal avoids the slowdown. They are whole nodes. `None` if
        /// removing GPUs does not help.
        around: Option<u32>,
    },
}

/// Returns the losses of a part if only a share of its units has the effect `loss`, such as links
/// to hosts among all links.
pub(super) fn of_links_to_hosts(share: f64, loss: PartLoss) -> Vec<(f64, PartLoss)> {
    vec![(share, loss), (1.0 - share, PartLoss::Nothing)]
}
