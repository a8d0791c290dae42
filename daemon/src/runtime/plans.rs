//! The plans that are kept as files, by their hash, while the journal speaks of them.

use std::collections::BTreeSet;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use lightloom_fabric::plan::Plan;

use super::Runtime;
use lightloom_control::state::Txn;

const DROP_PLANS_EVERY: u32 = 64;

impl Runtime {
    fn plan_file(&self, sha256: &str) -> PathBuf {
        self.config.file.state_dir.join(format!("plan-{sha256}.json"))
    }

    /// Plans are kept so that a bypass can start from what is lit, also after a restart. A plan that
    /// cannot be kept only costs that: applying goes on.
    pub(super) fn keep_plan(&mut self, sha256: &str, plan: Plan) {
        let file = self.plan_file(sha256);
        // A file of this name holds this plan, or what a crash of the machine left of it.
        if self.load_plan(sha256).is_none()
            && let Err(error) = write(&file, &plan)
        {
            tracing::warn!(%error, file = %file.display(), "the plan could not be kept");
        }
        self.kept_plans.insert(sha256.to_owned());
        self.plans.insert(sha256.to_owned(), plan);
    }

    pub(super) fn load_plan(&self, sha256: &str) -> Option<Plan> {
        let file = std::fs::File::open(self.plan_file(sha256)).ok()?;
        let plan: Option<Plan> =
            serde_json::from_reader(BufReader::with_capacity(64 << 10, file)).ok();
        plan.map(Plan::upgraded)
    }

    /// After so many changes, for it takes a look at the whole history.
    pub(super) fn drop_old_plans_after(&mut self, txn: Txn) {
        if txn.0.is_multiple_of(DROP_PLANS_EVERY) {
            self.drop_old_plans();
        }
    }

    /// Deletes the plans that nothing in the journal speaks of any more, and nothing on its way.
    pub(super) fn drop_old_plans(&mut self) {
        let ledger = self.controller.ledger();
        let of_history = ledger
            .history
            .iter()
            .flat_map(|past| [&past.plan_sha256, &past.plan_before, &past.applied_before]);
        let now = [&ledger.plan_sha256, &ledger.applied_sha256];
        let open = ledger.open.as_ref().map(|open| &open.intent.plan_sha256);
        let spoken_of: BTreeSet<String> =
            of_history.chain(now).chain(open).chain(self.plans.keys()).cloned().collect();
        for old in self.kept_plans.difference(&spoken_of) {
            // One that cannot be deleted now is found again at the next start.
            let _ = std::fs::remove_file(self.plan_file(old));
        }
        self.kept_plans.retain(|sha256| spoken_of.contains(sha256));
    }
}

/// A plan's JSON is never in memory as a whole.
fn write(file: &Path, plan: &Plan) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(64 << 10, std::fs::File::create(file)?);
    serde_json::to_writer(&mut file, plan)?;
    file.flush()
}

/// The hashes of the plans whose files are in this folder.
pub(super) fn kept_in(state_dir: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(state_dir).into_iter().flatten().flatten();
    let hash = |name: &str| Some(name.strip_prefix("plan-")?.strip_suffix(".json")?.to_owned());
    files.filter_map(|file| hash(file.file_name().to_str()?)).collect()
}
