// SPDX-License-Identifier: Apache-2.0
//! Known spellings of the facts that a draft needs. Only if no file has any of them is a fact absent;
//! otherwise it is not understood.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::logs::LogFile;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    Switches,
    Rate,
    Accelerators,
    GpusPerHost,
    Hosts,
    Jobs,
    Faults,
}

const SPELLINGS: &[(Fact, &[&str])] = &[
    (
        Fact::Switches,
        &[
            "SwitchName",
            "switch:",
            "switches:",
            "\"switches\"",
            "choice: switch",
            "\"switch\"",
            "tier-0",
            "topology-rack",
            "topology-block",
            "network-node-layer",
            "network_layers",
            "leaf",
            "topology.kubernetes.io/rack",
        ],
    ),
    (
        Fact::Rate,
        &[
            "gigabits_per_second",
            "gigabytes_per_second",
            "bandwidth",
            "LinkSpeed=",
            "link_rate",
            "speed=\"",
            "Gbps",
            "Gb/s",
            "GT/s",
        ],
    ),
    (
        Fact::Accelerators,
        &[
            "nvidia.com/gpu.product",
            "amd.com/gpu.product-name",
            "deviceProperties",
            "choice: xpu",
            "\"xpu\"",
            "<gpu ",
            "gres/gpu:",
            "NVIDIA",
            "INSTINCT",
            "Gaudi",
            "TPU",
        ],
    ),
    (
        Fact::GpusPerHost,
        &[
            "nvidia.com/gpu",
            "amd.com/gpu",
            "deviceProperties",
            "choice: xpu",
            "\"xpu\"",
            "<gpu ",
            "gres/gpu",
            "Gres=gpu",
        ],
    ),
    (
        Fact::Hosts,
        &[
            "NodeName=",
            "nodes:",
            "\"nodes\"",
            "Nodes=",
            "hostname",
            "nodeName",
            "\"kind\": \"Node\"",
        ],
    ),
    (Fact::Jobs, &["JobID", "job_id", "JobName", "\"jobs\""]),
    (
        Fact::Faults,
        &[
            "NODE_FAIL",
            "NotReady",
            "XID",
            "Xid",
            "isFatal",
            "isfatal",
            "BOOT_FAIL",
            "State=DOWN",
            "NodeHasDiskPressure",
        ],
    ),
];

/// Returns the first mention of each fact in these files.
pub(crate) fn of(files: &[LogFile<'_>]) -> BTreeMap<Fact, String> {
    let mut found = BTreeMap::new();
    for file in files {
        let text = file.text();
        for (fact, spellings) in SPELLINGS {
            let Entry::Vacant(entry) = found.entry(*fact) else { continue };
            if let Some(said) = spellings.iter().find(|spelling| text.contains(**spelling)) {
                entry.insert(format!("`{said}` in {}", file.name));
            }
        }
        if found.len() == SPELLINGS.len() {
            break;
        }
    }
    found
}
