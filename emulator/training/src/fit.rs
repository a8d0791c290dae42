// SPDX-License-Identifier: Apache-2.0
//! Constants that are fitted, with their limits.

use super::calibrated::{Chip, Framework};

#[derive(Clone, Copy, Debug)]
pub struct Constant {
    pub name: &'static str,
    place: Place,
    pub limits: [f64; 2],
    /// Change of the logarithm that costs as much as an error of 1 in one run.
    pub width: f64,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Chip(fn(&mut Chip) -> &mut f64),
    Framework(fn(&mut Framework) -> &mut f64),
}

pub const OF_CHIP: &[Constant] = &[
    chip("chip gemm bf16", |c| &mut c.gemm[0], [0.3, 0.87], 0.1),
    chip("chip gemm fp8", |c| &mut c.gemm[1], [0.2, 0.85], 0.2),
    chip("chip gemm mxfp8", |c| &mut c.gemm[2], [0.2, 0.85], 0.2),
    chip("chip gemm fp4", |c| &mut c.gemm[3], [0.1, 0.85], 0.3),
    chip("chip lost operations", |c| &mut c.lost_flops, [1e8, 3e10], 1.0),
    chip("chip attention", |c| &mut c.attention, [0.15, 0.85], 0.3),
    chip("chip memory", |c| &mut c.memory, [0.3, 0.92], 0.2),
];

pub const OF_FRAMEWORK: &[Constant] = &[
    framework("gemm", |f| &mut f.gemm, [0.5, 1.0], 0.1),
    framework("low", |f| &mut f.low, [0.5, 1.2], 0.1),
    framework("attention", |f| &mut f.attention, [0.3, 1.5], 0.3),
    framework("memory", |f| &mut f.memory, [0.5, 1.2], 0.2),
    framework("expert", |f| &mut f.expert, [0.2, 1.0], 0.3),
    framework("expert low", |f| &mut f.expert_low, [0.1, 1.0], 0.3),
    framework("launch", |f| &mut f.launch, [1e-5, 5e-3], 1.0),
    framework("expert launch", |f| &mut f.expert_launch[0], [1e-5, 2e-2], 1.0),
    framework("expert launch free", |f| &mut f.expert_launch[1], [1e-5, 2e-2], 1.0),
    framework("expert launch overlapped", |f| &mut f.expert_launch[2], [1e-5, 2e-2], 1.0),
    framework("TP exposed inside", |f| &mut f.tensor_exposed[0], [0.03, 1.0], 0.7),
    framework("TP exposed across", |f| &mut f.tensor_exposed[1], [0.3, 1.0], 0.5),
    framework("EP exposed inside", |f| &mut f.expert_exposed[0], [0.03, 3.0], 0.7),
    framework("EP exposed across", |f| &mut f.expert_exposed[1], [0.03, 3.0], 0.7),
    framework("pipeline exposed", |f| &mut f.pipeline_exposed, [0.01, 1.0], 1.0),
    framework("DP exposed", |f| &mut f.data_exposed, [0.01, 1.0], 0.7),
    framework("gather exposed", |f| &mut f.gather_exposed, [0.01, 1.0], 0.7),
    framework("growth", |f| &mut f.jitter, [1e-4, 0.05], 1.0),
    framework("optimizer launch", |f| &mut f.optimizer_launch, [1e-5, 2e-2], 1.0),
];

const fn chip(
    name: &'static str,
    place: fn(&mut Chip) -> &mut f64,
    limits: [f64; 2],
    width: f64,
) -> Constant {
    Constant { name, place: Place::Chip(place), limits, width }
}

const fn framework(
    name: &'static str,
    place: fn(&mut Framework) -> &mut f64,
    limits: [f64; 2],
    width: f64,
) -> Constant {
    Constant { name, place: Place::Framework(place), limits, width }
}

pub fn set(chip: &mut Chip, framework: &mut Framework, name: &str, value: f64) -> bool {
    let constant = all().find(|constant| constant.name == name);
    if let Some(constant) = constant {
        *constant.of(chip, framework) = value;
    }
    constant.is_some()
}

pub fn all() -> impl Iterator<Item = &'static Constant> {
    OF_FRAMEWORK.iter().chain(OF_CHIP)
}

impl Constant {
    pub fn of<'c>(&self, chip: &'c mut Chip, framework: &'c mut Framework) -> &'c mut f64 {
        match self.place {
            Place::Chip(place) => place(chip),
            Place::Framework(place) => place(framework),
        }
    }

    pub fn is_of_chip(&self) -> bool {
        matches!(self.place, Place::Chip(_))
    }
}
