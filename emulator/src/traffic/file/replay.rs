//! Days of a fault trace on a network: which hosts the nodes of the trace are.

use lightloom_fabric::document::Check;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{Plant, TrafficReplay};
use crate::scenario::codes as base;
use crate::scenario::neighbours::Neighbours;
use crate::scenario::replay_file::{ReplayFile, lower_replay};

/// Some days of a fault trace, in compressed time. GPUs of one server go together where the network has servers;
/// elsewhere every host goes by itself.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkReplayFile {
    /// The trace, relative to this file: see `lightloom trace`.
    pub trace: String,
    /// The first day, counted from the start of the trace; what is broken then is broken from the start.
    #[schemars(range(min = 0, max = 36525))]
    pub from_day: f64,
    /// Where it ends.
    #[schemars(range(min = 0, max = 36525))]
    pub to_day: f64,
    /// Simulated time that a day of the trace takes.
    pub day_takes: Text<Picoseconds>,
    /// GPUs that a host of this network stands for.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub gpus_per_host: u32,
}

fn one() -> u32 {
    1
}

/// The days, if the trace has them and its servers are enough for the network.
pub(super) fn lower_network_replay(
    raw: &NetworkReplayFile,
    (plant, seed): (Option<&Plant>, Seed),
    check: &mut Check<'_>,
    beside: &mut Neighbours<'_, '_>,
) -> Option<TrafficReplay> {
    let days = ReplayFile {
        trace: raw.trace.clone(),
        from_day: raw.from_day,
        to_day: raw.to_day,
        day_takes: raw.day_takes,
    };
    let days = lower_replay(&days, check, beside)?;
    let replay = TrafficReplay { days, gpus_per_host: raw.gpus_per_host };
    if check.has_errors() {
        return Some(replay);
    }
    if let Some(Err(error)) = plant.map(|plant| replay.strikes(plant, seed)) {
        let message = format!("the fault trace does not fit this network: {error}");
        check
            .error(base::BAD_NEIGHBOUR, "/replay/trace", message)
            .help("say how many GPUs a host stands for, `gpus_per_host: 8`, or take a larger trace")
            .depends_on("/network");
    }
    Some(replay)
}
