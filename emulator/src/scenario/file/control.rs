// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::Check;
use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{ScenarioFile, codes};
use crate::scenario::{ControlDelays, DaemonSetup, Effect, On, Scenario};

/// Response to faults: assumed delays, or the production daemon with emulated transceivers.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ControlFile {
    /// Time from a fault to its detection; default 1 ms (an assumption; depends on the heartbeat).
    pub detection_delay: Option<Text<Picoseconds>>,
    /// Time from detection to the next plan; default 1 ms (a conservative assumption: `cargo bench
    /// -p lightloom-planner` measures it).
    pub planning_delay: Option<Text<Picoseconds>>,
    /// Time from a fault or repair until flows are rerouted; defaults to `detection_delay`.
    pub reroute_delay: Option<Text<Picoseconds>>,
    /// The same delays under an explicit key.
    pub assumed: Option<AssumedFile>,
    /// The production daemon instead of delays; `control: lightloomd` uses all defaults.
    pub lightloomd: Option<DaemonSetup>,
}

/// Delays of an assumed control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AssumedFile {
    /// Time from a fault to its detection; default 1 ms.
    pub detection_delay: Option<Text<Picoseconds>>,
    /// Time from detection to the next plan; default 1 ms.
    pub planning_delay: Option<Text<Picoseconds>>,
    /// Time from a fault or repair until flows are rerouted; defaults to `detection_delay`.
    pub reroute_delay: Option<Text<Picoseconds>>,
}

pub(super) fn word_or_keys<'de, D: Deserializer<'de>>(from: D) -> Result<ControlFile, D::Error> {
    struct Either;
    impl<'de> Visitor<'de> for Either {
        type Value = ControlFile;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("`lightloomd`, `{lightloomd: {…}}` or `{assumed: {…}}`")
        }
        fn visit_str<E: Error>(self, word: &str) -> Result<ControlFile, E> {
            match word {
                "lightloomd" => Ok(ControlFile {
                    lightloomd: Some(DaemonSetup::default()),
                    ..Default::default()
                }),
                other => Err(E::custom(format!(
                    "`{other}` is not a control plane: write `lightloomd`, or `{{assumed: {{detection_delay: 1ms}}}}`"
                ))),
            }
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ControlFile, A::Error> {
            ControlFile::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_any(Either)
}

/// Schema of the values that [`word_or_keys`] accepts.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "schema only")]
pub(super) enum ControlSchema {
    /// The production daemon with all defaults.
    Word(ControlWord),
    /// Delays, or settings of the daemon.
    Keys(Box<ControlFile>),
}

/// A control plane by name.
#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "schema only")]
pub(super) enum ControlWord {
    /// The production daemon.
    Lightloomd,
}

pub(super) fn lower(raw: &ControlFile, check: &mut Check<'_>) -> ControlDelays {
    let flat = AssumedFile {
        detection_delay: raw.detection_delay,
        planning_delay: raw.planning_delay,
        reroute_delay: raw.reroute_delay,
    };
    let kinds = [flat != AssumedFile::default(), raw.assumed.is_some(), raw.lightloomd.is_some()];
    if kinds.into_iter().filter(|is_given| *is_given).count() > 1 {
        let message = "the scenario specifies more than one control plane";
        check
            .error(codes::NO_EFFECT, "/control", message)
            .help("write either `lightloomd` or `assumed: {detection_delay: …}`");
    }
    let assumed = raw.assumed.unwrap_or(flat);
    let default = ControlDelays::default();
    let detection_delay = assumed.detection_delay.map_or(default.detection_delay, |text| text.0);
    if let Some(daemon) = &raw.lightloomd {
        check_daemon(daemon, check);
    }
    let reroute_delay = assumed.reroute_delay.map_or(detection_delay, |text| text.0);
    ControlDelays {
        detection_delay,
        planning_delay: assumed.planning_delay.map_or(default.planning_delay, |text| text.0),
        reroute_delay: raw.lightloomd.map_or(reroute_delay, |daemon| daemon.reroute_delay.0),
        lightloomd: raw.lightloomd,
    }
}

fn check_daemon(daemon: &DaemonSetup, check: &mut Check<'_>) {
    let least = Picoseconds::from_millis(1);
    let serial =
        "use at least 1ms: reading a transceiver over its serial device takes about that long";
    let is_rate = (9_600..=50_000_000).contains(&daemon.bits_per_second);
    let is_count = (1..=100).contains(&daemon.power_samples);
    for (key, is_valid, message, help) in [
        ("poll_every", daemon.poll_every.0 >= least, "less than 1 ms", serial),
        ("heartbeat", daemon.heartbeat.0 >= least, "less than 1 ms", serial),
        ("bits_per_second", is_rate, "this is not a valid serial rate", "write 9600 to 50000000"),
        ("power_samples", is_count, "the number is out of range", "write 1 to 100"),
    ] {
        if !is_valid {
            let path = format!("/control/lightloomd/{key}");
            check.error(codes::BAD_CONTROL, &path, message).help(help);
        }
    }
}

/// A scenario lists its own faults first, then the ones from `faults_in`.
fn place_of_effect(raw: &ScenarioFile, index: usize) -> String {
    if index < raw.faults.len() { format!("/faults/{index}/effect") } else { "/faults_in".into() }
}

pub(super) fn refuse(raw: &ScenarioFile, scenario: &Scenario, check: &mut Check<'_>) {
    if scenario.control.lightloomd.is_none() {
        let faults = scenario.faults.iter().enumerate();
        for (index, fault) in faults.filter(|(_, fault)| fault.effect.needs_daemon()) {
            let message = format!("`{}` requires the shipped daemon", fault.effect.name());
            check
                .error(codes::BAD_CONTROL, &place_of_effect(raw, index), message)
                .help("write `control: lightloomd`");
        }
        return;
    }
    let has_light = match &scenario.on {
        On::Fabric(fabric) => fabric.hbd.ring().is_some() || fabric.dcn.circuits().is_some(),
        On::Network(_) => false,
    };
    if !has_light {
        let message =
            "`lightloomd` requires a k-hop ring or optical switches, and this scenario has neither";
        check.error(codes::BAD_CONTROL, "/control", message).help(
            "use `control: {assumed: …}`, or a fabric with `hbd: {khop: …}` or `dcn: {reconfigurable_fat_tree: …}`",
        );
    }
    if raw.replay.is_some() {
        let message = "`lightloomd` cannot respond to days in compressed time, because its serial devices and flushes are not compressed";
        check.error(codes::BAD_CONTROL, "/control", message).help(
            "use `span: 90d` and `failures: {trace: FILE}` for months under this daemon, or `broken_by` for one day of the trace",
        );
    }
    let mut faults = scenario.faults.iter();
    if let Some(index) = faults.position(|fault| matches!(fault.effect, Effect::Slower(_))) {
        check
            .error(
                codes::BAD_CONTROL,
                &place_of_effect(raw, index),
                "`slower` is supported only for assumed delays",
            )
            .help("use `{slow_disk: 50ms}`, or `{late: 20ms}` for a transceiver");
    }
}
