// SPDX-License-Identifier: Apache-2.0
//! The daemon's file as people write it: its keys, their defaults, and nothing checked yet.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::etcd::{EtcdFile, TracesFile};
use crate::protocol::DriverFile;
use crate::protocol::agent::AgentTlsFile;
use crate::protocol::transceiver::{self, PathPolicy};
use lightloom_control::bypass::{MayMove, MoveGroups};
use lightloom_control::inventory::{OnDrift, Recovery};
use lightloom_control::management::DomainKind;
use lightloom_control::policy::OnFault;
use lightloom_control::record::OnFailure;

/// The file as people write it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DaemonFile {
    /// Where the journal and the audit log are kept.
    pub state_dir: PathBuf,
    /// The API's Unix socket [default: `lightloomd.sock` in `state_dir`].
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// The file with the audit log's key, made at the first start [default: `audit.key` in `state_dir`].
    #[serde(default)]
    pub audit_key: Option<PathBuf>,
    /// The fabric file that plans are checked against. Without it, only targets by device are taken.
    #[serde(default)]
    pub fabric: Option<PathBuf>,
    /// The API over TCP, with mutual TLS only.
    #[serde(default)]
    pub tls: Option<TlsFile>,
    /// Other daemons for the same fabric, one of which leads: their journal is in etcd.
    #[serde(default)]
    pub etcd: Option<EtcdFile>,
    /// What the operator wants done without being asked.
    #[serde(default)]
    pub policies: PoliciesFile,
    /// Commands around moves.
    #[serde(default)]
    pub hooks: HooksFile,
    /// Where a trace of each change goes.
    #[serde(default)]
    pub traces: Option<TracesFile>,
    /// Devices one by one.
    #[serde(default)]
    pub devices: Vec<DeviceFile>,
    /// Transceivers by pattern.
    #[serde(default)]
    pub modules: Vec<ModulesFile>,
    /// What carries the answers of several devices, and so can silence all of them at once. Each line is a domain of
    /// its own, and devices at one host share it as their server, without being written here.
    #[serde(default)]
    pub management: Vec<ManagementFile>,
}

/// A failure domain of management.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ManagementFile {
    /// Its name in the status.
    pub name: String,
    /// What it is.
    #[schemars(with = "DomainKindFile")]
    pub kind: DomainKind,
    /// Whose lines it carries: a device such as `n4/b0` or `ocs0`, or a node such as `n4` for all of its modules.
    pub lines: Vec<String>,
}

/// The API over TCP.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsFile {
    /// Address and port to listen on.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// The daemon's certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authority that signs client certificates, PEM.
    pub client_ca: PathBuf,
    /// Who may do what. A certificate that is not listed may do nothing.
    #[serde(default)]
    pub clients: Vec<ClientFile>,
}

/// One client.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientFile {
    /// Its name in the audit log.
    pub name: String,
    /// SHA-256 of its certificate (DER), 64 hex digits.
    pub sha256: String,
    /// What it may do.
    pub roles: BTreeSet<Role>,
}

/// Commands around moves, each with JSON on its standard input.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HooksFile {
    /// Before an operator's apply or rollback: if it fails, the change is refused and no light moves.
    pub before: Option<HookFile>,
    /// After any change that was committed.
    pub after: Option<HookFile>,
    /// After any change that was not.
    pub failed: Option<HookFile>,
}

/// A command.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HookFile {
    /// The program and its arguments; no shell is between.
    pub command: Vec<String>,
    /// It is killed after this time [default: 10s].
    #[serde(default = "usual_hook_time")]
    pub within: Text<Picoseconds>,
}

fn usual_hook_time() -> Text<Picoseconds> {
    Text(Picoseconds::from_millis(10_000))
}

/// What a client may do.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look at everything.
    Read,
    /// Have changes worked out.
    Plan,
    /// Ask for phases of the plan on the devices, as a job does; who may apply may that, too.
    Phase,
    /// Change what is lit.
    Apply,
    /// Confirm what waits for it.
    Confirm,
    /// Read what modules say of their firmware and their registers. No verb writes firmware yet.
    Firmware,
}

/// What the operator wants done without being asked.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoliciesFile {
    /// When a device does not get to its target.
    #[schemars(with = "OnFailureFile")]
    pub on_failure: OnFailure,
    /// When a dead daemon left a transaction half done.
    #[schemars(with = "RecoveryFile")]
    pub recovery: Recovery,
    /// When a device has moved by itself.
    #[schemars(with = "OnDriftFile")]
    pub on_drift: OnDrift,
    /// When a node or module dies.
    #[schemars(with = "OnFaultFile")]
    pub on_fault: OnFault,
    /// Which rings that lost nothing an automatic bypass may move, so that no GPUs are given up [default: `own-job`].
    #[schemars(with = "Option<MoveGroupsFile>")]
    pub move_groups: Option<MoveGroups>,
    /// The most circuits of such rings that are cut without asking [default: any number].
    pub max_healthy_circuits: Option<u32>,
    /// How long a silent module is waited for: by a bypass that needs it, and before the status names a node that no
    /// other sees. Silence is never death.
    pub heartbeat: Text<Picoseconds>,
    /// The most links of one failure domain that may be dark at a time, at least 2.
    pub dark_links_max: u32,
    /// How often an idle device is read.
    pub poll_every: Text<Picoseconds>,
}

impl Default for PoliciesFile {
    fn default() -> Self {
        Self {
            on_failure: OnFailure::default(),
            recovery: Recovery::default(),
            on_drift: OnDrift::default(),
            on_fault: OnFault::default(),
            move_groups: None,
            max_healthy_circuits: None,
            heartbeat: Text(Picoseconds::from_millis(30_000)),
            dark_links_max: 1024,
            poll_every: Text(Picoseconds::from_millis(10_000)),
        }
    }
}

