// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use lightloom_daemon_api::body::{self, FaultBody, Mode, RawValue, RollbackBody};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::show::PreviewStyle;
use super::time;
use lightloom::choice::{OptionValue, one_of};
use lightloom::kinds;
use lightloom::output::WrongUsage;

/// Request body with the exact bytes of the plan file.
pub(super) type ApplyBody = body::ApplyBody<Box<RawValue>>;

const PLAN_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(super) struct Wanted {
    /// Plan, or a JSON file such as `{"target": {"ocs0": {"1": 25}}}`.
    #[arg(required_unless_present_any = ["again", "restore"], conflicts_with_all = ["again", "restore"])]
    plan: Option<PathBuf>,
    /// Reapply the last applied plan from the daemon's copy.
    #[arg(long)]
    again: bool,
    /// Restore the journal's positions on all reachable devices, as after a power failure.
    #[arg(long, conflicts_with_all = ["again", "phase", "mode"])]
    restore: bool,
    /// Phase to apply, for a plan with phases.
    #[arg(long, value_name = "NAME")]
    phase: Option<String>,
    /// Accepted differences from the journal, and treatment of other circuits.
    #[arg(long, default_value = "safe", value_parser = one_of(MODES))]
    mode: Mode,
    /// For a preview: show the bytes for every device, even where they are identical.
    #[arg(long)]
    bytes: bool,
}

#[derive(Debug, Args)]
pub(super) struct ApplyArguments {
    #[command(flatten)]
    pub(super) wanted: Wanted,
    /// Show what would be sent, but send nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Also cut circuits that carry light.
    #[arg(long)]
    pub(super) cut_light: bool,
    /// Roll back unless confirmed within this time, such as `5m` or `90s`.
    #[arg(long, value_name = "TIME", value_parser = time::some_time)]
    confirm_within: Option<Duration>,
    /// Refuse unless the daemon is at this version.
    #[arg(long, value_name = "N")]
    version_is: Option<u64>,
    /// For overwrite mode: the confirmation phrase that the dry run shows.
    #[arg(long, value_name = "WORDS")]
    confirmation: Option<String>,
    /// Request id; retries with the same id take effect only once [default: a new id].
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RollbackArguments {
    /// First transaction to undo.
    txn: u32,
    /// Show what would be sent, but send nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Also cut circuits that carry light, even if no plan remains.
    #[arg(long)]
    pub(super) cut_light: bool,
    /// Undo the rollback unless confirmed within this time, such as `5m` or `90s`.
    #[arg(long, value_name = "TIME", value_parser = time::some_time)]
    confirm_within: Option<Duration>,
    /// For a preview: show the bytes for every device, even where they are identical.
    #[arg(long)]
    bytes: bool,
}

#[derive(Debug, Args)]
pub(super) struct FaultArguments {
    /// Failed parts, such as `n17`, `n17/b0` or `n17/b0.2`, separated by spaces or commas.
    #[arg(value_name = "PART", value_delimiter = ',')]
    pub(super) broken: Vec<String>,
    /// Parts that work again, separated by spaces or commas.
    #[arg(long, value_name = "PART", value_delimiter = ',', num_args = 1..)]
    pub(super) repaired: Vec<String>,
    /// Show what would be sent, but send nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// For a preview: show the bytes for every device, even where they are identical.
    #[arg(long)]
    bytes: bool,
}

impl FaultArguments {
    pub(super) fn body(&self, request_id: String) -> anyhow::Result<FaultBody> {
        let (broken, repaired) = (listed(&self.broken), listed(&self.repaired));
        if broken.is_empty() && repaired.is_empty() {
            return Err(WrongUsage("no part given: list failed or repaired parts".into()).into());
        }
        if let Some(part) = broken.iter().find(|part| repaired.contains(part)) {
            let why = format!("{part} is listed both as failed and as repaired");
            return Err(WrongUsage(why).into());
        }
        let [broken, repaired] =
            [broken, repaired].map(|parts| parts.into_iter().map(str::to_owned).collect());
        Ok(FaultBody { request_id, broken, repaired })
    }

