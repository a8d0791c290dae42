// SPDX-License-Identifier: Apache-2.0
//! Static three-dimensional tori of X·Y·Z GPUs without switches, named like `torus:8x8x8`.
//!
//! Groups are boxes of a·b·c GPUs that tile the torus, so a divides X, b divides Y and c divides Z.
//! Nodes are numbered box by box. A faulty node makes its box unusable. (Our own derivation.)

use super::blocks::{Blocks, Layout};
use super::registry::{DesignKind, number};
use super::{Architecture, CannotHold, Cluster, UsableGpus, check_size};

#[derive(Clone, Copy, Debug)]
pub(super) struct Torus {
    pub(super) sides: [u32; 3],
}

impl Torus {
    fn has_box_of(&self, gpus: u32) -> bool {
        let [x, y, z] = self.sides;
        (1..=x).filter(|a| x.is_multiple_of(*a) && gpus.is_multiple_of(*a)).any(|a| {
            let layer = gpus / a;
            (1..=y)
                .filter(|b| y.is_multiple_of(*b) && layer.is_multiple_of(*b))
                .any(|b| z.is_multiple_of(layer / b))
        })
    }
}

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[("torus:XxYxZ", "static tori; `torus:8x8x8`")],
    parse: |text| Some(Box::new(parse(text.strip_prefix("torus:")?)?)),
};

fn parse(parameter: &str) -> Option<Torus> {
    let sides: Vec<u32> =
        parameter.split('x').map(|side| number(side, 1 << 10)).collect::<Option<_>>()?;
    Some(Torus { sides: sides.try_into().ok()? })
}

impl Architecture for Torus {
    fn name(&self) -> String {
        let [x, y, z] = self.sides;
        format!("torus:{x}x{y}x{z}")
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        check_size(cluster, tp)?;
        let gpus_per_domain = self.sides.iter().product();
        if tp > gpus_per_domain {
            return Err(CannotHold(format!(
                "TP-{tp} needs {tp} GPUs of one torus, but a torus has {gpus_per_domain}"
            )));
        }
        if !self.has_box_of(tp) {
            return Err(CannotHold(format!("no boxes of {tp} GPUs tile {}", self.name())));
        }
        Ok(Box::new(Blocks::new(cluster, Layout::of_groups(gpus_per_domain, tp))))
    }
}
