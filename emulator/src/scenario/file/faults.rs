// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use lightloom_engine::transport::Transport;
use lightloom_fabric::document::{self, Check, Diagnostic};
use lightloom_units::id::NodeId;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{PhasesFile, codes};
use crate::scenario::{Effect, Flapping, PartName, RunStart, ScenarioFault, When};
use crate::substrate::{AnyPart, PacketSwitches, Substrate};

/// Faults for any scenario.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultListFile {
    /// Faults during the run.
    #[schemars(length(min = 1))]
    pub faults: Vec<FaultFile>,
}

/// A fault during the run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultFile {
    /// Failing part.
    #[serde(default)]
    pub part: Option<PartName>,
    /// Parts that fail together from one cause.
    #[serde(default)]
    pub parts: Vec<PartName>,
    /// Effect of the fault.
    #[serde(default)]
    pub effect: Effect,
    /// Limits the fault to the direction towards this end of the cable, such as `s0` for `h3-s0`.
    #[serde(default)]
    pub towards: Option<String>,
    /// Start time, relative to the start of the run or, with `phase`, to the end of the preceding
    /// phase.
    pub at: Text<Picoseconds>,
    /// Phase in which the fault occurs.
    #[serde(default)]
    pub phase: Option<String>,
    /// Step of that phase, from 0.
    #[serde(default)]
    pub step: Option<u32>,
    /// Length of the interval after `at` from which the start time is drawn.
    #[serde(default)]
    pub within: Option<Text<Picoseconds>>,
    /// Duration; permanent if omitted.
    #[serde(default)]
    pub lasts: Option<Text<Picoseconds>>,
    /// Repair time, relative to the same time as `at`. An alternative to `lasts`.
    #[serde(default)]
    pub repaired_at: Option<Text<Picoseconds>>,
    /// Share of seeds with this fault.
    #[serde(default = "certain")]
    #[schemars(range(min = 0, max = 1))]
    pub probability: f64,
}

fn certain() -> f64 {
    1.0
}

pub(super) struct FaultContext<'a> {
    substrate: &'a Substrate,
    switches: &'a PacketSwitches,
    phases: Vec<&'a str>,
    steps: u32,
    uses_circuits: bool,
}

impl<'a> FaultContext<'a> {
    pub(super) fn of(
        start: Option<&'a RunStart>,
        switches: &'a PacketSwitches,
        phases: Option<&PhasesFile>,
    ) -> Option<Self> {
        let start = start?;
        let circuits = start.circuits.iter().filter(|_| phases.is_some());
        let names = circuits.flat_map(|circuits| &circuits.plan.phases);
        Some(Self {
            substrate: &start.substrate,
            switches,
            phases: names.map(|phase| phase.name.as_str()).collect(),
            steps: phases.map_or(0, |phases| phases.steps),
            uses_circuits: start.circuits.is_some(),
        })
    }
}

/// Returns all errors in a fault file that can be found without a scenario.
pub fn check(file: &str, bytes: &[u8]) -> Vec<Diagnostic> {
    load(file, bytes, None).1
}

pub(super) fn load(
    file: &str,
    bytes: &[u8],
    ground: Option<&FaultContext<'_>>,
) -> (Option<Vec<ScenarioFault>>, Vec<Diagnostic>) {
    document::load(file, bytes, |raw: FaultListFile, check| {
        let faults = lower(&raw.faults, ground, check);
        (!check.has_errors()).then_some(faults)
    })
}

pub(super) fn lower(
    raw: &[FaultFile],
    ground: Option<&FaultContext<'_>>,
    check: &mut Check<'_>,
) -> Vec<ScenarioFault> {
    let mut faults = Vec::new();
    for (index, fault) in raw.iter().enumerate() {
        let path = format!("/faults/{index}");
        let effect = fault.effect;
        require_valid(&effect, &path, check);
        let written = written_parts(fault, &path, check);
        for (name, path) in &written {
            require(name, fault, &effect, ground, path, check);
        }
        let lasts = lower_duration(fault, &path, check);
        let ends_with = match effect {
            Effect::Flapping(_) => Some("times"),
            Effect::Reboots(_) => Some("reboots"),
            _ => None,
        };
        if let (Some(key), Some(_)) = (ends_with, lasts) {
            let place = if fault.lasts.is_some() { "lasts" } else { "repaired_at" };
            let message = format!("the effect `{}` already defines its duration", effect.name());
            check
                .error(codes::NO_EFFECT, &format!("{path}/{place}"), message)
                .help(format!("leave it out, or change `{key}`"));
        }
        if fault.towards.is_some() && !effect.has_direction() {
            let message = format!("`{}` cannot be limited to one direction", effect.name());
            check.error(codes::NO_EFFECT, &format!("{path}/towards"), message).help(
                "leave it out; only effects such as `down`, `rate` and `packet_loss` support it",
            );
        }
        faults.push(ScenarioFault {
            parts: written.into_iter().map(|(name, _)| name.clone()).collect(),
            effect,
            when: lower_time(fault, ground, &path, check),
            within: fault.within.map_or(Picoseconds::ZERO, |span| span.0),
            towards: fault.towards.clone(),
            lasts,
            probability: fault.probability,
        });
    }
    faults
}

