// SPDX-License-Identifier: Apache-2.0
//! What earlier versions kept in files beside the journal: plans, and what operators reported to be broken. It is
//! taken into the journal once; then the files go. What cannot be read stays where it is and is named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use lightloom_control::kept_plan::KeptPlan;
use lightloom_control::ledger::{Ledger, PLAN_ENTRIES_MAX};
use lightloom_control::record::{Asked, Broken, Cause, Record};
use lightloom_daemon_api::status::LostState;
use lightloom_fabric::plan::{EARLIER_SCHEMA, Plan, digest, is_called};
use serde_json::Value;

/// Reports were in this file.
const REPORTS: &str = "told.json";
/// Space was set aside in these.
const RESERVES: [&str; 2] = ["journal.log.reserve", "audit.log.reserve"];

/// What the files of an earlier version say beyond the journal.
#[derive(Debug, Default)]
pub struct Earlier {
    /// The same as records.
    pub records: Vec<Record>,
    /// What cannot be read.
    pub lost: Vec<LostState>,
    /// Files that are not needed any more once the records are durable.
    settled: Vec<PathBuf>,
}

impl Earlier {
    /// What there is in this folder beside a journal that came to `ledger`. Changes nothing.
    #[must_use]
    pub fn find(folder: &Path, ledger: &Ledger) -> Self {
        let mut earlier = Self::default();
        let files: BTreeMap<String, PathBuf> = plan_files(folder);
        let needed = ledger.plans_needed();
        let mut seen = BTreeSet::new();
        let mut entries = 0;
        for name in needed.iter().copied().chain(ledger.plans_of_history()) {
            let Some(file) = files.get(name).filter(|_| seen.insert(name)) else { continue };
            if ledger.plan_named(name).is_some() {
                continue;
            }
            match read_plan(name, file) {
                Ok(kept) => {
                    entries += kept.entries();
                    if needed.contains(name) || entries <= PLAN_ENTRIES_MAX {
                        earlier.records.push(Record::Plan(kept));
                    }
                }
                Err(why) => {
                    tracing::error!(file = %file.display(), why, "a plan is lost");
                    earlier.lost.extend(needed.contains(name).then(|| unreadable(file, &why)));
                    continue;
                }
            }
        }
        let lost = |file: &PathBuf| {
            earlier.lost.iter().any(|lost| lost.what == file.display().to_string())
        };
        let settled = files.into_values().filter(|file| !lost(file));
        earlier.settled.extend(settled);
        earlier.settled.extend(RESERVES.map(|name| folder.join(name)));
        earlier.find_reports(folder, ledger);
        earlier
    }

    fn find_reports(&mut self, folder: &Path, ledger: &Ledger) {
        let file = folder.join(REPORTS);
        let read = match fs::read(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => Err(error.to_string()),
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
        };
        let mut parts: BTreeMap<String, Broken> = match read {
            Ok(parts) => parts,
            Err(why) => {
                tracing::error!(file = %file.display(), why, "reports of broken parts are lost");
                return self.lost.push(LostState {
                    next: format!(
                        "report again what is broken: lightloom ctl fault PART; then remove {} and restart lightloomd",
                        file.display()
                    ),
                    ..unreadable(&file, &why)
                });
            }
        };
        // What was reported last was not in the file while its bypass was on its way.
        let open = ledger.open.as_ref().map(|open| &open.intent);
        let open = open.filter(|i| i.cause == Cause::Bypass && !i.asked.actor.is_policy());
        let news = open.iter().flat_map(|intent| intent.broken.iter().flatten());
        let news = news.filter(|(part, b)| !ledger.broken.contains_key(*part) && !b.suspected);
        parts.extend(news.map(|(part, broken)| (part.clone(), broken.clone())));
        self.settled.push(file);
        if !parts.is_empty() {
            let (request, digest) = (REPORTS.to_owned(), String::new());
            let asked = Asked { actor: "lightloomd".into(), request, digest };
            self.records.push(Record::Reported { asked, parts, wall_ms: 0 });
        }
    }

    /// Removes the files that are not needed any more: what they said is durable elsewhere.
    pub fn forget(&self) {
        for file in &self.settled {
            // One that cannot be removed now is found again at the next start.
            let _ = fs::remove_file(file);
        }
    }
}

/// The plans that the daemon should hold by what the journal came to, and does not.
#[must_use]
pub fn lost_plans(ledger: &Ledger) -> Vec<LostState> {
    let lost = |sha256: &str| !sha256.is_empty() && ledger.plan_named(sha256).is_none();
    let short = |sha256: &str| sha256.get(..12).unwrap_or(sha256).to_owned();
    let (now, applied) = (ledger.plan_sha256.as_str(), ledger.applied_sha256.as_str());
    let mut all = Vec::new();
    if lost(now) {
        all.push(LostState {
            what: format!("plan {}", short(now)),
            why: "it is on the devices, and nothing that breaks can be bypassed without it".into(),
            next: "apply its file again: lightloom ctl apply PLAN".into(),
        });
    }
    if applied != now && lost(applied) {
        all.push(LostState {
            what: format!("plan {}", short(applied)),
            why: "it was applied last, and bypasses have led to another since".into(),
            next: "apply its file again: lightloom ctl apply PLAN".into(),
        });
    }
    all
}

fn unreadable(file: &Path, why: &str) -> LostState {
    LostState {
        what: file.display().to_string(),
        why: why.to_owned(),
        next: format!(
            "put it back from a copy and restart lightloomd; or apply the plan again, lightloom ctl apply PLAN, and remove {}",
            file.display()
        ),
    }
}

fn plan_files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let named = |file: &fs::DirEntry| {
        let name = file.file_name();
        let name = name.to_str()?.strip_prefix("plan-")?.strip_suffix(".json")?;
        Some((name.to_owned(), file.path()))
    };
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| named(&file)).collect()
}

/// The plan of this name, if it is the one. The first versions named plans by bytes that are not kept: a plan of
/// their schema is taken as it is.
fn read_plan(name: &str, file: &Path) -> Result<KeptPlan, String> {
    let bytes = fs::read(file).map_err(|error| error.to_string())?;
    let document: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    let is_it = is_called(&document, name);
    let found = digest(&document);
    let plan: Plan = serde_json::from_value(document).map_err(|error| error.to_string())?;
    if !is_it && plan.schema != EARLIER_SCHEMA {
        return Err(format!("it does not match its digest: it is plan {found}"));
    }
    Ok(KeptPlan::called(name.to_owned(), plan.upgraded()))
}
