// SPDX-License-Identifier: Apache-2.0
//! Designs without parameters:
//!
//! - `dgx`: servers of 8 GPUs with internal switches. Groups cannot span servers.
//! - `big-switch`: one ideal switch for the whole cluster, which is the lower bound on waste. Any healthy GPUs can form
//!   a group, so only the GPUs that do not fill the last group are wasted.
//! - `sip-ring`: SiP-Ring has fixed rings of the size of a group that are unusable after any fault (derived).

use super::blocks::{Blocks, Layout};
use super::domains::domains;
use super::registry::DesignKind;
use super::{Architecture, CannotHold, Cluster, UsableGpus, check_size};

const GPUS_PER_SERVER: u32 = 8;

type UsableOrNot = Result<Box<dyn UsableGpus>, CannotHold>;

#[derive(Clone, Copy, Debug)]
struct PlainDesign {
    name: &'static str,
    usable: fn(Cluster, u32) -> UsableOrNot,
}

pub(super) const DGX: DesignKind = DesignKind {
    forms: &[("dgx", "servers of 8 GPUs")],
    parse: |text| named(text, "dgx", |cluster, tp| domains(cluster, GPUS_PER_SERVER, tp)),
};

pub(super) const BIG_SWITCH: DesignKind = DesignKind {
    forms: &[("big-switch", "one ideal switch: the bound that no design beats")],
    parse: |text| {
        named(text, "big-switch", |cluster, tp| domains(cluster, cluster.gpus().max(1), tp))
    },
};

pub(super) const SIP_RING: DesignKind = DesignKind {
    forms: &[("sip-ring", "fixed rings, each as large as a group")],
    parse: |text| {
        named(text, "sip-ring", |cluster, tp| {
            check_size(cluster, tp)?;
            Ok(Box::new(Blocks::new(cluster, Layout::of_groups(cluster.gpus(), tp))))
        })
    },
};

fn named(
    text: &str,
    name: &'static str,
    usable: fn(Cluster, u32) -> UsableOrNot,
) -> Option<Box<dyn Architecture>> {
    (text == name).then(|| Box::new(PlainDesign { name, usable }) as _)
}

impl Architecture for PlainDesign {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> UsableOrNot {
        (self.usable)(cluster, tp)
    }
}
