// SPDX-License-Identifier: Apache-2.0
//! The effect of a failed part until its repair.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PartLoss {
    Nothing,
    /// Whole nodes around the part are out of service.
    Out {
        gpus: u32,
    },
    /// The job has less bandwidth within groups if the part is in their domain, or between groups if it is in the
    /// data-centre network. GPUs around the part are taken out of service instead if that costs less.
    Slower {
        share: f64,
        around: Option<u32>,
    },
}

pub(super) fn of_links_to_hosts(share: f64, loss: PartLoss) -> Vec<(f64, PartLoss)> {
    vec![(share, loss), (1.0 - share, PartLoss::Nothing)]
}
