// SPDX-License-Identifier: Apache-2.0
//! The daemon's configuration file. `topologies/daemon.yaml` is an example.

mod etcd;
mod file;
mod job_lines;
pub mod linux;
mod management;
mod switches;

use std::collections::BTreeMap;
use std::path::PathBuf;

use lightloom_fabric::document::{self, Check, Code, Diagnostic};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::device_ports::DevicePorts;
use lightloom_units::id::{BundleId, NodeId, OcsId};
use lightloom_units::{Picoseconds, Text};

use lightloom_control::inventory::{Device, Inventory};
use lightloom_control::management::Management;
use lightloom_control::mover::{Follows, Limits};
use lightloom_control::policy::OnFault;
use lightloom_control::replan::MoveGroups;
use lightloom_control::state::{DeviceName, Micros, Sharing, Slot};

use crate::protocol::agent::{AgentModuleFile, AgentTlsFile};
use crate::protocol::transceiver::SerialFile;
use crate::protocol::{DriverFile, Kind};
pub use etcd::{EtcdFile, HttpTlsFile, TracesFile};
pub use file::{
    AgentModulesFile, Chances, ClientFile, DaemonFile, DeviceFile, HookFile, HooksFile, LeverFile,
    LimitsFile, ManagementFile, ModulesFile, PoliciesFile, Role, TlsFile,
};
pub use job_lines::JobLinesFile;

pub mod codes {
    use super::Code;

    const fn error(id: &'static str, title: &'static str) -> Code {
        Code { id, title }
    }
    pub const SAME_NAME: Code = error("LL0601", "Two devices have the same name");
    pub const NO_LEVER: Code =
        error("LL0602", "A drain control refers to a device that is not a Linux switch");
    pub const DEFAULT_PASSWORD: Code =
        error("LL0603", "A device uses its vendor's default password");
    pub const BAD_LIMIT: Code = error("LL0604", "A limit is out of range");
    pub const NO_EFFECT: Code = error("LL0610", "A policy has no effect with this setting");
    pub const BAD_CLIENT: Code = error("LL0605", "A client certificate hash is not 64 hex digits");
    pub const NOT_INSTALLED: Code = error("LL0606", "A device is not part of the fabric");
    pub const NO_LINE: Code =
        error("LL0607", "A management domain refers to a device that does not exist");
    pub const BAD_SERVER: Code =
        error("LL0609", "The settings for etcd or the trace collector are invalid");
    pub const BAD_JOB: Code = error("LL0611", "The settings of `job_lines` are invalid");
    pub const ALL: &[Code] = &[
        NO_EFFECT,
        SAME_NAME,
        NO_LEVER,
        DEFAULT_PASSWORD,
        BAD_LIMIT,
        BAD_CLIENT,
        NOT_INSTALLED,
        NO_LINE,
        BAD_SERVER,
        BAD_JOB,
    ];
}

#[derive(Clone, Debug)]
pub struct Config {
    pub file: DaemonFile,
    pub inventory: Inventory,
    pub drivers: BTreeMap<DeviceName, (DriverFile, Option<Chances>)>,
    pub bundles: BTreeMap<BundleId, DeviceName>,
    pub switches: BTreeMap<OcsId, DeviceName>,
    pub ports: BTreeMap<DeviceName, DevicePorts>,
}

const DEVICES_MAX: usize = 65_536;

pub fn load(file: &str, bytes: &[u8]) -> (Option<Config>, Vec<Diagnostic>) {
    document::load(file, bytes, |file, check| lower(file, None, check))
}

pub fn load_for(file: &str, bytes: &[u8], installed: &Fabric) -> (Option<Config>, Vec<Diagnostic>) {
    document::load(file, bytes, |file, check| lower(file, Some(installed), check))
}