impl PoliciesFile {
    /// What a bypass may do to rings that lost nothing.
    #[must_use]
    pub fn may_move(&self) -> MayMove {
        let groups = self.move_groups.unwrap_or_default();
        MayMove { groups, max_healthy_circuits: self.max_healthy_circuits }
    }
}

// The schema twins of policies that live with the pure core.
/// When a node or module dies.
#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "schema only")]
enum OnFaultFile {
    /// Say so.
    Report,
    /// Replan around it and apply the bypass.
    Bypass,
}

/// Which rings that lost nothing an automatic bypass may move.
#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "schema only")]
enum MoveGroupsFile {
    /// None: GPUs are given up instead.
    Never,
    /// Those of a job that lost something, which stands still.
    OwnJob,
    /// The same, once an operator accepts with `ctl fault`.
    Ask,
}

/// What carries answers.
#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "schema only")]
enum DomainKindFile {
    /// A line that several devices share.
    Line,
    /// A terminal server, or a host with several devices behind one address.
    Server,
    /// A program on a host through which its modules are reached.
    Agent,
    /// A switch of the management network.
    Switch,
}

#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "schema only")]
enum OnFailureFile {
    Rollback,
    Hold,
}
#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "schema only")]
enum RecoveryFile {
    FinishForward,
    RollBack,
}
#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "schema only")]
enum OnDriftFile {
    Report,
    Restore,
}

/// One device.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceFile {
    /// Its name: `ocs4` and `n17/b0` are the parts of a plan, any other name is reached by target.
    pub name: String,
    /// How to talk to it.
    pub driver: DriverFile,
    /// Limits other than the usual.
    #[serde(default)]
    pub limits: LimitsFile,
    /// What takes traffic off its slots before their light moves: a group of a Linux switch for each.
    #[serde(default, rename = "drain_controls", alias = "levers")]
    pub levers: Vec<LeverFile>,
    /// Fails operations on purpose, for drills.
    #[serde(default)]
    pub chaos: Option<Chances>,
}

/// Chances, each from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Chances {
    /// Refused without reaching the device.
    pub refuse: f64,
    /// Done by the device, reported as failed.
    pub fail: f64,
    /// Lost on the way: the device never hears of it.
    pub lose_request: f64,
    /// Done, and the answer lost.
    pub lose_reply: f64,
}

/// What takes traffic off a slot.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeverFile {
    /// The slot of this device.
    pub slot: u32,
    /// The Linux switch.
    pub device: String,
    /// Its nexthop group.
    pub group: u32,
}

/// Limits of a device; what is left out is as usual.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsFile {
    /// How long it may take to answer one operation [default: 2s].
    pub reply_within: Option<Text<Picoseconds>>,
    /// How long to keep reading it when its state is unknown [default: 30s].
    pub reconcile_within: Option<Text<Picoseconds>>,
    /// How long light may take to settle [default: 1s].
    pub settle_within: Option<Text<Picoseconds>>,
    /// How long after its session was given up a command may still be done [default: 2s for switches, else 0].
    pub late_within: Option<Text<Picoseconds>>,
    /// The least optical power of a lit slot in dBm [default: -14].
    pub power_min_dbm: Option<f64>,
    /// Good reads in a row before power is believed [default: 3].
    pub power_samples: Option<u32>,
}

/// Transceivers that agents reach, by pattern.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentModulesFile {
    /// The agent, `host:port`.
    pub tcp: String,
    /// What the agent's file calls the module.
    pub module: String,
    /// Who the agent must be, and who this is.
    pub tls: AgentTlsFile,
}

/// Transceivers by pattern.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModulesFile {
    /// First and last node.
    pub nodes: [u32; 2],
    /// Bundles of each node.
    pub bundles: u8,
    /// The line, with `{node}` and `{bundle}` for the numbers.
    #[serde(default)]
    pub serial: Option<String>,
    /// Or the agent that reaches them, with `{node}` and `{bundle}` in its address, name and module.
    #[serde(default)]
    pub agent: Option<AgentModulesFile>,
    /// Its rate [default: 921600].
    #[serde(default = "transceiver::usual_rate")]
    pub bits_per_second: u32,
    /// What must hold of the data paths when light moves [default: hot].
    #[serde(default)]
    pub policy: PathPolicy,
    /// Limits other than the usual.
    #[serde(default)]
    pub limits: LimitsFile,
}

#[cfg(test)]
mod tests {
    use crate::config;

    #[test]
    fn refuses_policies_that_leave_each_other_without_effect() {
        let mistakes = |policies: &str| {
            let text = format!("state_dir: s\npolicies: {{{policies}}}\n");
            let (_, mistakes) = config::load("daemon.yaml", text.as_bytes());
            mistakes.into_iter().map(|mistake| mistake.message).collect::<Vec<_>>()
        };
        for (policies, said) in [
            ("move_groups: never", "no bypass begins automatically with `on_fault: report`"),
            (
                "on_fault: bypass, move_groups: never, max_healthy_circuits: 2",
                "`move_groups: never` cuts no healthy circuit",
            ),
            (
                "on_fault: bypass, move_groups: ask, max_healthy_circuits: 2",
                "`move_groups: ask` asks for any number of circuits",
            ),
        ] {
            assert_eq!(mistakes(policies), [said], "{policies}");
        }
        for policies in ["move_groups: ask", "move_groups: own-job, max_healthy_circuits: 0"] {
            assert!(mistakes(&format!("on_fault: bypass, {policies}")).is_empty(), "{policies}");
        }
    }
}
