//! Faults as people write them: in a scenario, or in a file of their own.

use lightloom_fabric::document::{self, Check, Diagnostic};
use lightloom_fabric::fabric::Fabric;
use lightloom_units::{BitsPerSecond, Picoseconds, SimTime, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::file::codes;
use super::{Effect, Fault, Switches, Target};

/// Faults for any scenario: what breaks, and when.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, bound(deserialize = "T: Deserialize<'de>"))]
pub struct FaultListFile<T = Target> {
    /// What breaks during the run, and when.
    #[schemars(length(min = 1))]
    pub faults: Vec<FaultFile<T>>,
}

/// Something that breaks during the run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, bound(deserialize = "T: Deserialize<'de>"))]
pub struct FaultFile<T = Target> {
    /// What breaks.
    #[serde(default)]
    pub part: Option<T>,
    /// Several that break together, for one cause.
    #[serde(default)]
    pub parts: Vec<T>,
    /// How it breaks.
    #[serde(default)]
    pub effect: EffectFile,
    /// When, counted from the start of the run.
    pub at: Text<Picoseconds>,
    /// The seed draws the time from `at` to so much later.
    #[serde(default)]
    pub within: Option<Text<Picoseconds>>,
    /// For how long; left out, for ever.
    #[serde(default)]
    pub lasts: Option<Text<Picoseconds>>,
    /// When it works again, instead of `lasts`.
    #[serde(default)]
    pub repaired_at: Option<Text<Picoseconds>>,
    /// The share of seeds under which it happens.
    #[serde(default = "certain")]
    #[schemars(range(min = 0, max = 1))]
    pub probability: f64,
}

fn certain() -> f64 {
    1.0
}

/// How something breaks.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EffectFile {
    /// It goes dark. The default.
    #[default]
    Down,
    /// A bundle ignores commands and keeps the path it holds.
    Stuck,
    /// It goes dark and comes back, again and again.
    Flapping(FlappingFile),
    /// Its links send at this rate, such as `100Gbps`.
    Rate(Text<BitsPerSecond>),
    /// Its links get this share of bits wrong after error correction, below 0.001; a packet with a wrong
    /// bit is lost.
    BitErrors(f64),
    /// The control plane takes so many times as long, 2 to 1,000,000.
    Slower(u32),
    /// The interfaces of a host ask for pauses of this priority, 0 to 6, all the time.
    PauseStorm(u8),
}

/// A part that goes dark and comes back.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlappingFile {
    /// For how long it is dark each time.
    pub down: Text<Picoseconds>,
    /// For how long it is lit between.
    pub up: Text<Picoseconds>,
    /// How often, 1 to 1,000.
    #[schemars(range(min = 1, max = 1000))]
    pub times: u32,
}

/// Reads a fault file: its faults, or every mistake in it. Parts are held against the fabric and its switches, if
/// they are given.
#[must_use]
pub fn load(
    file: &str,
    bytes: &[u8],
    fabric: Option<&Fabric>,
    switches: Option<&Switches>,
) -> (Option<Vec<Fault>>, Vec<Diagnostic>) {
    document::load(file, bytes, |raw: FaultListFile, check| {
        let faults = lower_faults(&raw.faults, fabric, switches, check);
        (!check.has_errors()).then_some(faults)
    })
}

/// Refuses a pause storm where nobody listens to pauses.
pub(crate) fn require_priorities(switches: &Switches, path: &str, check: &mut Check<'_>) {
    if !switches.have_priorities() {
        let message = "these switches have no priorities to pause";
        check
            .error(codes::BAD_FAULT, path, message)
            .help("write `switches: {pause: {priorities: [3], above: 100KiB}}`")
            .depends_on("/switches");
    }
}

/// The faults of a list that stands under `faults`, held against a fabric and its switches where they are known.
pub(super) fn lower_faults(
    raw: &[FaultFile],
    fabric: Option<&Fabric>,
    switches: Option<&Switches>,
    check: &mut Check<'_>,
) -> Vec<Fault> {
    lower_fault_list(raw, check, |target, effect, path, check| {
        if let Err(error) = fabric.map_or(Ok(()), |fabric| target.require(fabric)) {
            check.error(codes::NO_SUCH_THING, path, error.to_string());
        }
        match (target.allows(effect), effect, switches) {
            (Err(reason), ..) => drop(check.error(codes::BAD_FAULT, path, reason)),
            (Ok(()), Effect::PauseStorm(_), Some(switches)) => {
                require_priorities(switches, path, check);
            }
            _ => {}
        }
        Some(*target)
    })
}