fn lower(file: DaemonFile, installed: Option<&Fabric>, check: &mut Check<'_>) -> Option<Config> {
    let mut config = Config {
        inventory: inventory(&file.policies),
        drivers: BTreeMap::new(),
        bundles: BTreeMap::new(),
        switches: BTreeMap::new(),
        ports: BTreeMap::new(),
        file,
    };
    let policies = &config.file.policies;
    if policies.dark_links_max < 2 {
        let path = "/policies/dark_links_max";
        let message = "the limit must be at least 2, because a cycle of circuits cannot be \
            switched with one dark link";
        check.error(codes::BAD_LIMIT, path, message).help("use 2 or more");
    }
    check_moves(policies, check);
    for (index, client) in config.file.tls.iter().flat_map(|tls| &tls.clients).enumerate() {
        let hex = client.sha256.len() == 64 && client.sha256.bytes().all(|b| b.is_ascii_hexdigit());
        if !hex {
            let path = format!("/tls/clients/{index}/sha256");
            check
                .error(codes::BAD_CLIENT, &path, "not the SHA-256 of a certificate")
                .help("compute it with `openssl x509 -in client.pem -outform der | sha256sum`");
        }
    }
    if let Some(etcd) = &config.file.etcd {
        etcd.check(check);
    }
    if let Some(traces) = &config.file.traces {
        traces.check(check);
    }
    if let Some(lines) = &config.file.job_lines {
        lines.check(check);
    }
    let hooks = &config.file.hooks;
    for (name, hook) in
        [("before", &hooks.before), ("after", &hooks.after), ("failed", &hooks.failed)]
    {
        if hook.as_ref().is_some_and(|hook| hook.command.iter().all(String::is_empty)) {
            let path = format!("/hooks/{name}/command");
            check.error(codes::BAD_LIMIT, &path, "the hook has no command").help(
                "set the program and its arguments, such as `command: [/usr/local/bin/before, \
                    --quiet]`",
            );
        }
    }
    let devices = config.file.devices.clone();
    for (index, device) in devices.into_iter().enumerate() {
        config.add(&format!("/devices/{index}"), device, check);
    }
    let modules = config.file.modules.clone();
    for (index, modules) in modules.iter().enumerate() {
        config.add_modules(&format!("/modules/{index}"), modules, check);
    }
    config.check_levers(check);
    config.manage(check);
    if let Some(installed) = installed {
        config.check_installed(installed, check);
        if let Some(network) = installed.dcn.circuits() {
            config.number_switches(&installed.name, network, check);
        }
    }
    (!check.has_errors()).then_some(config)
}

fn check_moves(policies: &PoliciesFile, check: &mut Check<'_>) {
    let PoliciesFile { on_fault, move_groups, max_healthy_circuits, .. } = policies;
    if policies.heal_hours.is_some_and(|[from, to]| from == to || from.max(to) > 24) {
        check
            .error(codes::NO_EFFECT, "/policies/heal_hours", "this is not a range of hours")
            .help("use two different hours from 0 to 24, such as [22, 5], or omit this");
    }
    if *on_fault == OnFault::Report {
        let message = "with `on_fault: report`, no bypass starts automatically";
        let keys = [
            move_groups.map(|_| "/policies/move_groups"),
            max_healthy_circuits.map(|_| "/policies/max_healthy_circuits"),
        ];
        for key in keys.into_iter().flatten() {
            let help = "use `on_fault: bypass`, or omit this";
            check.error(codes::NO_EFFECT, key, message).help(help);
        }
        return;
    }
    let message = match (move_groups, max_healthy_circuits) {
        (Some(MoveGroups::Never), Some(_)) => "`move_groups: never` never cuts healthy circuits",
        (Some(MoveGroups::Ask), Some(_)) => {
            "`move_groups: ask` always asks, whatever the number \
            of circuits"
        }
        _ => return,
    };
    check
        .error(codes::NO_EFFECT, "/policies/max_healthy_circuits", message)
        .help("use `move_groups: own-job`, or omit this");
}

fn inventory(policies: &PoliciesFile) -> Inventory {
    Inventory {
        devices: BTreeMap::new(),
        fibres: BTreeMap::new(),
        hosts: BTreeMap::new(),
        management: Management::default(),
        dark_links_max: policies.dark_links_max as usize,
        poll_every: micros(policies.poll_every),
        on_failure: policies.on_failure,
        recovery: policies.recovery,
        on_drift: policies.on_drift,
    }
}

