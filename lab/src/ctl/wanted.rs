// SPDX-License-Identifier: Apache-2.0
//! What an apply or its preview is asked for: the plan file and the flags beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use lightloom_daemon_api::body::{self, FaultBody, RawValue, RollbackBody};
use lightloom_fabric::document;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::show::PreviewStyle;
use super::time;
use lightloom::kinds;
use lightloom::output::WrongUsage;

/// A wanted state; a plan in it stays the bytes that it is in its file.
pub(super) type ApplyBody = body::ApplyBody<Box<RawValue>>;

/// The largest plan file.
const PLAN_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(super) struct Wanted {
    /// The plan, or a JSON file `{"target": {"ocs0": {"1": 25}}}`.
    #[arg(required_unless_present_any = ["again", "restore"], conflicts_with_all = ["again", "restore"])]
    plan: Option<PathBuf>,
    /// The plan that was applied last, once more, from the daemon's own copy.
    #[arg(long)]
    again: bool,
    /// What the journal says, bypasses included, on every device that answers and stands elsewhere: after a loss of power.
    #[arg(long, conflicts_with_all = ["again", "phase", "mode"])]
    restore: bool,
    /// Which phase of a plan with phases.
    #[arg(long, value_name = "NAME")]
    phase: Option<String>,
    /// How much it may disturb.
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// Of a preview: the bytes of every device, also where they are the same.
    #[arg(long)]
    bytes: bool,
}

#[derive(Debug, Args)]
pub(super) struct ApplyArguments {
    #[command(flatten)]
    pub(super) wanted: Wanted,
    /// Show what would be sent, and send nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Cut circuits that carry light, too.
    #[arg(long)]
    pub(super) cut_light: bool,
    /// Roll back unless confirmed within this time, such as `5m` or `90s`.
    #[arg(long, value_name = "TIME", value_parser = time::some_time)]
    confirm_within: Option<Duration>,
    /// Refuse unless the daemon is at this version.
    #[arg(long, value_name = "N")]
    version_is: Option<u64>,
    /// For mode overwrite: the words that the dry run shows.
    #[arg(long, value_name = "WORDS")]
    confirmation: Option<String>,
    /// Act once under this id, however often it is sent [default: a fresh one].
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RollbackArguments {
    /// The transaction.
    txn: u32,
    /// Show what would be sent, and send nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Cut circuits that carry light also where no plan remains.
    #[arg(long)]
    pub(super) cut_light: bool,
    /// Undo the rollback unless confirmed within this time, such as `5m` or `90s`.
    #[arg(long, value_name = "TIME", value_parser = time::some_time)]
    confirm_within: Option<Duration>,
    /// Of a preview: the bytes of every device, also where they are the same.
    #[arg(long)]
    bytes: bool,
}

#[derive(Debug, Args)]
pub(super) struct FaultArguments {
    /// What broke: `n17`, `n17/b0`, `n17/b0.2`; several with spaces or commas between them.
    #[arg(value_name = "PART", value_delimiter = ',')]
    pub(super) broken: Vec<String>,
    /// What works again; several as well.
    #[arg(long, value_name = "PART", value_delimiter = ',', num_args = 1..)]
    pub(super) repaired: Vec<String>,
    /// Show what would be sent, and send nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Of a preview: the bytes of every device, also where they are the same.
    #[arg(long)]
    bytes: bool,
}

impl FaultArguments {
    /// What the API wants to know.
    ///
    /// # Errors
    /// No part, or one that broke and works again at once.
    pub(super) fn body(&self, request_id: String) -> anyhow::Result<FaultBody> {
        let (broken, repaired) = (listed(&self.broken), listed(&self.repaired));
        if broken.is_empty() && repaired.is_empty() {
            return Err(WrongUsage("name a part that broke or works again".into()).into());
        }
        if let Some(part) = broken.iter().find(|part| repaired.contains(part)) {
            let why = format!("{part} cannot be broken and work again at once");
            return Err(WrongUsage(why).into());
        }
        let [broken, repaired] =
            [broken, repaired].map(|parts| parts.into_iter().map(str::to_owned).collect());
        Ok(FaultBody { request_id, broken, repaired })
    }

    /// How its preview is shown.
    pub(super) fn preview(&self) -> PreviewStyle {
        PreviewStyle { bytes: self.bytes, overwrites: false, by_device: false }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Refuse when anything stands elsewhere than the journal says.
    #[default]
    Safe,
    /// Move what the plan names from wherever it stands.
    Update,
    /// Make devices exactly the plan: everything else on them goes dark.
    Overwrite,
}

impl Wanted {
    /// How its preview is shown; that everything else on the devices goes dark has to be confirmed
    /// in words.
    pub(super) fn preview(&self) -> PreviewStyle {
        PreviewStyle {
            bytes: self.bytes,
            overwrites: self.mode == Mode::Overwrite,
            by_device: false,
        }
    }

