// SPDX-License-Identifier: Apache-2.0
//! SiP-Ring, `sip-ring`, has fixed rings of the size of a group that are unusable after any fault (derived).

use super::blocks::{Blocks, Layout};
use super::registry::DesignKind;
use super::{Architecture, CannotHold, Cluster, UsableGpus, check_size};

#[derive(Clone, Copy, Debug)]
pub(super) struct SipRing;

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[("sip-ring", "fixed rings, each as large as a group")],
    parse: |text| (text == "sip-ring").then(|| Box::new(SipRing) as _),
};

impl Architecture for SipRing {
    fn name(&self) -> String {
        "sip-ring".to_owned()
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        check_size(cluster, tp)?;
        Ok(Box::new(Blocks::new(cluster, Layout::of_groups(cluster.gpus(), tp))))
    }
}
