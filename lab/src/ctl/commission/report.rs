// SPDX-License-Identifier: Apache-2.0
//! Findings of a commissioning, saved in a file and shown as a checklist.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use lightloom_control::commission::{Commission, Swap};
use lightloom_fabric::fabric::Fabric;
use serde::{Deserialize, Serialize};

use super::papers::{CablingRecord, SerialCheck};
use super::{
    CablingFinding, CommissionSite, DeviceName, DeviceStatus, FibreEnds, LEAST_DBM, LightSource,
    Position, Positions, Slot, files, findings, mdbm, output, show, swaps,
};

const LINES_MAX: usize = 40;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ModuleCheck {
    pub(super) module: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why_not_tried: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FibreReport {
    #[serde(flatten)]
    pub(super) fibre: FibreEnds,
    #[serde(flatten)]
    pub(super) finding: CablingFinding,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CommissionReport {
    pub(super) fabric: String,
    pub(super) fabric_sha256: String,
    pub(super) modules: Vec<ModuleCheck>,
    pub(super) serials: Option<SerialCheck>,
    pub(super) record: Option<CablingRecord>,
    pub(super) rounds: usize,
    pub(super) fibres: Vec<FibreReport>,
    pub(super) exchange: Vec<Swap>,
    pub(super) found: BTreeMap<String, LightSource>,
    /// Paths that the modules had before their test.
    pub(super) stood: BTreeMap<String, u32>,
}

impl CommissionReport {
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            bytes => {
                let shown = path.display();
                let bytes = bytes.with_context(|| format!("cannot read {shown}"))?;
                serde_json::from_slice(&bytes)
                    .with_context(|| format!("{shown} is not a file of commissioning findings"))
            }
        }
    }

    pub(super) fn save(&self, path: &Path) -> anyhow::Result<()> {
        files::write(path, output::json(self)?.as_bytes())
    }

    pub(super) fn begin(&mut self, fabric: &Fabric) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.fabric_sha256.is_empty() || self.fabric_sha256 == fabric.sha256,
            "the earlier findings belong to another fabric file (`{}`): use another file with --state, or remove this one",
            self.fabric
        );
        (self.fabric, self.fabric_sha256) = (fabric.name.clone(), fabric.sha256.clone());
        Ok(())
    }

    pub(super) fn remember_rest(&mut self, modules: &BTreeMap<String, DeviceStatus>) {
        for (name, module) in modules.iter().filter(|(_, module)| module.probed.is_empty()) {
            self.stood.insert(name.clone(), module.slots.get("0").copied().unwrap_or(0));
        }
    }

    /// Replaces earlier findings with readings of ends that now have circuits.
    pub(super) fn take_lit(&mut self, modules: &BTreeMap<String, DeviceStatus>) {
        for (name, module) in
            modules.iter().filter(|(_, module)| module.up && module.probed.is_empty())
        {
            for (slot, at) in &module.slots {
                let (end, power) = (format!("{name}.{at}"), module.power_dbm.get(slot));
                let power = power.copied().filter(|dbm| *dbm >= LEAST_DBM);
                match (power, module.neighbours.get(slot)) {
                    (Some(dbm), Some(by)) => {
                        let power_mdbm = mdbm(dbm);
                        self.found.insert(end, LightSource::End { end: by.clone(), power_mdbm });
                    }
                    (Some(_), None) => {}
                    (None, _) => drop(self.found.remove(&end)),
                }
            }
        }
    }

    pub(super) fn leave_out(&mut self, commission: &Commission) {
        let left_out = commission.left_out();
        let found = commission.found();
        for module in &mut self.modules {
            let mut ends =
                found.iter().filter(|(end, _)| end.starts_with(&format!("{}.", module.module)));
            if left_out.contains(&DeviceName::from(module.module.as_str()))
                && let Some((_, LightSource::Untried { why })) = ends.next()
            {
                module.why_not_tried = Some(why.clone());
            }
        }
    }

    pub(super) fn rest(&self, free: &[&DeviceStatus]) -> Positions {
        let rest = free.iter().map(|module| {
            let stood = self.stood.get(&module.name).copied().unwrap_or(Position::LOOPBACK.0);
            (DeviceName::from(module.name.as_str()), [(Slot(0), Position(stood))].into())
        });
        rest.collect()
    }

    pub(super) fn conclude(&mut self, site: &CommissionSite, margin_db: f64) {
        let fibres = site.fibres();
        let found = findings(&fibres, &self.found, |fibre| site.least_mdbm(fibre, margin_db));
        self.fibres =
            found.into_iter().map(|(fibre, finding)| FibreReport { fibre, finding }).collect();
        self.exchange = swaps(&fibres, &self.found);
    }

    pub(super) fn is_good(&self) -> bool {
        self.fibres.iter().all(|fibre| fibre.finding.is_good())
            && self.serials.as_ref().is_none_or(|serials| serials.wrong.is_empty())
            && self.record.as_ref().is_none_or(|record| record.wrong.is_empty())
    }

    pub(super) fn text(&self, state: &Path) -> String {
        let mut page = Checklist::default();
        let tried = self.modules.iter().filter(|module| module.why_not_tried.is_none()).count();
        page.item(
            !self.fibres.iter().any(FibreReport::is_untried),
            &format!("modules: {tried} of {} can be tested", self.modules.len()),
        );
        let not = self.modules.iter().filter_map(|module| {
            Some(format!("{}: {}", module.module, module.why_not_tried.as_ref()?))
        });
        page.lines(show::alike(&not.collect::<Vec<_>>()));
        if let Some(serials) = &self.serials {
            page.item(
                serials.wrong.is_empty(),
                &format!("serial numbers: {} match the inventory", serials.as_written),
            );
            page.lines(serials.wrong.clone());
        }
        if let Some(record) = &self.record {
            page.item(
                record.wrong.is_empty(),
                &format!("cabling record: {} fibres match the fabric", record.as_planned),
            );
            page.lines(record.wrong.clone());
        }
        let good = self.fibres.iter().filter(|fibre| fibre.finding.is_good()).count();
        page.item(
            good == self.fibres.len(),
            &format!(
                "light: {good} of {} fibres match the plan, {} rounds",
                self.fibres.len(),
                self.rounds
            ),
        );
        let tested = self.fibres.iter().filter(|fibre| !fibre.is_untried());
        let bad = tested.filter(|fibre| !fibre.finding.is_good());
        page.lines(bad.map(FibreReport::text).collect());
        match self.fibres.iter().filter(|fibre| fibre.is_untried()).count() {
            0 => {}
            untried => {
                page.lines(vec![format!("{untried} not tested: their modules cannot be tested")])
            }
        }
        page.lines(
            self.exchange
                .iter()
                .map(|Swap { plugs: [one, other], or: [third, fourth] }| {
                    format!("swap the plugs at {one} and {other}, or at {third} and {fourth}")
                })
                .collect(),
        );
        let end = match self.is_good() {
            true => "COMMISSIONED".to_owned(),
            false => format!(
                "NOT COMMISSIONED: fix the items below, then rerun with `--again`; findings saved in {}",
                state.display()
            ),
        };
        format!("{}: {end}\n{}", self.fabric, page.text)
    }
}