    pub(super) fn preview(&self) -> PreviewStyle {
        PreviewStyle { bytes: self.bytes, ..PreviewStyle::default() }
    }
}

const MODES: &[OptionValue<Mode>] = &[
    (Mode::Safe, "safe", "Refuse if any device differs from the journal"),
    (Mode::Update, "update", "Move the plan's slots from any position"),
    (
        Mode::Overwrite,
        "overwrite",
        "Make the devices match the plan exactly; everything else on them goes dark",
    ),
];

impl Wanted {
    /// Overwrite mode turns off circuits outside the plan, so it requires a confirmation.
    pub(super) fn preview(&self) -> PreviewStyle {
        let overwrites = self.mode == Mode::Overwrite;
        PreviewStyle { bytes: self.bytes, overwrites, ..PreviewStyle::default() }
    }

    pub(super) fn body(&self) -> anyhow::Result<ApplyBody> {
        let wanted = match &self.plan {
            None => ApplyBody { again: self.again, restore: self.restore, ..ApplyBody::default() },
            Some(plan) => read(plan)?,
        };
        Ok(ApplyBody { mode: self.mode, phase: self.phase.clone(), ..wanted })
    }
}

impl ApplyArguments {
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
    pub(super) fn body(&self, request_id: String) -> anyhow::Result<RollbackBody> {
        let confirm_within_ms = self.confirm_within.map(millis).transpose()?;
        Ok(RollbackBody { request_id, txn: self.txn, confirm_within_ms })
    }

    pub(super) fn preview(&self) -> PreviewStyle {
        PreviewStyle { bytes: self.bytes, ..PreviewStyle::default() }
    }
}

pub(super) fn listed(names: &[String]) -> Vec<&str> {
    names.iter().flat_map(|names| names.split([',', ' '])).filter(|name| !name.is_empty()).collect()
}

pub(super) fn millis(time: Duration) -> anyhow::Result<u64> {
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

#[derive(Deserialize)]
struct PositionsFile {
    target: BTreeMap<String, BTreeMap<u32, u32>>,
}

fn parse(shown: &str, bytes: Vec<u8>) -> anyhow::Result<ApplyBody> {
    let document = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(&bytes);
    if let Ok(document) = &document {
        if document.contains_key("target") {
            let PositionsFile { target } = serde_json::from_slice(&bytes).with_context(|| {
                format!(
                    "{shown} is not a target: it must set the positions of each device's ports or groups, as in \
                     {{\"target\": {{\"ocs0\": {{\"1\": 25}}}}}}; 0 is dark"
                )
            })?;
            return Ok(ApplyBody { target: Some(target), ..ApplyBody::default() });
        }
        if ["phases", "transceivers"].iter().any(|key| document.contains_key(*key)) {
            let text = String::from_utf8(bytes)
                .with_context(|| format!("{shown} is not a plan: it is not UTF-8 text"))?;
            let plan = RawValue::from_string(text)?;
            return Ok(ApplyBody { plan: Some(plan), ..ApplyBody::default() });
        }
    }
    let help = format!("run `lightloom plan {shown} -o plan.json`, then apply plan.json");
    kinds::expect(Path::new(shown), &bytes, "a plan", &help)?;
    match document {
        Err(error) => bail!("{shown} is not a plan ({error}): {help}"),
        Ok(_) => bail!(
            "{shown} is JSON without the `transceivers` or `phases` of a plan or a `target`: {help}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_plan_file_error_names_its_kind_and_the_plan_command() {
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
        assert!(why("gibberish").starts_with("x is not a plan (expected"));
        assert!(why("{}").contains("`transceivers`"));
        assert!(parse("x", b"{\"target\": {}}".to_vec()).is_ok());
        assert!(why("{\"target\": {\"ocs0\": 25}}").starts_with("x is not a target: it must"));
    }

    #[test]
    fn plan_is_sent_exactly_as_in_its_file() {
        let body = parse("x", b"{\"transceivers\":  [ ]}\n".to_vec()).unwrap();
        let sent = serde_json::to_string(&body).unwrap();
        assert!(sent.contains("\"plan\":{\"transceivers\":  [ ]},\"again\":false"), "{sent}");
    }
}