impl Config {
    pub fn journal_file(&self) -> PathBuf {
        self.file.state_dir.join("journal.log")
    }

    fn add(&mut self, path: &str, file: DeviceFile, check: &mut Check<'_>) {
        let name = DeviceName::from(file.name.as_str());
        let kind = file.driver.protocol().kind();
        let mut device = Device::new(kind.sharing());
        device.limits = limits(&file.limits, kind.sharing());
        if file.driver.protocol().refuses_late() && file.limits.restore_late_within.is_none() {
            device.limits.restore_late_within = Micros(0);
        }
        match kind {
            Kind::Transceiver { bits_per_second } => {
                device.follows = bits_per_second.map(|bits_per_second| Follows {
                    bits_per_second,
                    reply_written: file.limits.reply_within.is_some(),
                    settle_written: file.limits.settle_within.is_some(),
                });
            }
            Kind::OpticalSwitch { agent, .. } => {
                if let Some(agent) = agent {
                    device.limits.settle_poll = agent.poll;
                    if file.limits.settle_within.is_none() {
                        device.limits.settle_within = agent.within;
                    }
                }
            }
            Kind::LinuxSwitch { nodes } => {
                device.is_lever = true;
                for node in nodes {
                    self.inventory.hosts.entry(node).or_default().insert(name.clone());
                }
            }
        }
        for lever in &file.levers {
            let to = (lever.device.as_str().into(), Slot(lever.group));
            device.levers.insert(Slot(lever.slot), to);
        }
        if let Ok(bundle) = file.name.parse::<BundleId>() {
            device.domains.insert(Slot(0), bundle.node.to_string());
            self.bundles.insert(bundle, name.clone());
        } else if let Ok(ocs) = file.name.parse::<OcsId>() {
            self.switches.insert(ocs, name.clone());
        }
        let twice = self.inventory.devices.insert(name.clone(), device).is_some();
        if twice || self.inventory.devices.len() > DEVICES_MAX {
            let message = format!("`{name}` is already defined, or there are too many devices");
            check.error(codes::SAME_NAME, path, message).help("give each device a unique name");
        }
        self.drivers.insert(name, (file.driver, file.chaos));
    }

    fn add_modules(&mut self, path: &str, modules: &ModulesFile, check: &mut Check<'_>) {
        let [first, last] = modules.nodes;
        let count = (last.saturating_sub(first) as usize + 1) * usize::from(modules.bundles);
        if last < first || count > DEVICES_MAX {
            let message = format!("the range of nodes {first} to {last} is empty or too long");
            check
                .error(codes::BAD_LIMIT, &format!("{path}/nodes"), message)
                .help("use the first and the last node, such as [0, 719]");
            return;
        }
        for node in first..=last {
            for bundle in 0..modules.bundles {
                let name = BundleId { node: NodeId(node), bundle }.to_string();
                let driver = match (&modules.serial, &modules.agent) {
                    (Some(serial), None) => DriverFile::Ocstrx(SerialFile {
                        serial: with_numbers(serial, node, bundle),
                        bits_per_second: modules.bits_per_second,
                        policy: modules.policy,
                    }),
                    (None, Some(agent)) => DriverFile::Agent(AgentModuleFile {
                        tcp: with_numbers(&agent.tcp, node, bundle),
                        module: with_numbers(&agent.module, node, bundle),
                        tls: AgentTlsFile {
                            name: agent
                                .tls
                                .name
                                .as_deref()
                                .map(|name| with_numbers(name, node, bundle)),
                            ..agent.tls.clone()
                        },
                        serial: None,
                        policy: modules.policy,
                    }),
                    _ => {
                        check
                            .error(
                                codes::BAD_LIMIT,
                                path,
                                "the modules need exactly one connection",
                            )
                            .help("use either `serial` or `agent`");
                        return;
                    }
                };
                let limits = modules.limits.clone();
                let file = DeviceFile { name, driver, limits, levers: Vec::new(), chaos: None };
                self.add(path, file, check);
            }
        }
    }