impl FibreReport {
    fn is_untried(&self) -> bool {
        matches!(self.finding, CablingFinding::Untried { .. })
    }

    fn text(&self) -> String {
        let FibreEnds { a, b } = &self.fibre;
        let says = match &self.finding {
            CablingFinding::AsPlanned { .. } => "as planned".to_owned(),
            CablingFinding::Weak { at_a_mdbm, at_b_mdbm, least_mdbm } => format!(
                "weak light: {:.1} dBm at {a}, {:.1} dBm at {b}, expected at least {:.1} dBm: dirty or bent fibre?",
                dbm(*at_a_mdbm),
                dbm(*at_b_mdbm),
                dbm(*least_mdbm)
            ),
            CablingFinding::OneWay { dark, power_mdbm } => format!(
                "no light at {dark}, {:.1} dBm at the other end: one fibre of the pair is broken or dirty",
                dbm(*power_mdbm)
            ),
            CablingFinding::Missing => {
                "no light at either end: the cable is missing, broken, or plugged into an untested port".to_owned()
            }
            CablingFinding::Untried { why } => format!("not tested: {why}"),
            CablingFinding::Elsewhere { at_a, at_b } => {
                format!("{a} is {}, {b} is {}", source(at_a), source(at_b))
            }
        };
        format!("{a} - {b}: {says}")
    }
}

fn source(source: &LightSource) -> String {
    match source {
        LightSource::End { end, .. } => format!("lit by {end}"),
        LightSource::Stranger { .. } => "lit by an untested end".into(),
        LightSource::Nothing => "dark".into(),
        LightSource::Untried { why } => format!("not tested ({why})"),
    }
}

#[derive(Default)]
struct Checklist {
    text: String,
}

impl Checklist {
    fn item(&mut self, is_good: bool, line: &str) {
        self.text += &format!("  [{}] {line}\n", if is_good { "x" } else { " " });
    }

    fn lines(&mut self, lines: Vec<String>) {
        let more = lines.len().saturating_sub(LINES_MAX);
        for line in lines.iter().take(LINES_MAX) {
            self.text += &format!("      {line}\n");
        }
        if more > 0 {
            self.text += &format!("      and {more} more: --format json shows all\n");
        }
    }
}

fn dbm(mdbm: i32) -> f64 {
    f64::from(mdbm) / 1000.0
}
