// SPDX-License-Identifier: Apache-2.0
//! The device list: a YAML file of emulated devices and their faults.
//!
//! docs/devices.md describes the keys, with an example.

use std::net::SocketAddr;

use lightloom_fabric::document::{self, Check, Diagnostic, codes};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_firmware_api::message::Capabilities;
use lightloom_firmware_api::module::{Profile, padded};
use lightloom_firmware_api::path::Path;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Port as Entry;
use super::fault::DeviceFault;
use super::gnmi::GnmiSwitch;
use super::gnmi::file::GnmiFile;
use super::line::Faulty;
use super::rack::{AnyDevice, Rack, RackSlot};
use super::switch::{OpticalSwitch, SwitchSpec};
use super::transceiver::{Transceiver, TransceiverSpec};

const DEVICES_MAX: usize = 16_384;

/// Emulated devices and their faults.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceListFile {
    /// Seed of optical powers, switching times and byte faults.
    pub seed: u64,
    /// Transceivers with an integrated switch, each on a separate pty.
    pub transceivers: Vec<TransceiversFile>,
    /// Fabric file whose fibres connect the transceivers, which are named like its bundles. Without
    /// it, light always arrives.
    pub fabric: Option<String>,
    /// Optical circuit switches.
    pub switches: Vec<SwitchFile>,
    /// Scheduled faults.
    pub faults: Vec<FaultFile>,
}

/// Transceivers with common properties.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransceiversFile {
    /// Names; `{0..31}` expands to all numbers from 0 to 31.
    pub names: String,
    /// Path at power-on.
    #[serde(default)]
    pub power_on: PathWord,
    /// Time since power-on at the start of the run. It must be at least 0.65 s if the module has to
    /// carry traffic immediately.
    #[serde(default)]
    pub powered_for: Option<Text<Picoseconds>>,
    /// Time from a reset to the first response.
    #[serde(default)]
    pub boot: Option<Text<Picoseconds>>,
    /// Minimum time between two changes.
    #[serde(default)]
    pub dwell: Option<Text<Picoseconds>>,
    /// Version of the serial protocol. v1.1 has no events, and requires an arm command before each fire command.
    #[serde(default)]
    pub protocol: Protocol,
}

/// A version of the serial protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Protocol {
    /// Requests and replies.
    #[default]
    #[serde(rename = "v1.1")]
    V1_1,
    /// Adds events, and a combined arm-and-fire command.
    #[serde(rename = "v1.2")]
    V1_2,
}

/// A path, named as in plans.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathWord {
    /// No light is emitted.
    Dark,
    /// The light loops back.
    #[default]
    Loopback,
    /// The first fibre.
    #[serde(rename = "external-1")]
    External1,
    /// The second fibre.
    #[serde(rename = "external-2")]
    External2,
}

impl PathWord {
    fn path(self) -> Path {
        match self {
            Self::Dark => Path::DARK,
            Self::Loopback => Path::LOOPBACK,
            Self::External1 => Path::external(1).expect("path 1 exists"),
            Self::External2 => Path::external(2).expect("path 2 exists"),
        }
    }
}

/// An optical circuit switch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchFile {
    /// Name, which is also the TL1 source id.
    pub name: String,
    /// Number of ingress ports, numbered from 1.
    pub ingress: u16,
    /// Number of egress ports, numbered after the ingress ports.
    pub egress: u16,
    /// TCP address for SCPI, one client at a time.
    #[serde(default)]
    pub scpi: Option<String>,
    /// Whether SCPI is also available on a pty.
    #[serde(default)]
    pub scpi_serial: bool,
    /// TCP address for TL1.
    #[serde(default)]
    pub tl1: Option<String>,
    /// TL1 or gNMI user.
    #[serde(default)]
    pub user: Option<String>,
    /// TL1 or gNMI password.
    #[serde(default)]
    pub password: Option<String>,
    /// Settling time of the mirrors.
    #[serde(default)]
    pub switching: Option<Text<Picoseconds>>,
    /// Processing time per command.
    #[serde(default)]
    pub command: Option<Text<Picoseconds>>,
    /// Restart time.
    #[serde(default)]
    pub boot: Option<Text<Picoseconds>>,
    /// Whether the switch has power monitors; some models do not.
    #[serde(default)]
    pub power_monitors: Option<bool>,
    /// Whether TL1 clients receive autonomous messages about changes.
    #[serde(default)]
    pub autonomous: Option<bool>,
    /// gNMI with the OCP model, instead of SCPI and TL1.
    #[serde(default)]
    pub gnmi: Option<GnmiFile>,
    /// Whether slow TL1 commands are acknowledged before their responses.
    #[serde(default)]
    pub acknowledges: Option<bool>,
}

