// SPDX-License-Identifier: Apache-2.0
//! Servers of 8 GPUs with internal switches, named `dgx`. Groups cannot span servers.

use super::domains::domains;
use super::registry::DesignKind;
use super::{Architecture, CannotHold, Cluster, UsableGpus};

const GPUS_PER_SERVER: u32 = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct Dgx;

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[("dgx", "servers of 8 GPUs")],
    parse: |text| (text == "dgx").then(|| Box::new(Dgx) as _),
};

impl Architecture for Dgx {
    fn name(&self) -> String {
        "dgx".to_owned()
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        domains(cluster, GPUS_PER_SERVER, tp)
    }
}
