// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::{Style, render};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_planner::load;

pub(crate) fn fabric(text: &str) -> Fabric {
    let (fabric, mistakes) = load("f.yaml", text.as_bytes(), &mut |name| Err(format!("no {name}")));
    fabric.unwrap_or_else(|| panic!("{}", render(&mistakes, Style::Plain)))
}

pub(crate) fn faults(fabric: &Fabric, names: &[&str]) -> FaultSet {
    let parts = names.iter().map(|name| name.parse().expect("a part"));
    FaultSet::of(fabric, parts).expect("the fabric has them")
}