/// A scheduled fault.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultFile {
    /// Time since the start.
    pub at: Text<Picoseconds>,
    /// Device name.
    pub device: String,
    /// Fault: `lose 1%`, `duplicate 1%`, `garble 1%`, `late 5ms`, `half-open`, `stuck`, `stuck 3`,
    /// `lie`, `misdirect`, `slow 10`, `droop 3.5`, `reboot`, `reboot-in-commit`, `clear`.
    pub fault: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Pty(Entry),
    /// Port 0 selects a free port.
    Tcp(Entry, SocketAddr),
}

#[derive(Debug, Default)]
pub struct DeviceList {
    pub rack: Rack,
    pub endpoints: Vec<(RackSlot, Endpoint)>,
}

/// Parses a device list. Returns `None` if and only if a diagnostic is an error.
pub fn load(file: &str, bytes: &[u8]) -> (Option<DeviceList>, Vec<Diagnostic>) {
    load_beside(file, bytes, &mut |name| {
        Err(format!("{name}: references to other files are not supported here"))
    })
}

/// Like [`load`], but loads a referenced fabric file with `read`.
pub fn load_beside(
    file: &str,
    bytes: &[u8],
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> (Option<DeviceList>, Vec<Diagnostic>) {
    document::load(file, bytes, |list, check| build(list, read, check))
}

fn build(
    file: DeviceListFile,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
    check: &mut Check<'_>,
) -> Option<DeviceList> {
    let seed = Seed(file.seed);
    let mut list = DeviceList::default();
    for (index, group) in file.transceivers.iter().enumerate() {
        add_transceivers(&mut list, seed, group, index, check);
    }
    join(&mut list, &file, read, check);
    for (index, switch) in file.switches.iter().enumerate() {
        add_switch(&mut list, seed, switch, index, check);
    }
    for (index, fault) in file.faults.iter().enumerate() {
        schedule(&mut list, fault, index, check);
    }
    if list.endpoints.is_empty() && !check.has_errors() {
        check.error(codes::BAD_VALUE, "", "the list has no reachable device").help(
            "add `transceivers:`, or `switches:` with `scpi`, `scpi_serial`, `tl1` or `gnmi`",
        );
    }
    (!check.has_errors()).then_some(list)
}

fn add_transceivers(
    list: &mut DeviceList,
    seed: Seed,
    group: &TransceiversFile,
    index: usize,
    check: &mut Check<'_>,
) {
    let place = format!("/transceivers/{index}/names");
    let room = DEVICES_MAX - list.endpoints.len().min(DEVICES_MAX);
    let names = match expand(&group.names, room) {
        Ok(names) => names,
        Err(why) => {
            check.error(codes::BAD_SPELLING, &place, why).help("use the form `n{0..31}/b{0..1}`");
            return;
        }
    };
    for name in names {
        let number = list.endpoints.len() as u64;
        let spec = transceiver_spec(group, number);
        let device = Faulty::new(Transceiver::new(&spec, seed, number), seed, number);
        match list.rack.add(&name, AnyDevice::Transceiver(Box::new(device))) {
            Some(slot) => list.endpoints.push((slot, Endpoint::Pty(Entry::Frames))),
            None => {
                check.error(codes::BAD_VALUE, &place, format!("two devices are called `{name}`"));
                return;
            }
        }
    }
}

fn join(
    list: &mut DeviceList,
    file: &DeviceListFile,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
    check: &mut Check<'_>,
) {
    let Some(fabric) = &file.fabric else { return };
    let text = match read(fabric) {
        Ok(text) => text,
        Err(why) => {
            check
                .error(codes::BAD_VALUE, "/fabric", why)
                .help("use a fabric file next to this file");
            return;
        }
    };
    let installed = lightloom_fabric::file::load_with(fabric, text.as_bytes(), read, |_, _| ());
    let (Some(installed), _) = installed else {
        let message = format!("{fabric} has errors");
        let help = format!("`lightloom validate {fabric}` shows them");
        check.error(codes::BAD_VALUE, "/fabric", message).help(help);
        return;
    };
    refuse_strangers(&file.transceivers, &installed, check);
    for fibre in installed.hbd.fibres() {
        let (a, b) = installed.hbd.ports(fibre);
        let slots = [a, b].map(|port| Some((list.rack.slot(&port.bundle.to_string())?, port.path)));
        if let [Some(a), Some(b)] = slots {
            list.rack.join(a, b);
        }
    }
}

/// Reports bundles that the fabric does not have. Other names have no fibres.
fn refuse_strangers(groups: &[TransceiversFile], installed: &Fabric, check: &mut Check<'_>) {
    for (index, group) in groups.iter().enumerate() {
        let names = expand(&group.names, DEVICES_MAX).unwrap_or_default();
        let bundles = names.iter().filter_map(|name| name.parse().ok()).map(Part::Bundle);
        if let Err(stranger) = FaultSet::of(installed, bundles) {
            let place = format!("/transceivers/{index}/names");
            let help = "leave it out, or use another `fabric`";
            check.error(codes::BAD_VALUE, &place, stranger.to_string()).help(help);
        }
    }
}

fn transceiver_spec(group: &TransceiversFile, number: u64) -> TransceiverSpec {
    let mut profile = Profile::OCSTRX_800G;
    profile.serial = padded(&format!("E{number:07}"));
    if let Some(boot) = group.boot {
        profile.timing.boot_us = u32::try_from(boot.0.get() / 1_000_000).unwrap_or(u32::MAX);
    }
    if group.protocol == Protocol::V1_1 {
        profile.capabilities =
            profile.capabilities.without(Capabilities::EVENTS.and(Capabilities::GO));
    }
    if let Some(dwell) = group.dwell {
        profile.timing.dwell_us = u16::try_from(dwell.0.get() / 1_000_000).unwrap_or(u16::MAX);
    }
    let default = TransceiverSpec::default();
    TransceiverSpec {
        profile,
        power_on: [group.power_on.path(); 8],
        powered_for: group.powered_for.map_or(default.powered_for, |span| span.0),
    }
}

fn add_switch(
    list: &mut DeviceList,
    seed: Seed,
    file: &SwitchFile,
    index: usize,
    check: &mut Check<'_>,
) {
    for (key, ports) in [("ingress", file.ingress), ("egress", file.egress)] {
        if !(1..=4096).contains(&ports) {
            let message = format!("invalid number of {key} ports: {ports}");
            check.error(codes::OUT_OF_RANGE, &place(index, key), message).help("use 1 to 4096");
        }
    }
    if let Some(gnmi) = &file.gnmi {
        return add_gnmi(list, seed, file, gnmi, index, check);
    }
    let mut endpoints = Vec::new();
    for (key, port, at) in [("scpi", Entry::Scpi, &file.scpi), ("tl1", Entry::Tl1, &file.tl1)] {
        match at.as_ref().map(|text| (text, text.parse())) {
            Some((_, Ok(address))) => endpoints.push(Endpoint::Tcp(port, address)),
            Some((text, Err(_))) => {
                let message = format!("`{text}` is not an address with a port");
                check
                    .error(codes::BAD_SPELLING, &place(index, key), message)
                    .help("use the form `127.0.0.1:5025`; port 0 selects a free port");
            }
            None => {}
        }
    }
    endpoints.extend(file.scpi_serial.then_some(Endpoint::Pty(Entry::ScpiSerial)));
    if check.has_errors() {
        return;
    }
    let number = list.endpoints.len() as u64;
    let device = Faulty::new(OpticalSwitch::new(switch_spec(file), seed, number), seed, number);
    let device = AnyDevice::Switch(Box::new(device));
    add(list, &file.name, device, endpoints, &place(index, "name"), check);
}

fn add(
    list: &mut DeviceList,
    name: &str,
    device: AnyDevice,
    endpoints: Vec<Endpoint>,
    place: &str,
    check: &mut Check<'_>,
) {
    match list.rack.add(name, device) {
        Some(slot) => list.endpoints.extend(endpoints.into_iter().map(|at| (slot, at))),
        None => {
            drop(check.error(codes::BAD_VALUE, place, format!("two devices are called `{name}`")))
        }
    }
}

fn place(index: usize, key: &str) -> String {
    format!("/switches/{index}/{key}")
}

fn add_gnmi(
    list: &mut DeviceList,
    seed: Seed,
    file: &SwitchFile,
    gnmi: &GnmiFile,
    index: usize,
    check: &mut Check<'_>,
) {
    let others = [
        ("scpi", file.scpi.is_some()),
        ("scpi_serial", file.scpi_serial),
        ("tl1", file.tl1.is_some()),
        ("autonomous", file.autonomous.is_some()),
        ("acknowledges", file.acknowledges.is_some()),
    ];
    for (key, _) in others.iter().filter(|(_, is_there)| *is_there) {
        let message = format!("`{key}` is not supported for gNMI switches such as `{}`", file.name);
        check.error(codes::BAD_VALUE, &place(index, key), message).help("leave one of them out");
    }
    let Ok(address) = gnmi.listen.parse() else {
        let message = format!("`{}` is not an address with a port", gnmi.listen);
        let help = "use the form `127.0.0.1:9339`; port 0 selects a free port";
        check.error(codes::BAD_SPELLING, &place(index, "gnmi/listen"), message).help(help);
        return;
    };
    if check.has_errors() {
        return;
    }
    let number = list.endpoints.len() as u64;
    let device = Faulty::new(GnmiSwitch::new(gnmi.spec(file), seed, number), seed, number);
    let (device, endpoint) =
        (AnyDevice::Gnmi(Box::new(device)), Endpoint::Tcp(Entry::Gnmi, address));
    add(list, &file.name, device, vec![endpoint], &place(index, "name"), check);
}

fn switch_spec(file: &SwitchFile) -> SwitchSpec {
    let default = SwitchSpec::default();
    let (user, password) = default.login;
    SwitchSpec {
        name: file.name.clone(),
        ingress: file.ingress,
        egress: file.egress,
        switching: file.switching.map_or(default.switching, |span| span.0),
        command: file.command.map_or(default.command, |span| span.0),
        boot: file.boot.map_or(default.boot, |span| span.0),
        login: (file.user.clone().unwrap_or(user), file.password.clone().unwrap_or(password)),
        has_power_monitors: file.power_monitors.unwrap_or(default.has_power_monitors),
        is_autonomous: file.autonomous.unwrap_or(default.is_autonomous),
        acknowledges: file.acknowledges.unwrap_or(default.acknowledges),
    }
}

fn schedule(list: &mut DeviceList, file: &FaultFile, index: usize, check: &mut Check<'_>) {
    let fault: Option<DeviceFault> = match file.fault.parse() {
        Ok(fault) => Some(fault),
        Err(error) => {
            let place = format!("/faults/{index}/fault");
            check.error(codes::BAD_SPELLING, &place, format!("{error}"));
            None
        }
    };
    let slot = list.rack.slot(&file.device);
    if slot.is_none() && !check.has_errors() {
        let names = list.rack.devices().map(|(name, _)| name);
        let near = document::closest(&file.device, names).map(str::to_owned);
        let place = format!("/faults/{index}/device");
        let message = format!("device `{}` does not exist", file.device);
        let report = check.error(codes::BAD_VALUE, &place, message);
        if let Some(near) = near {
            report.help(format!("did you mean `{near}`?"));
        }
    }
    if let (Some(fault), Some(slot)) = (fault, slot) {
        if let Some(why) = list.rack.objection(slot, fault) {
            check
                .error(codes::BAD_VALUE, &format!("/faults/{index}/fault"), why)
                .help("use the form `cross 1 n2/b0.2`, with fibre ports of the `fabric`");
        }
        list.rack.schedule(SimTime::START + file.at.0, slot, fault);
    }
}

fn expand(pattern: &str, room: usize) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        let (range, after) = after.split_once('}').ok_or("unmatched `{`")?;
        let bounds = range.split_once("..").and_then(|(first, last)| {
            Some((first.parse::<u32>().ok()?, last.parse::<u32>().ok()?))
        });
        let (first, last) = bounds.ok_or_else(|| format!("`{{{range}}}` is not a range"))?;
        let width = last
            .checked_sub(first)
            .ok_or_else(|| format!("`{{{range}}}` is not in ascending order"))?;
        if names.len().saturating_mul(width as usize + 1) > room {
            return Err(format!("more than {DEVICES_MAX} devices"));
        }
        names = names
            .iter()
            .flat_map(|name| (first..=last).map(move |number| format!("{name}{before}{number}")))
            .collect();
        rest = after;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    if names.iter().any(String::is_empty) {
        return Err("a device name is empty".to_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let (list, diagnostics) = load("devices.yaml", text.as_bytes());
        assert_eq!(list.is_none(), !diagnostics.is_empty());
        diagnostics.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn patterns_expand_to_all_names() {
        let names = expand("n{0..1}/b{2..3}/m", 100).unwrap();
        assert_eq!(names, ["n0/b2/m", "n0/b3/m", "n1/b2/m", "n1/b3/m"]);
        assert_eq!(expand("plain", 1).unwrap(), ["plain"]);
        for wrong in ["", "n{0..", "n{x..3}", "n{3..1}", "n{0..4294967295}{0..4294967295}"] {
            assert!(expand(wrong, 100).is_err(), "{wrong}");
        }
    }

    #[test]
    fn complete_list_becomes_a_rack() {
        let text = "seed: 3\ntransceivers:\n  - names: n{0..3}/b{0..1}\n    power_on: external-1\n\
                    switches:\n  - {name: ocs0, ingress: 4, egress: 4, scpi: '127.0.0.1:0', scpi_serial: true}\n\
                    faults:\n  - {at: 2s, device: n1/b1, fault: stuck}\n";
        let (list, diagnostics) = load("devices.yaml", text.as_bytes());
        assert!(diagnostics.is_empty(), "{diagnostics:?}");
        let list = list.unwrap();
        assert_eq!(list.rack.devices().count(), 9);
        assert_eq!(list.endpoints.len(), 10);
        assert_eq!(list.rack.next_wakeup(), Some(SimTime::START + Picoseconds::from_millis(2_000)));
    }

    #[test]
    fn locates_every_mistake_in_a_list() {
        let text = "transceivers:\n  - names: n{0..}\nswitches:\n\
                    \x20 - {name: a, ingress: 0, egress: 4, scpi: localhost}\n\
                    faults:\n  - {at: 1s, device: a, fault: explode}\n";
        let lines = mistakes(text);
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[0].contains("devices.yaml:2:12") && lines[0].contains("not a range"));
        assert!(lines[1].contains("invalid number of ingress ports: 0"));
        assert!(lines[2].contains("`localhost` is not an address"));
        assert!(lines[3].contains("`explode` is not a fault"));
        let lines = mistakes(
            "transceivers:\n  - names: n{0..3}\nfaults:\n  - {at: 1s, device: n9, fault: lie}\n",
        );
        assert!(lines[0].contains("device `n9` does not exist"), "{lines:?}");
        assert!(mistakes("seed: 1\n")[0].contains("no reachable device"));
        let twice = "transceivers:\n  - names: a\n  - names: a\n";
        assert!(mistakes(twice)[0].contains("two devices are called `a`"));
    }
}