fn require(
    name: &PartName,
    fault: &FaultFile,
    effect: &Effect,
    ground: Option<&FaultContext<'_>>,
    path: &str,
    check: &mut Check<'_>,
) {
    let Some(ground) = ground else {
        if !name.could_be() {
            let message = format!("`{name}` is not a valid part name");
            check
                .error(codes::NO_SUCH_THING, path, message)
                .help("use `n17`, `n17/b0`, `h3`, `h3/nic1`, `h3-s0` or `ocs3/p7`");
        } else if *effect == Effect::Stuck && name.0.trim().parse::<NodeId>().is_ok() {
            check
                .error(
                    codes::BAD_FAULT,
                    path,
                    "nodes do not receive commands, so they cannot be `stuck`",
                )
                .help(format!("use one of its bundles, such as `{name}/b0`"));
        }
        return;
    };
    let part = match AnyPart::named(&name.0) {
        Some(any) => match ground.substrate.part_at(any, 0) {
            Some(part) => part,
            None => {
                let message = format!("no part matches `{name}` in this scenario");
                check.error(codes::NO_SUCH_THING, path, message).depends_on("/on");
                return;
            }
        },
        None => match ground.substrate.part(&name.0) {
            Ok(part) => part,
            Err(error) => {
                let help = "parts are named as in `n3`, `n3/b0`, `n3/b0.1`, `ocs1`, `ocs1/p2` and `l0/up1`";
                let report = check.error(codes::NO_SUCH_THING, path, error.to_string()).help(help);
                report.depends_on("/on");
                return;
            }
        },
    };
    if let Err(reason) = effect.suits(&part) {
        check.error(codes::BAD_FAULT, path, reason);
    } else if let Some(end) = &fault.towards {
        let ends = ground.substrate.ends_of(&part);
        require_end(name, end, &ends, path, check);
    } else if !part.ports.is_empty() && !ground.uses_circuits {
        let message = "no workload uses the circuits of this optical switch";
        check
            .error(codes::NO_EFFECT, path, message)
            .help("add `phases: {}` or `train`")
            .depends_on("/phases");
    } else if let Effect::PauseStorm(_) = effect {
        require_priorities(ground.switches, path, check);
    }
}

fn require_end(
    name: &PartName,
    end: &str,
    ends: &BTreeSet<&str>,
    path: &str,
    check: &mut Check<'_>,
) {
    let place = format!("{}/towards", path.split("/part").next().unwrap_or(path));
    if AnyPart::named(&name.0).is_some() {
        let message = format!("`{name}` is random, so its ends are unknown");
        check
            .error(codes::NO_EFFECT, &place, message)
            .help("use a specific cable, such as `h3-s0`");
    } else if !ends.contains(end) {
        let some: Vec<String> = ends.iter().take(4).map(|end| format!("`{end}`")).collect();
        let message = format!("`{name}` has no cable to `{end}`");
        let help = match some.is_empty() {
            true => "leave it out: this part has no packet links".to_owned(),
            false => format!("use one of {}", some.join(", ")),
        };
        check.error(codes::NO_SUCH_THING, &place, message).help(help);
    }
}

fn require_priorities(switches: &PacketSwitches, path: &str, check: &mut Check<'_>) {
    if !switches.have_priorities() {
        let message = "no priority of these switches supports pauses";
        check
            .error(codes::BAD_FAULT, path, message)
            .help("write `switches: {pause: {priorities: [3], above: 100KiB}}`")
            .depends_on("/switches");
    }
}

fn lower_time(
    fault: &FaultFile,
    ground: Option<&FaultContext<'_>>,
    path: &str,
    check: &mut Check<'_>,
) -> When {
    let after = fault.at.0;
    let Some(name) = &fault.phase else {
        if fault.step.is_some() {
            let message = "`step` requires `phase`";
            check
                .error(codes::NO_EFFECT, &format!("{path}/step"), message)
                .help("write `phase: NAME`, or leave it out");
        }
        return When::At(SimTime(after.get()));
    };
    let step = fault.step.unwrap_or(0);
    let Some(ground) = ground else { return When::InPhase { step, phase: 0, after } };
    let phase = ground.phases.iter().position(|known| known == name);
    if phase.is_none() {
        let message = format!("phase `{name}` does not exist in the step");
        check
            .error(codes::NO_SUCH_PHASE, &format!("{path}/phase"), message)
            .help(match ground.phases.is_empty() {
                true => "add `phases: {}` for the phases of the fabric's step, or leave it out"
                    .to_owned(),
                false => format!("use one of: {}", ground.phases.join(", ")),
            })
            .depends_on("/on");
    } else if step >= ground.steps {
        let message = format!("the run has {} steps, counted from 0", ground.steps);
        check
            .error(codes::NO_SUCH_PHASE, &format!("{path}/step"), message)
            .help(format!("use a step of at most {}, or increase `steps`", ground.steps - 1));
    }
    When::InPhase { step, phase: phase.unwrap_or(0), after }
}

