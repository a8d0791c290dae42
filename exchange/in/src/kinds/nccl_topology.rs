// SPDX-License-Identifier: Apache-2.0
//! NCCL's view of a host: the XML of `NCCL_TOPO_DUMP_FILE`.
//!
//! Source: `src/graph/xml.cc` of NVIDIA/nccl: `<gpu>` inside `<pci class="0x03…">`, whose `device`
//! is the PCI id of the product; `<net>` with `speed` in Mb/s for each port. Ids: the PCI ID
//! repository.

use std::collections::BTreeSet;

use super::LogKind;
use crate::logs::{HostShape, LogFile, Logs};
use crate::problem::LogTrouble;

pub(super) const KIND: LogKind = LogKind {
    name: "NCCL topology XML",
    from: "NCCL_TOPO_DUMP_FILE=topo.xml on one host",
    is: |file| {
        let head = file.head();
        head.contains("<system") && (head.contains("<pci") || head.contains("<cpu"))
    },
    read: |files, logs| {
        for file in files {
            if let Err(error) = read(file, logs) {
                logs.problem(file.whole(), LogTrouble::Unreadable(error));
            }
        }
    },
};

/// PCI ids of accelerators with their product names.
const PRODUCTS: &[(&str, &str)] = &[
    ("0x20b0", "A100 SXM4 40GB"),
    ("0x20b2", "A100 SXM4 80GB"),
    ("0x2324", "H800"),
    ("0x2330", "H100 SXM5 80GB"),
];

fn read(file: &LogFile<'_>, logs: &mut Logs) -> Result<(), String> {
    let text = String::from_utf8_lossy(file.bytes);
    let document = roxmltree::Document::parse(&text).map_err(|error| error.to_string())?;
    let all = || document.descendants().filter(|element| element.is_element());
    let gpus: Vec<_> = all().filter(|element| element.has_tag_name("gpu")).collect();
    if gpus.is_empty() {
        return Err("no <gpu> in it".to_owned());
    }
    let product = gpus.iter().find_map(|gpu| {
        let device = gpu.ancestors().find_map(|above| above.attribute("device"))?;
        PRODUCTS.iter().find(|(id, _)| *id == device)
    });
    let speeds = all().filter(|element| element.has_tag_name("net"));
    let speeds = speeds.filter_map(|net| net.attribute("speed")?.parse::<u64>().ok());
    let speeds: BTreeSet<u64> = speeds.filter(|speed| *speed > 0).collect();
    logs.shapes.push(HostShape {
        gpus: u32::try_from(gpus.len()).unwrap_or(u32::MAX),
        product: product.map(|(_, name)| (*name).to_owned()),
        bits_per_second: speeds
            .first()
            .filter(|_| speeds.len() == 1)
            .map(|speed| speed * 1_000_000),
        place: file.whole(),
    });
    Ok(())
}
