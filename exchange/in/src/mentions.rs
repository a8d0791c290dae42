// SPDX-License-Identifier: Apache-2.0
//! Spellings of the facts that a draft needs. A fact is reported as absent only if no file contains any of them.

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

const SPELLINGS: &[(Fact, &str)] = &[
    (
        Fact::Switches,
        "SwitchName\nswitch:\nswitches:\n\"switches\"\nchoice: switch\n\"switch\"\ntier-0\ntopology-rack\ntopology-block\nnetwork-node-layer\nnetwork_layers\nleaf\ntopology.kubernetes.io/rack",
    ),
    (
        Fact::Rate,
        "gigabits_per_second\ngigabytes_per_second\nbandwidth\nLinkSpeed=\nlink_rate\nspeed=\"\nGbps\nGb/s\nGT/s",
    ),
    (
        Fact::Accelerators,
        "nvidia.com/gpu.product\namd.com/gpu.product-name\ndeviceProperties\nchoice: xpu\n\"xpu\"\n<gpu \ngres/gpu:\nNVIDIA\nINSTINCT\nGaudi\nTPU",
    ),
    (
        Fact::GpusPerHost,
        "nvidia.com/gpu\namd.com/gpu\ndeviceProperties\nchoice: xpu\n\"xpu\"\n<gpu \ngres/gpu\nGres=gpu",
    ),
    (Fact::Hosts, "NodeName=\nnodes:\n\"nodes\"\nNodes=\nhostname\nnodeName\n\"kind\": \"Node\""),
    (Fact::Jobs, "JobID\njob_id\nJobName\n\"jobs\""),
    (
        Fact::Faults,
        "NODE_FAIL\nNotReady\nXID\nXid\nisFatal\nisfatal\nBOOT_FAIL\nState=DOWN\nNodeHasDiskPressure",
    ),
];

pub(crate) fn of(files: &[LogFile<'_>]) -> BTreeMap<Fact, String> {
    let mut found = BTreeMap::new();
    for file in files {
        let text = file.text();
        for (fact, spellings) in SPELLINGS {
            let Entry::Vacant(entry) = found.entry(*fact) else { continue };
            if let Some(said) = spellings.lines().find(|spelling| text.contains(spelling)) {
                entry.insert(format!("`{said}` in {}", file.name));
            }
        }
        if found.len() == SPELLINGS.len() {
            break;
        }
    }
    found
}