fn written_parts<'f>(
    fault: &'f FaultFile,
    path: &str,
    check: &mut Check<'_>,
) -> Vec<(&'f PartName, String)> {
    match (&fault.part, fault.parts.as_slice()) {
        (Some(part), []) => vec![(part, format!("{path}/part"))],
        (None, parts @ [_, ..]) => parts
            .iter()
            .enumerate()
            .map(|(index, part)| (part, format!("{path}/parts/{index}")))
            .collect(),
        _ => {
            check
                .error(codes::BAD_FAULT, path, "a fault requires either `part` or `parts`")
                .help("write `part: n17` or `parts: [n17, n18]`");
            Vec::new()
        }
    }
}

fn lower_duration(fault: &FaultFile, path: &str, check: &mut Check<'_>) -> Option<Picoseconds> {
    let at = fault.at.0;
    match (fault.lasts, fault.repaired_at) {
        (Some(_), Some(_)) => {
            check
                .error(codes::BAD_FAULT, &format!("{path}/lasts"), "the end is specified twice")
                .help("use either `lasts` or `repaired_at`");
            None
        }
        (Some(span), None) if span.0 == Picoseconds::ZERO => {
            check
                .error(
                    codes::BAD_FAULT,
                    &format!("{path}/lasts"),
                    "a fault with a duration of 0 has no effect",
                )
                .help("use `100us`, or leave it out for a permanent fault");
            None
        }
        (lasts, None) => lasts.map(|span| span.0),
        (None, Some(repaired)) if repaired.0 > at => Some(Picoseconds(repaired.0.get() - at.get())),
        (None, Some(_)) => {
            let message = "the repair precedes the fault";
            check
                .error(codes::REPAIR_BEFORE_FAULT, &format!("{path}/repaired_at"), message)
                .help(format!("use a time after {at}"));
            None
        }
    }
}

fn require_valid(effect: &Effect, path: &str, check: &mut Check<'_>) {
    let (is_valid, message) = match effect {
        Effect::Down | Effect::Stuck | Effect::FailsTest | Effect::Lies => return,
        Effect::Late(_) | Effect::SlowDisk(_) => return,
        Effect::Flapping(Flapping { down, up, .. }) => (
            down.0 > Picoseconds::ZERO && up.0 > Picoseconds::ZERO,
            "durations must be positive: use `{down: 100us, up: 200us, times: 5}`",
        ),
        Effect::Rate(rate) => (
            rate.0 >= BitsPerSecond(10_000_000),
            "the lowest rate that can be emulated is 10 Mb/s: use `down`",
        ),
        Effect::RatePercent(percent) => {
            ((1..=99).contains(percent), "use 1 to 99 percent, or `down`")
        }
        Effect::BitErrors(share) => {
            (*share > 0.0 && *share < 1e-3, "the bit error rate must be between 0 and 0.001")
        }
        Effect::PacketLoss(share) => {
            (*share > 0.0 && *share < 1.0, "use a share of packets between 0 and 1, or `down`")
        }
        Effect::Jitter(most) => (
            most.0 > Picoseconds::ZERO && most.0 <= JITTER_MAX,
            "the jitter must be above 0 and at most 10 ms: use `2us`",
        ),
        Effect::Reboots(takes) => {
            (takes.0 > Picoseconds::ZERO, "the restart time must be positive: use `90s`")
        }
        Effect::Slower(times) => {
            ((2..=1_000_000).contains(times), "use a number from 2 to 1,000,000")
        }
        Effect::PauseStorm(priority) => (*priority <= 6, "priorities range from 0 to 6"),
    };
    if !is_valid {
        check.error(codes::BAD_FAULT, &format!("{path}/effect"), message);
    }
}

const JITTER_MAX: Picoseconds = Picoseconds::from_millis(10);

const LONGEST_FRAME: Bytes = Bytes(9_216);

/// A single bit error destroys a whole packet, so large emulated packets lose more data than real frames.
pub(super) fn warn_of_large_packets(
    faults: &[FaultFile],
    transport: &Transport,
    check: &mut Check<'_>,
) {
    let size = transport.packet();
    if size <= LONGEST_FRAME {
        return;
    }
    for (index, fault) in faults.iter().enumerate() {
        let Effect::BitErrors(share) = fault.effect else { continue };
        let usual = Transport::default().packet();
        let [lost, usually_lost] =
            [size, usual].map(|packet| 1.0 - (1.0 - share).powf(8.0 * packet.0 as f64));
        if lost < 0.01 {
            continue;
        }
        let message = format!(
            "{:.1} % of all packets are lost, because one bit error loses a packet of {size}; frames of {usual} would \
             lose {:.2} %",
            100.0 * lost,
            100.0 * usually_lost
        );
        check
            .warning(
                super::codes::HEAVY_LOSS,
                &format!("/faults/{index}/effect/bit_errors"),
                message,
            )
            .help(format!(
                "write `transport: {{payload: {}B}}`, or {:.1e} here for the same packet loss",
                Transport::default().payload.0,
                1.0 - (1.0 - usually_lost).powf(1.0 / (8.0 * size.0 as f64))
            ));
    }
}
