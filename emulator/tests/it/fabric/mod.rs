// SPDX-License-Identifier: Apache-2.0
//! A small k-hop ring over a fat-tree, for scenarios that tests run.

/// The fabric file.
pub(crate) const FABRIC: &str = "
kind: fabric
version: 2
name: test
hbd: {khop: {nodes: 24, gpus_per_node: 4, k: 3}}
dcn: {fat_tree: {nodes_per_tor: 2, tors_per_domain: 6}}
transceiver: {software_delay: 20us}
jobs: [{name: train, gpus: 64, tp: 16}]
";
