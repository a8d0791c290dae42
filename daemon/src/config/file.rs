// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::etcd::{EtcdFile, TracesFile};
use super::job_lines::JobLinesFile;
use crate::protocol::DriverFile;
use crate::protocol::agent::AgentTlsFile;
use crate::protocol::transceiver::{self, PathPolicy};
use lightloom_control::inventory::{OnDrift, Recovery};
use lightloom_control::management::DomainKind;
use lightloom_control::policy::{HealPolicy, OnFault};
use lightloom_control::record::OnFailure;
use lightloom_control::replan::{MayMove, MoveGroups};

/// The configuration file of `lightloomd`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DaemonFile {
    /// Directory of the journal and the audit log.
    pub state_dir: PathBuf,
    /// Unix socket of the API [default: `lightloomd.sock` in `state_dir`].
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// File with the key of the audit log, created at the first start [default: `audit.key` in
    /// `state_dir`].
    #[serde(default)]
    pub audit_key: Option<PathBuf>,
    /// Fabric file to check plans against. Without it, only targets by device are accepted.
    #[serde(default)]
    pub fabric: Option<PathBuf>,
    /// API over TCP, with mutual TLS only.
    #[serde(default)]
    pub tls: Option<TlsFile>,
    /// Several daemons for the same fabric, with one leader and a shared journal in etcd.
    #[serde(default)]
    pub etcd: Option<EtcdFile>,
    /// Automatic actions.
    #[serde(default)]
    pub policies: PoliciesFile,
    /// Commands run before and after changes.
    #[serde(default)]
    pub hooks: HooksFile,
    /// Export of traces of changes.
    #[serde(default)]
    pub traces: Option<TracesFile>,
    /// Phase requests from process groups of jobs, over TCP without authentication.
    #[serde(default)]
    pub job_lines: Option<JobLinesFile>,
    /// Individually listed devices.
    #[serde(default)]
    pub devices: Vec<DeviceFile>,
    /// Transceivers listed by pattern.
    #[serde(default)]
    pub modules: Vec<ModulesFile>,
    /// Points of failure in the management network that several devices share. Each serial line is
    /// a separate domain. Devices with the same host address are grouped automatically.
    #[serde(default)]
    pub management: Vec<ManagementFile>,
}

/// A failure domain of the management network.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ManagementFile {
    /// Name shown in the status.
    pub name: String,
    /// Type of the failure domain.
    pub kind: DomainKind,
    /// Devices in the domain, such as `n4/b0` or `ocs0`. A node `n4` includes all of its modules.
    pub lines: Vec<String>,
}

/// API over TCP.
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
    /// CA certificate that signs client certificates, PEM.
    pub client_ca: PathBuf,
    /// Clients and their roles. Clients whose certificates are not listed have no permissions.
    #[serde(default)]
    pub clients: Vec<ClientFile>,
}

/// A client.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientFile {
    /// Name in the audit log.
    pub name: String,
    /// SHA-256 of the client's certificate (DER), 64 hex digits.
    pub sha256: String,
    /// Roles of the client.
    pub roles: BTreeSet<Role>,
}

/// Commands run before and after changes. Each receives JSON on standard input.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HooksFile {
    /// Runs before an operator's apply or rollback. If the command fails, the change is refused and
    /// no circuit is switched.
    pub before: Option<HookFile>,
    /// Runs after a committed change.
    pub after: Option<HookFile>,
    /// Runs after a change that was not committed.
    pub failed: Option<HookFile>,
}

/// A command.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HookFile {
    /// Program and arguments, run without a shell.
    pub command: Vec<String>,
    /// Time limit after which the daemon kills the command [default: 10s].
    #[serde(default = "usual_hook_time")]
    pub within: Text<Picoseconds>,
}

fn usual_hook_time() -> Text<Picoseconds> {
    Text(Picoseconds::from_millis(10_000))
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Read,
    Plan,
    /// Request phases of the plan in force, as jobs do. Included in `apply`.
    Phase,
    Apply,
    Confirm,
    /// Read the modules' firmware data and registers. Writing firmware is not supported yet.
    Firmware,
}

/// Automatic actions.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoliciesFile {
    /// Action when a device does not reach its target.
    pub on_failure: OnFailure,
    /// Action when a daemon stopped during a transaction.
    pub recovery: Recovery,
    /// Action when the positions of a device change unexpectedly.
    pub on_drift: OnDrift,
    /// Action when a node or module fails.
    pub on_fault: OnFault,
    /// Healthy rings that an automatic bypass may move to keep GPUs in service [default: `own-job`].
    pub move_groups: Option<MoveGroups>,
    /// Maximum number of healthy circuits that a bypass may cut automatically [default: unlimited].
    pub max_healthy_circuits: Option<u32>,
    /// Return rings to their planned circuits after repairs [default: off]. Lists the jobs that
    /// consent to move while they run; others move only if all their nodes are drained.
    pub heal: Option<BTreeSet<String>>,
    /// Hours of the day for `heal` in UTC, such as `[22, 5]` for 22:00 to 05:00 [default: after
    /// each repair].
    pub heal_hours: Option<[u64; 2]>,
    /// How long a bypass waits for an unreachable module that it needs, and how long a node that no
    /// peer observes may be unreachable before the status reports it. An unreachable module is not
    /// treated as failed.
    pub heartbeat: Text<Picoseconds>,
    /// Maximum number of links in one failure domain that may be dark at the same time, at least 2.
    pub dark_links_max: u32,
    /// Interval between reads of an idle device.
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
            heal: None,
            heal_hours: None,
            heartbeat: Text(Picoseconds::from_millis(30_000)),
            dark_links_max: 1024,
            poll_every: Text(Picoseconds::from_millis(10_000)),
        }
    }
}

