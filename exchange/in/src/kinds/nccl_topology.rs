// SPDX-License-Identifier: Apache-2.0
//! Reads NCCL's topology of a host (XML), which NCCL writes to the file in `NCCL_TOPO_DUMP_FILE`.
//!
//! According to `src/graph/xml.cc` of NVIDIA/nccl, a `<gpu>` is inside a `<pci class="0x03…">` whose `device` is the
//! product's PCI id, and contains `<nvlink count=…>`. Files for `NCCL_TOPO_FILE` may contain only the `<pci>`. The
//! `host_hash` of a `<cpu>` distinguishes hosts that share NVLinks. The `speed` of a `<net>` is in Mb/s per port. The most frequent
//! rate is used, because hosts also have storage ports. The ids are from the PCI ID repository.

use std::collections::BTreeSet;

use super::LogKind;
use crate::logs::{HostShape, LogFile, Logs, most_common};
use crate::problem::FILE_SKIPPED;

pub(super) const KIND: LogKind = LogKind {
    name: "NCCL topology XML",
    from: "NCCL_TOPO_DUMP_FILE=topo.xml on one host",
    is: |text| text.contains("<system") && (text.contains("<pci") || text.contains("<cpu")),
    read: |files, logs| {
        for file in files {
            if let Err(error) = read(file, logs) {
                logs.problem(file.whole(), error, FILE_SKIPPED);
            }
        }
    },
};

const PRODUCTS: &[(&str, &str)] = &[
    ("0x20b0", "A100 SXM4 40GB"),
    ("0x20b2", "A100 SXM4 80GB"),
    ("0x20b5", "A100 PCIe 80GB"),
    ("0x20f1", "A100 PCIe 40GB"),
    ("0x20f3", "A800 SXM4 80GB"),
    ("0x2324", "H800"),
    ("0x2329", "H20"),
    ("0x2330", "H100 SXM5 80GB"),
    ("0x2331", "H100 PCIe"),
    ("0x2335", "H200 SXM 141GB"),
    ("0x2342", "GH200 120GB"),
    ("0x2901", "B200"),
    ("0x2941", "GB200"),
    ("0x3182", "B300"),
    ("0x31c2", "GB300"),
];

fn all<'a>(
    document: &'a roxmltree::Document<'a>,
    tag: &'static str,
) -> impl Iterator<Item = roxmltree::Node<'a, 'a>> {
    document.descendants().filter(move |one| one.has_tag_name(tag))
}

fn read(file: &LogFile<'_>, logs: &mut Logs) -> Result<(), String> {
    let text = file.text();
    let document = roxmltree::Document::parse(&text).map_err(|error| error.to_string())?;
    let mut gpus: Vec<_> = all(&document, "gpu").collect();
    if gpus.is_empty() {
        gpus = all(&document, "pci").collect();
        gpus.retain(|pci| pci.attribute("class").is_some_and(|class| class.starts_with("0x03")));
    }
    let Some(first) = gpus.first() else {
        return Err("neither <gpu> nor <pci class=\"0x03…\"> in it".to_owned());
    };
    let hosts: BTreeSet<_> =
        all(&document, "cpu").filter_map(|cpu| cpu.attribute("host_hash")).collect();
    let device = first.ancestors().find_map(|above| above.attribute("device"));
    let product = PRODUCTS.iter().find(|(id, _)| Some(*id) == device).map(|(_, name)| *name);
    let speeds =
        all(&document, "net").filter_map(|net| net.attribute("speed")?.parse::<u64>().ok());
    let speed = most_common(speeds.filter(|speed| *speed > 0));
    let links = first.children().filter(|child| child.has_tag_name("nvlink"));
    let links: u32 = links.filter_map(|link| link.attribute("count")?.parse::<u32>().ok()).sum();
    logs.shapes.push(HostShape {
        gpus: u32::try_from(gpus.len() / hosts.len().max(1)).unwrap_or(u32::MAX),
        product: product.or(device).map(str::to_owned),
        bits_per_second: speed.map(|speed| speed * 1_000_000),
        domain_links: Some(links).filter(|links| *links > 0),
        place: file.whole(),
    });
    Ok(())
}
