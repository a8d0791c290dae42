// SPDX-License-Identifier: Apache-2.0
//! One ideal switch for the whole cluster, `big-switch`, which is the lower bound on waste.
//!
//! Any healthy GPUs can form a group, so only the GPUs that do not fill the last group are wasted.

use super::domains::domains;
use super::registry::DesignKind;
use super::{Architecture, CannotHold, Cluster, UsableGpus};

#[derive(Clone, Copy, Debug)]
pub(super) struct BigSwitch;

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[("big-switch", "one ideal switch: the bound that no design beats")],
    parse: |text| (text == "big-switch").then(|| Box::new(BigSwitch) as _),
};

impl Architecture for BigSwitch {
    fn name(&self) -> String {
        "big-switch".to_owned()
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        domains(cluster, cluster.gpus().max(1), tp)
    }
}
