// SPDX-License-Identifier: Apache-2.0
//! Reads the name of a design: `khop:2`, `nvl:72`, `tpuv4`.

use super::Architecture;
use super::big_switch::BigSwitch;
use super::dgx::Dgx;
use super::fat_tree::FatTree;
use super::khop::{Khop, Shape};
use super::mixnet::Mixnet;
use super::nvl::Nvl;
use super::rfabric::{Optical, Rfabric};
use super::sip_ring::SipRing;
use super::torus::Torus;
use super::tpuv4::{Loss, Tpuv4};

/// The forms that are read, each with what it is.
const FORMS: [(&str, &str); 17] = [
    ("khop:K", "k-hop ring of OCS transceivers, closed; `khop:2`"),
    ("khop:K:line", "the same, not closed"),
    ("khop:K:spare", "closed, with a node more in each ring that passes light on"),
    ("big-switch", "one ideal switch: the bound nobody beats"),
    ("nvl:X", "NVLink switch domains of X GPUs; `nvl:72`"),
    ("nvl:XxN", "the same of N racks of X; `nvl:36x2`"),
    ("tpuv4", "cubes of 64, a fault loses its block"),
    ("tpuv4:strict", "cubes of 64, a fault loses its cube"),
    ("sip-ring", "fixed rings of the group size"),
    ("dgx", "servers of 8 GPUs"),
    ("torus:XxYxZ", "static tori; `torus:8x8x8`"),
    ("fat-tree:K", "electrical fat-tree of K-port switches, as few tiers as do; price only"),
    ("fat-tree:K:N", "the same of N tiers"),
    ("mixnet", "2 of 8 network cards on a fat-tree, 6 on optical switches; price only"),
    ("rfabric", "electrical leaves, optical switches above; price only"),
    ("rfabric:thin", "the same beside a 4:1 electrical core"),
    ("rfabric:core", "optical switches in the core only"),
];

/// A text that names no design.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an architecture; known: {known}")]
pub struct UnknownArchitecture {
    /// As read.
    pub text: String,
    /// What would be read, comma-separated.
    pub known: String,
}

/// Reads the name of a design.
///
/// # Errors
/// If it names none; the error lists the forms that do.
pub fn parse(text: &str) -> Result<Box<dyn Architecture>, UnknownArchitecture> {
    let (name, parameter) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
    let design: Option<Box<dyn Architecture>> = match (name, parameter) {
        ("khop", parameter) => khop(parameter).map(|design| Box::new(design) as _),
        ("nvl", parameter) => nvl(parameter).map(|design| Box::new(design) as _),
        ("torus", parameter) => torus(parameter).map(|design| Box::new(design) as _),
        ("fat-tree", parameter) => fat_tree(parameter).map(|design| Box::new(design) as _),
        ("mixnet", "") => Some(Box::new(Mixnet)),
        ("rfabric", "") => Some(Box::new(Rfabric { optical: Optical::AboveLeaves })),
        ("rfabric", "thin") => Some(Box::new(Rfabric { optical: Optical::AboveLeavesThinCore })),
        ("rfabric", "core") => Some(Box::new(Rfabric { optical: Optical::Core })),
        ("big-switch", "") => Some(Box::new(BigSwitch)),
        ("tpuv4", "") => Some(Box::new(Tpuv4 { loss: Loss::Block })),
        ("tpuv4", "strict") => Some(Box::new(Tpuv4 { loss: Loss::Cube })),
        ("sip-ring", "") => Some(Box::new(SipRing)),
        ("dgx", "") => Some(Box::new(Dgx)),
        _ => None,
    };
    design.ok_or_else(|| UnknownArchitecture {
        text: text.to_owned(),
        known: FORMS.map(|(form, _)| form).join(", "),
    })
}

fn khop(parameter: &str) -> Option<Khop> {
    let (k, shape) = match parameter.split_once(':') {
        Some((k, "spare")) => {
            return Some(Khop { k: number(k, 64)?, shape: Shape::Ring, has_spares: true });
        }
        None | Some((_, "ring")) => (parameter.trim_end_matches(":ring"), Shape::Ring),
        Some((k, "line")) => (k, Shape::Line),
        Some(_) => return None,
    };
    Some(Khop { k: number(k, 64)?, shape, has_spares: false })
}

fn nvl(parameter: &str) -> Option<Nvl> {
    let (gpus, racks) = parameter.split_once('x').unwrap_or((parameter, "1"));
    Some(Nvl { gpus_per_rack: number(gpus, 1 << 20)?, racks: number(racks, 1 << 10)? })
}

fn torus(parameter: &str) -> Option<Torus> {
    let sides: Vec<u32> =
        parameter.split('x').map(|side| number(side, 1 << 10)).collect::<Option<_>>()?;
    Some(Torus { sides: sides.try_into().ok()? })
}

fn fat_tree(parameter: &str) -> Option<FatTree> {
    let (radix, tiers) = match parameter.split_once(':') {
        None => (parameter, None),
        Some((radix, tiers)) => (radix, Some(number(tiers, 3)?)),
    };
    let radix = number(radix, 1 << 12).filter(|radix| radix.is_multiple_of(2))?;
    Some(FatTree { radix, tiers })
}

/// A whole number from 1 to `most`.
fn number(text: &str, most: u32) -> Option<u32> {
    text.parse().ok().filter(|number| (1..=most).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_shown() {
        let names = [
            "khop:2",
            "khop:3:line",
            "big-switch",
            "nvl:72",
            "nvl:36x2",
            "tpuv4",
            "tpuv4:strict",
            "sip-ring",
            "dgx",
            "torus:8x8x8",
            "fat-tree:64",
            "fat-tree:64:3",
            "mixnet",
            "rfabric",
            "rfabric:thin",
            "rfabric:core",
        ];
        for name in names {
            assert_eq!(parse(name).unwrap().name(), name);
        }
        assert_eq!(parse("khop:2:ring").unwrap().name(), "khop:2");
    }

    #[test]
    fn what_names_no_design_lists_those_that_are() {
        for text in [
            "",
            "khop",
            "khop:0",
            "khop:x",
            "khop:2:star",
            "nvl:",
            "nvl:-1",
            "torus:8x8",
            "fat-tree:63",
            "dgx:9",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("khop:K, khop:K:line, khop:K:spare, big-switch"), "{error}");
        }
    }
}
