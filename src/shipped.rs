// SPDX-License-Identifier: Apache-2.0
//! The files in `topologies/` that verbs use by default, embedded because a package cannot read outside its folder.

pub const PRICES: &str = include_str!("../topologies/prices.yaml");
pub const RING_2880: &str = include_str!("../topologies/ring-2880.yaml");
pub const NODE_FAULT: &str = include_str!("../topologies/scenarios/node-fault.yaml");
pub const JOB_64_CIRCUITS: &str = include_str!("../topologies/job-64-circuits.yaml");
pub const FIRST_BILL: &str = include_str!("../topologies/scenarios/first-bill.yaml");
pub const SYNTHETIC_TRACE: &str = include_str!("../topologies/traces/synthetic.json");
pub const RFABRIC_2048: &str = include_str!("../topologies/rfabric-2048.yaml");
