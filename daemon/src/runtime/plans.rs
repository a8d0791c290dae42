// SPDX-License-Identifier: Apache-2.0
//! Files beside the journal: plans by their digest, while the journal speaks of them, and what was reported to be
//! broken.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, BufWriter, Error, ErrorKind, Write};
use std::path::{Path, PathBuf};

use lightloom_control::policy::PlanStore;
use lightloom_control::record::Broken;
use lightloom_fabric::plan::Plan;

/// The plans in a state folder.
#[derive(Debug)]
pub struct PlanFiles {
    folder: PathBuf,
    /// The digests of the plans that are kept as files.
    kept: BTreeSet<String>,
}

impl PlanFiles {
    /// The plans of this folder.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let digest =
            |name: &str| Some(name.strip_prefix("plan-")?.strip_suffix(".json")?.to_owned());
        let kept = files.filter_map(|file| digest(file.file_name().to_str()?)).collect();
        Self { folder: folder.to_owned(), kept }
    }

    fn file(&self, sha256: &str) -> PathBuf {
        self.folder.join(format!("plan-{sha256}.json"))
    }
}

impl PlanStore for PlanFiles {
    fn load(&self, sha256: &str) -> Option<Plan> {
        let file = std::fs::File::open(self.file(sha256)).ok()?;
        let plan: Option<Plan> =
            serde_json::from_reader(BufReader::with_capacity(64 << 10, file)).ok();
        plan.map(Plan::upgraded)
    }

    fn keep(&mut self, sha256: &str, plan: &Plan) {
        let file = self.file(sha256);
        // A file of this name holds this plan, or what a crash of the machine left of it.
        if self.load(sha256).is_none()
            && let Err(error) = write(&file, plan)
        {
            tracing::warn!(%error, file = %file.display(), "the plan could not be kept");
        }
        self.kept.insert(sha256.to_owned());
    }

    fn retain(&mut self, spoken_of: &BTreeSet<String>) {
        for old in self.kept.difference(spoken_of) {
            // One that cannot be deleted now is found again at the next start.
            let _ = std::fs::remove_file(self.file(old));
        }
        self.kept.retain(|sha256| spoken_of.contains(sha256));
    }
}

/// A plan's JSON is never in memory as a whole.
fn write(file: &Path, plan: &Plan) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(64 << 10, std::fs::File::create(file)?);
    serde_json::to_writer(&mut file, plan)?;
    file.flush()
}

fn reported_file(folder: &Path) -> PathBuf {
    folder.join("told.json")
}

/// What was reported to be broken and the journal does not keep, when the daemon ended. A file that cannot be
/// read costs that and nothing else.
#[must_use]
pub fn load_reported(folder: &Path) -> BTreeMap<String, Broken> {
    let file = reported_file(folder);
    let read = match std::fs::read(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return BTreeMap::new(),
        Err(error) => Err(error),
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(Error::from),
    };
    read.unwrap_or_else(|error| {
        let file = file.display();
        tracing::warn!(%error, %file, "what was reported to be broken cannot be read: report it again");
        BTreeMap::new()
    })
}

pub(super) fn keep_reported(folder: &Path, reported: &BTreeMap<String, Broken>) {
    let file = reported_file(folder);
    let kept = serde_json::to_vec(reported).map_err(Error::from);
    if let Err(error) = kept.and_then(|bytes| replace(&file, &bytes)) {
        tracing::warn!(%error, file = %file.display(), "what was reported could not be kept");
    }
}

/// Writes the file so that a crash leaves the old one or the new one.
fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = file.with_extension("json.new");
    let mut written = std::fs::File::create(&new)?;
    written.write_all(bytes)?;
    written.sync_data()?;
    std::fs::rename(&new, file)
}
