//! NVLink switch domains of X GPUs: `nvl:72`, `nvl:36x2` (two racks of 36 as one domain), any size.
//!
//! A group takes any healthy GPUs of one domain. (Counting rule recalled for NVL-72; it reproduces
//! the recalled mean waste.)

use super::domains::domains;
use super::{Architecture, CannotHold, Cluster, UsableGpus};

/// A switch domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nvl {
    /// GPUs of a rack.
    pub(super) gpus_per_rack: u32,
    /// Racks that are one domain by cables between them.
    pub(super) racks: u32,
}

impl Architecture for Nvl {
    fn name(&self) -> String {
        match self.racks {
            1 => format!("nvl:{}", self.gpus_per_rack),
            racks => format!("nvl:{}x{racks}", self.gpus_per_rack),
        }
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        domains(cluster, self.gpus_per_rack * self.racks, tp)
    }
}
