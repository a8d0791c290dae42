// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use lightloom_control::commission::FibreEnds;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
pub(super) struct InventoryRow {
    module: String,
    serial: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SerialCheck {
    pub(super) as_written: usize,
    pub(super) wrong: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CablingRecord {
    pub(super) as_planned: usize,
    pub(super) wrong: Vec<String>,
}

fn rows<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    let shown = path.display();
    let text = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_slice());
    let rows = reader.deserialize().collect::<Result<Vec<T>, _>>();
    rows.with_context(|| format!("cannot parse the table in {shown}"))
}

pub(super) fn inventory(path: &Path) -> anyhow::Result<Vec<InventoryRow>> {
    let places: Vec<InventoryRow> = rows(path)?;
    let (mut modules, mut serials) = (BTreeSet::new(), BTreeSet::new());
    for InventoryRow { module, serial } in &places {
        anyhow::ensure!(modules.insert(module), "{}: {module} appears twice", path.display());
        anyhow::ensure!(
            serials.insert(serial),
            "{}: serial number {serial} appears twice",
            path.display()
        );
    }
    Ok(places)
}

pub(super) fn cabling(path: &Path) -> anyhow::Result<Vec<FibreEnds>> {
    let cables: Vec<FibreEnds> = rows(path)?;
    let mut ends = BTreeSet::new();
    for end in cables.iter().flat_map(|FibreEnds { a, b }| [a, b]) {
        anyhow::ensure!(ends.insert(end), "{}: the end {end} appears twice", path.display());
    }
    Ok(cables)
}

pub(super) fn compare_serials(
    inventory: &[InventoryRow],
    found: &BTreeMap<String, String>,
) -> SerialCheck {
    let belongs: BTreeMap<&str, &str> =
        inventory.iter().map(|place| (place.serial.as_str(), place.module.as_str())).collect();
    let mut serials = SerialCheck::default();
    for InventoryRow { module, serial } in inventory {
        match found.get(module) {
            Some(there) if there == serial => serials.as_written += 1,
            Some(there) => serials.wrong.push(match belongs.get(there.as_str()) {
                Some(other) => {
                    format!("{module}: found {there}, which belongs to {other}; expected {serial}")
                }
                None => format!(
                    "{module}: found {there}, which is not in the inventory; expected {serial}"
                ),
            }),
            None => {
                serials.wrong.push(format!("{module}: expected {serial}, but no module answers"))
            }
        }
    }
    let written: BTreeSet<&str> = inventory.iter().map(|place| place.module.as_str()).collect();
    let unknown = found.iter().filter(|(module, _)| !written.contains(module.as_str()));
    serials.wrong.extend(unknown.map(|(module, serial)| {
        format!("{module}: found {serial}, but the inventory does not list this module")
    }));
    let mut places = BTreeMap::<&str, Vec<&str>>::new();
    for (module, serial) in found {
        places.entry(serial).or_default().push(module);
    }
    let twice = places.iter().filter(|(_, modules)| modules.len() > 1);
    serials.wrong.extend(twice.map(|(serial, modules)| {
        format!("serial number {serial} was found at {}", modules.join(" and "))
    }));
    serials
}

pub(super) fn compare_record(
    cables: &[FibreEnds],
    serials: &BTreeMap<String, String>,
    planned: &[FibreEnds],
) -> CablingRecord {
    let place: BTreeMap<&str, &str> =
        serials.iter().map(|(module, serial)| (serial.as_str(), module.as_str())).collect();
    let [wanted, written] = [planned, cables].map(|fibres| {
        let pairs = fibres.iter().map(|FibreEnds { a, b }| {
            let [a, b] = [a, b].map(|end| match end.rsplit_once('.') {
                Some((serial, path)) if place.contains_key(serial) => {
                    format!("{}.{path}", place[serial])
                }
                _ => end.to_owned(),
            });
            if a <= b { (a, b) } else { (b, a) }
        });
        pairs.collect::<BTreeSet<_>>()
    });
    let mut wrong: Vec<String> = written
        .difference(&wanted)
        .map(|(a, b)| format!("{a} - {b} is recorded, but the fabric has no such fibre"))
        .collect();
    wrong.extend(wanted.difference(&written).map(|(a, b)| format!("{a} - {b} is not recorded")));
    CablingRecord { as_planned: written.intersection(&wanted).count(), wrong }
}
