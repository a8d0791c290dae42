// SPDX-License-Identifier: Apache-2.0
//! High-bandwidth domains of the step model.
//!
//! Rates are per GPU and direction, with sources in brackets. A domain size of `u32::MAX` means any
//! group size. All architectures share one scale-out network, so results differ only by the domain.

use lightloom_fabric::document;

use super::network::{Network, ScaleOutLeaf, Shape};

/// One 400 Gb/s network card.
const SCALE_OUT_RATE: f64 = 50e9;
const H100_DOMAIN_RATE: f64 = 450e9;

/// * `khop:2`, `khop:3`, `khop:4`: ring of any size through the transceivers, 800 GB/s [recalled
///   cost table of InfiniteHBD].
/// * `nvl:36`, `nvl:72`, `nvl:576`: switched domain, 900 GB/s [GB200 data sheet].
/// * `dgx`: switched domain of 8 at the card's own rate (H100: 450 GB/s).
/// * `tpuv4`: torus of up to 4,096, six links of 45 GB/s [scaling book].
/// * `big-switch`: one switch for all GPUs at 800 GB/s, the upper bound at this rate.
///
/// Fails if the name is unknown. The message suggests alternatives.
pub fn architecture(name: &str) -> Result<Network, NoSuchArchitecture> {
    with_rates(name, [H100_DOMAIN_RATE, SCALE_OUT_RATE])
}

/// Like [`architecture`], with a domain rate (unless the architecture fixes it) and a scale-out rate in bytes/s.
pub fn with_rates(
    name: &str,
    [domain, scale_out]: [f64; 2],
) -> Result<Network, NoSuchArchitecture> {
    let (shape, domain_gpus, domain_rate) = match name {
        "khop:2" | "khop:3" | "khop:4" => (Shape::Ring, u32::MAX, 800e9),
        "nvl:36" => (Shape::Switch, 36, 900e9),
        "nvl:72" => (Shape::Switch, 72, 900e9),
        "nvl:576" => (Shape::Switch, 576, 900e9),
        "dgx" => (Shape::Switch, 8, domain),
        "tpuv4" => (Shape::Torus, 4096, 270e9),
        "big-switch" => (Shape::Switch, u32::MAX, 800e9),
        _ => return Err(NoSuchArchitecture { name: name.to_owned() }),
    };
    Ok(Network {
        name: name.to_owned(),
        shape,
        domain_gpus,
        domain_rate,
        scale_out_rate: scale_out,
        leaf: ScaleOutLeaf::NON_BLOCKING,
        cable_seconds: Network::usual_cables(shape),
    })
}

pub const ARCHITECTURES: [&str; 9] =
    ["khop:2", "khop:3", "khop:4", "nvl:36", "nvl:72", "nvl:576", "dgx", "tpuv4", "big-switch"];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown architecture `{name}`: {}", document::instead_of(name, &ARCHITECTURES))]
pub struct NoSuchArchitecture {
    name: String,
}