    /// What the API wants to know.
    ///
    /// # Errors
    /// A file that cannot be read or is no plan.
    pub(super) fn body(&self) -> anyhow::Result<ApplyBody> {
        let wanted = match &self.plan {
            None => ApplyBody { again: self.again, restore: self.restore, ..ApplyBody::default() },
            Some(plan) => read(plan)?,
        };
        let mode = match self.mode {
            Mode::Safe => body::Mode::Safe,
            Mode::Update => body::Mode::Update,
            Mode::Overwrite => body::Mode::Overwrite,
        };
        Ok(ApplyBody { mode, phase: self.phase.clone(), ..wanted })
    }
}

impl ApplyArguments {
    /// What the API wants to know.
    ///
    /// # Errors
    /// A file that cannot be read or is no plan.
    pub(super) fn body(&self, fresh_id: impl Fn(&str) -> String) -> anyhow::Result<ApplyBody> {
        Ok(ApplyBody {
            request_id: self.request_id.clone().unwrap_or_else(|| fresh_id("apply")),
            expected_version: self.version_is,
            confirm_within_ms: self.confirm_within.map(millis).transpose()?,
            confirmation: self.confirmation.clone(),
            ..self.wanted.body()?
        })
    }
}

impl RollbackArguments {
    /// What the API wants to know.
    ///
    /// # Errors
    /// A time that is too long.
    pub(super) fn body(&self, request_id: String) -> anyhow::Result<RollbackBody> {
        let confirm_within_ms = self.confirm_within.map(millis).transpose()?;
        Ok(RollbackBody { request_id, txn: self.txn, confirm_within_ms })
    }

    /// How its preview is shown.
    pub(super) fn preview(&self) -> PreviewStyle {
        PreviewStyle { bytes: self.bytes, overwrites: false, by_device: false }
    }
}

/// What is named with commas or spaces between, also where a comma is one too many.
pub(super) fn listed(names: &[String]) -> Vec<&str> {
    names.iter().flat_map(|names| names.split([',', ' '])).filter(|name| !name.is_empty()).collect()
}

fn millis(time: Duration) -> anyhow::Result<u64> {
    Ok(u64::try_from(time.as_millis())?)
}

fn read(path: &Path) -> anyhow::Result<ApplyBody> {
    let shown = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    if size > PLAN_BYTES_MAX {
        bail!("{shown} is larger than {PLAN_BYTES_MAX} bytes");
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    parse(&shown.to_string(), bytes)
}

/// A file with positions instead of a plan.
#[derive(Deserialize)]
struct PositionsFile {
    target: BTreeMap<String, BTreeMap<u32, u32>>,
}

/// What to send of a file. A plan is looked through and stays the bytes that it is: the daemon reads it.
fn parse(shown: &str, bytes: Vec<u8>) -> anyhow::Result<ApplyBody> {
    let document = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(&bytes);
    if let Ok(document) = &document {
        if document.contains_key("target") {
            let PositionsFile { target } = serde_json::from_slice(&bytes).with_context(|| {
                format!(
                    "{shown} is no target: write for each device where its ports or groups shall be, such as \
                     {{\"target\": {{\"ocs0\": {{\"1\": 25}}}}}}; 0 is dark"
                )
            })?;
            return Ok(ApplyBody { target: Some(target), ..ApplyBody::default() });
        }
        if ["phases", "transceivers"].iter().any(|key| document.contains_key(*key)) {
            let no_text = || format!("{shown} is no plan: a text in it is not UTF-8");
            let plan = RawValue::from_string(String::from_utf8(bytes).with_context(no_text)?)?;
            return Ok(ApplyBody { plan: Some(plan), ..ApplyBody::default() });
        }
    }
    let bytes = &bytes;
    let belongs = "a plan belongs here, as `lightloom plan` writes it";
    let kind = kinds::of_keys(&document::top_keys(bytes)).map(|kind| kind.name);
    match (kind, document) {
        (Some("fabric" | "rfabric"), _) => bail!(
            "{shown} is a fabric file, and {belongs}: `lightloom plan {shown} -o plan.json`, then \
             apply plan.json"
        ),
        (Some(kind), _) => bail!("{shown} is a {kind} file, and {belongs}"),
        (None, Err(error)) => bail!("{shown} is no plan ({error}), and {belongs}"),
        (None, Ok(_)) => bail!(
            "{shown} is JSON without the `transceivers` or `phases` of a plan or a `target`, and \
             {belongs}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plan_is_called_what_it_is_with_the_way_to_a_plan() {
        let why = |text: &str| {
            let Err(why) = parse("x", text.into()) else { panic!("{text} is a plan") };
            why.to_string()
        };
        let fabric = why(
            "kind: fabric\nversion: 2\nname: ring\nhbd: {khop: {nodes: 8, gpus_per_node: 4, k: 2}}\n",
        );
        let way = "`lightloom plan x -o plan.json`, then apply plan.json";
        assert!(fabric.starts_with("x is a fabric file") && fabric.ends_with(way), "{fabric}");
        assert!(why("state_dir: /tmp\npolicies: {}\n").starts_with("x is a daemon file"));
        assert!(why("gibberish").starts_with("x is no plan (expected"));
        assert!(why("{}").contains("`transceivers`"));
        assert!(parse("x", b"{\"target\": {}}".to_vec()).is_ok());
        assert!(why("{\"target\": {\"ocs0\": 25}}").starts_with("x is no target: write"));
    }

    #[test]
    fn a_plan_goes_out_as_it_is_in_its_file() {
        let body = parse("x", b"{\"transceivers\":  [ ]}\n".to_vec()).unwrap();
        let sent = serde_json::to_string(&body).unwrap();
        assert!(sent.contains("\"plan\":{\"transceivers\":  [ ]},\"again\":false"), "{sent}");
    }
}