impl PoliciesFile {
    pub fn may_move(&self) -> MayMove {
        let groups = self.move_groups.unwrap_or_default();
        MayMove { groups, max_healthy_circuits: self.max_healthy_circuits }
    }

    pub fn heal_policy(&self) -> Option<HealPolicy> {
        let jobs = self.heal.clone()?;
        Some(HealPolicy { jobs, hours: self.heal_hours })
    }
}

/// A device.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceFile {
    /// Device name. Plans use names such as `ocs4` and `n17/b0`; targets can use any name.
    pub name: String,
    /// Protocol and address.
    pub driver: DriverFile,
    /// Limits that differ from the defaults.
    #[serde(default)]
    pub limits: LimitsFile,
    /// Drain controls: for each slot, a nexthop group of a Linux switch. The daemon drains a slot
    /// before it switches its circuit.
    #[serde(default, rename = "drain_controls")]
    pub levers: Vec<LeverFile>,
    /// Fault injection for drills.
    #[serde(default)]
    pub chaos: Option<Chances>,
}

/// Probabilities of injected faults, each from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Chances {
    /// The operation is refused and does not reach the device.
    pub refuse: f64,
    /// The device executes the operation, but it is reported as failed.
    pub fail: f64,
    /// The request is lost before the device receives it.
    pub lose_request: f64,
    /// The device executes the operation, but its reply is lost.
    pub lose_reply: f64,
}

/// A drain control of a slot.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeverFile {
    /// Slot number on this device.
    pub slot: u32,
    /// Name of the Linux switch.
    pub device: String,
    /// Nexthop group on that switch.
    pub group: u32,
}

/// Limits of a device. Omitted limits have their default values.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsFile {
    /// Time limit for the reply to one operation [default: 2s].
    pub reply_within: Option<Text<Picoseconds>>,
    /// How long to keep reading the device while its state is unknown [default: 30s].
    pub reconcile_within: Option<Text<Picoseconds>>,
    /// Time limit for light to settle [default: 1s].
    pub settle_within: Option<Text<Picoseconds>>,
    /// How long commands may still be executed after a session [default: 2s for switches, else 0].
    pub late_within: Option<Text<Picoseconds>>,
    /// How long late commands are undone after a failover [default: 1min; 0 with `election`].
    pub restore_late_within: Option<Text<Picoseconds>>,
    /// Minimum optical power of a lit slot in dBm [default: -14].
    pub power_min_dbm: Option<f64>,
    /// Number of consecutive good power readings that qualify a slot [default: 3].
    pub power_samples: Option<u32>,
}

/// Transceivers behind agents, by pattern.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentModulesFile {
    /// The agent, `host:port`.
    pub tcp: String,
    /// Name of the module in the agent's configuration.
    pub module: String,
    /// TLS identities of the agent and of this daemon.
    pub tls: AgentTlsFile,
}

/// Transceivers listed by pattern.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModulesFile {
    /// First and last node.
    pub nodes: [u32; 2],
    /// Number of bundles per node.
    pub bundles: u8,
    /// Serial line, with `{node}` and `{bundle}` as placeholders.
    #[serde(default)]
    pub serial: Option<String>,
    /// Alternative: the agent that gives access to the module, with `{node}` and `{bundle}` as
    /// placeholders in its address, name and module.
    #[serde(default)]
    pub agent: Option<AgentModulesFile>,
    /// Line rate in bits per second [default: 921600].
    #[serde(default = "transceiver::usual_rate")]
    pub bits_per_second: u32,
    /// Required state of the data paths while the module switches [default: hot].
    #[serde(default)]
    pub policy: PathPolicy,
    /// Limits that differ from the defaults.
    #[serde(default)]
    pub limits: LimitsFile,
}

#[cfg(test)]
mod tests {
    use crate::config;

    #[test]
    fn refuses_policies_that_disable_each_other() {
        let mistakes = |policies: &str| {
            let text = format!("state_dir: s\npolicies: {{{policies}}}\n");
            let (_, mistakes) = config::load("daemon.yaml", text.as_bytes());
            mistakes.into_iter().map(|mistake| mistake.message).collect::<Vec<_>>()
        };
        for (policies, said) in [
            ("move_groups: never", "with `on_fault: report`, no bypass starts automatically"),
            (
                "on_fault: bypass, move_groups: never, max_healthy_circuits: 2",
                "`move_groups: never` never cuts healthy circuits",
            ),
            (
                "on_fault: bypass, move_groups: ask, max_healthy_circuits: 2",
                "`move_groups: ask` always asks, whatever the number of circuits",
            ),
        ] {
            assert_eq!(mistakes(policies), [said], "{policies}");
        }
        for hours in ["[5, 5]", "[22, 25]"] {
            let policies = format!("heal: [], heal_hours: {hours}");
            assert_eq!(mistakes(&policies), ["this is not a range of hours"], "{hours}");
        }
        assert!(mistakes("heal: [], heal_hours: [22, 5]").is_empty());
        for policies in ["move_groups: ask", "move_groups: own-job, max_healthy_circuits: 0"] {
            assert!(mistakes(&format!("on_fault: bypass, {policies}")).is_empty(), "{policies}");
        }
    }
}