    fn check_installed(&self, installed: &Fabric, check: &mut Check<'_>) {
        let (nodes, bundles) = (installed.hbd.nodes(), installed.hbd.k());
        let name = &installed.name;
        let help = match (bundles, installed.dcn.circuits()) {
            (0, Some(network)) => switches::switches_of(name, network),
            (0, None) => {
                format!("the fabric `{name}` has no transceivers with integrated switches")
            }
            _ => format!(
                "the fabric `{name}` has nodes n0 to n{} with bundles b0 to b{} each",
                nodes.saturating_sub(1),
                bundles - 1
            ),
        };
        let can_bypass = installed.circuits_alone().is_none();
        if !can_bypass && self.file.policies.on_fault == OnFault::Bypass {
            let message = "a reconfigurable fat-tree has no rings, so faults cannot be bypassed";
            check
                .error(codes::NOT_INSTALLED, "/policies/on_fault", message)
                .help("use `on_fault: report`, or omit it");
        }
        let mut missing = Vec::new();
        for job in self.file.policies.heal.iter().flatten() {
            if installed.jobs.iter().all(|one| one.name != *job) {
                missing.push(("/policies/heal".into(), format!("the fabric has no job `{job}`")));
            }
        }
        for (index, modules) in self.file.modules.iter().enumerate() {
            let last = modules.nodes[1];
            if last >= nodes {
                let message = format!("n{last} is not in the fabric");
                missing.push((format!("/modules/{index}/nodes"), message));
            }
            if modules.bundles > bundles {
                let message =
                    format!("the fabric has fewer than {} bundles per node", modules.bundles);
                missing.push((format!("/modules/{index}/bundles"), message));
            }
        }
        for (index, device) in self.file.devices.iter().enumerate() {
            let Ok(bundle) = device.name.parse::<BundleId>() else { continue };
            if bundle.node.0 >= nodes || bundle.bundle >= bundles {
                let message = format!("{bundle} is not in the fabric");
                missing.push((format!("/devices/{index}/name"), message));
            }
        }
        for (path, message) in missing {
            check.error(codes::NOT_INSTALLED, &path, message).help(&help);
        }
    }

    fn check_levers(&self, check: &mut Check<'_>) {
        for (index, device) in self.file.devices.iter().enumerate() {
            for (number, lever) in device.levers.iter().enumerate() {
                let name = DeviceName::from(lever.device.as_str());
                if !self.inventory.devices.get(&name).is_some_and(|d| d.is_lever) {
                    let path = format!("/devices/{index}/drain_controls/{number}/device");
                    let message = format!("`{name}` is not a device with the driver `linux`");
                    check.error(codes::NO_LEVER, &path, message).help(
                        "use the name of a Linux \
                        switch",
                    );
                }
            }
        }
    }
}

fn with_numbers(text: &str, node: u32, bundle: u8) -> String {
    text.replace("{node}", &node.to_string()).replace("{bundle}", &bundle.to_string())
}

fn limits(file: &LimitsFile, sharing: Sharing) -> Limits {
    let mut limits = Limits::configured(sharing);
    for (limit, configured) in [
        (&mut limits.reply_within, file.reply_within),
        (&mut limits.reconcile_within, file.reconcile_within),
        (&mut limits.read_within, file.reply_within),
        (&mut limits.switch_within, file.reply_within),
        (&mut limits.settle_within, file.settle_within),
        (&mut limits.late_within, file.late_within),
        (&mut limits.restore_late_within, file.restore_late_within),
        (&mut limits.dark_within, file.settle_within),
    ] {
        *limit = configured.map_or(*limit, micros);
    }
    if let Some(dbm) = file.power_min_dbm {
        #[expect(clippy::cast_possible_truncation, reason = "clamped")]
        let mdbm = (dbm * 1000.0).clamp(-99_000.0, 99_000.0) as i32;
        limits.power_min_mdbm = mdbm;
    }
    limits.power_samples = file.power_samples.unwrap_or(limits.power_samples);
    limits
}

pub(crate) fn micros(time: Text<Picoseconds>) -> Micros {
    Micros((time.0.get() / 1_000_000).max(1))
}