/// The faults of a list whose parts `lower` finds, or says why not.
pub(crate) fn lower_fault_list<F, T>(
    raw: &[FaultFile<F>],
    check: &mut Check<'_>,
    mut lower: impl FnMut(&F, &Effect, &str, &mut Check<'_>) -> Option<T>,
) -> Vec<Fault<T>> {
    let mut faults = Vec::new();
    for (index, fault) in raw.iter().enumerate() {
        let path = format!("/faults/{index}");
        let effect = lower_effect(&fault.effect, &path, check);
        let mut targets = Vec::new();
        for (target, path) in written_targets(fault, &path, check) {
            targets.extend(lower(target, &effect, &path, check));
        }
        faults.push(Fault {
            targets,
            effect,
            at: SimTime(fault.at.0.get()),
            within: fault.within.map_or(Picoseconds::ZERO, |span| span.0),
            lasts: lower_duration(fault, &path, check),
            probability: fault.probability,
        });
    }
    faults
}

/// The targets of a fault, each with its place in the file.
fn written_targets<'f, F>(
    fault: &'f FaultFile<F>,
    path: &str,
    check: &mut Check<'_>,
) -> Vec<(&'f F, String)> {
    match (&fault.part, fault.parts.as_slice()) {
        (Some(part), []) => vec![(part, format!("{path}/part"))],
        (None, parts @ [_, ..]) => {
            let place = |(index, part): (usize, &'f F)| (part, format!("{path}/parts/{index}"));
            parts.iter().enumerate().map(place).collect()
        }
        _ => {
            check
                .error(codes::BAD_FAULT, path, "a fault hits either one `part` or several `parts`")
                .help("write `part: n17` or `parts: [n17, n18]`");
            Vec::new()
        }
    }
}

fn lower_duration<F>(
    fault: &FaultFile<F>,
    path: &str,
    check: &mut Check<'_>,
) -> Option<Picoseconds> {
    let at = fault.at.0;
    match (fault.lasts, fault.repaired_at) {
        (Some(_), Some(_)) => {
            check
                .error(codes::BAD_FAULT, &format!("{path}/lasts"), "the end is given twice")
                .help("write either `lasts` or `repaired_at`");
            None
        }
        (lasts, None) => lasts.map(|span| span.0),
        (None, Some(repaired)) if repaired.0 > at => Some(Picoseconds(repaired.0.get() - at.get())),
        (None, Some(_)) => {
            let message = "it is repaired before it breaks";
            check
                .error(codes::REPAIR_BEFORE_FAULT, &format!("{path}/repaired_at"), message)
                .help(format!("write a time after {at}"));
            None
        }
    }
}

fn lower_effect(raw: &EffectFile, path: &str, check: &mut Check<'_>) -> Effect {
    let mut refuse = |wrong: bool, message: &str| {
        if wrong {
            check.error(codes::BAD_FAULT, &format!("{path}/effect"), message);
        }
    };
    match raw {
        EffectFile::Down => Effect::Down,
        EffectFile::Stuck => Effect::Stuck,
        EffectFile::Flapping(flapping) => {
            let (down, up) = (flapping.down.0, flapping.up.0);
            let none = down == Picoseconds::ZERO || up == Picoseconds::ZERO;
            refuse(none, "each turn takes some time: write `{down: 100us, up: 200us, times: 5}`");
            Effect::Flapping { down, up, times: flapping.times }
        }
        EffectFile::Rate(rate) => {
            let slow = rate.0 < BitsPerSecond(10_000_000);
            refuse(slow, "rates below 10 Mb/s cannot be emulated: use `down`");
            Effect::Rate(rate.0)
        }
        EffectFile::BitErrors(share) => {
            let wrong = !(*share > 0.0 && *share < 1e-3);
            refuse(wrong, "the share of wrong bits lies between 0 and 0.001");
            Effect::BitErrors(*share)
        }
        EffectFile::Slower(times) => {
            refuse(!(2..=1_000_000).contains(times), "write a number from 2 to 1,000,000");
            Effect::Slower(*times)
        }
        EffectFile::PauseStorm(priority) => {
            refuse(*priority > 6, "there are priorities 0 to 6");
            Effect::PauseStorm(*priority & 7)
        }
    }
}
