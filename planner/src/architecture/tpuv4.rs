//! TPUv4: cubes of 64 GPUs joined by optical circuit switches: `tpuv4`, `tpuv4:strict`.
//!
//! Two rules for what a fault costs:
//!
//! - block rule: a cube is cut into fixed blocks of one group each, and a block with a faulty node is
//!   lost. It reproduces the recalled mean waste.
//! - strict rule: any fault loses the cube (the paper's abstract calls the cube the fault radius).
//!
//! Groups of 64 GPUs or more take whole cubes, any healthy ones, as the optical switches join them.

use super::blocks::{Blocks, Layout};
use super::{Architecture, CannotHold, Cluster, UsableGpus, check_size};

const GPUS_PER_CUBE: u32 = 64;

/// What a faulty node takes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Block,
    Cube,
}

/// TPUv4 cubes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tpuv4 {
    pub(super) loss: Loss,
}

impl Architecture for Tpuv4 {
    fn name(&self) -> String {
        match self.loss {
            Loss::Block => "tpuv4".to_owned(),
            Loss::Cube => "tpuv4:strict".to_owned(),
        }
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        check_size(cluster, tp)?;
        let (gpus_per_block, blocks_joined, gpus_joined) = match self.loss {
            _ if tp >= GPUS_PER_CUBE => (GPUS_PER_CUBE, tp.div_ceil(GPUS_PER_CUBE), tp),
            Loss::Block => (tp, 1, tp),
            Loss::Cube => (GPUS_PER_CUBE, 1, GPUS_PER_CUBE / tp * tp),
        };
        let gpus_per_domain = GPUS_PER_CUBE;
        let layout = Layout { gpus_per_domain, gpus_per_block, blocks_joined, gpus_joined };
        Ok(Box::new(Blocks::new(cluster, layout)))
    }
}
