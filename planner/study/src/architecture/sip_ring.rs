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
        let layout = Layout {
            gpus_per_domain: cluster.gpus(),
            gpus_per_block: tp,
            blocks_joined: 1,
            gpus_joined: tp,
            blocks_per_pod: u32::MAX,
        };
        Ok(Box::new(Blocks::new(cluster, layout)))
    }
}
