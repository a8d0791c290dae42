// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::LinkSpec;
use lightloom_fabric::document::Check;
use lightloom_units::{BitsPerSecond, Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes;

/// Cables of a network.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinksFile {
    /// Rate of a cable per direction.
    pub rate: Text<BitsPerSecond>,
    /// Propagation delay of a cable.
    pub delay: Text<Picoseconds>,
    /// Rate between a GPU and the switch inside its server, if any.
    pub inside_rate: Text<BitsPerSecond>,
    /// Propagation delay between a GPU and the switch inside its server.
    pub inside_delay: Text<Picoseconds>,
    /// Delay that an interface adds to its cable, per direction.
    pub nic_delay: Text<Picoseconds>,
}

impl Default for LinksFile {
    /// Assumes 400 Gb/s and 1 µs outside servers, and 3.6 Tb/s and 250 ns inside.
    fn default() -> Self {
        Self {
            rate: Text(BitsPerSecond::from_gbps(400)),
            delay: Text(Picoseconds::from_micros(1)),
            inside_rate: Text(BitsPerSecond::from_gbps(3_600)),
            inside_delay: Text(Picoseconds::from_nanos(250)),
            nic_delay: Text(Picoseconds::ZERO),
        }
    }
}

impl LinksFile {
    pub(super) fn cable(&self) -> LinkSpec {
        LinkSpec::new(self.rate.0, self.delay.0)
    }

    pub(super) fn inside(&self) -> LinkSpec {
        LinkSpec::new(self.inside_rate.0, self.inside_delay.0)
    }

    pub(super) fn longest(&self) -> LinkSpec {
        let delay = self.delay.0.max(self.inside_delay.0) + self.nic_delay.0;
        LinkSpec::new(self.rate.0.max(self.inside_rate.0), delay)
    }
}

/// Replaces invalid values, so that part names can still be checked.
pub(super) fn lower(raw: &LinksFile, check: &mut Check<'_>) -> LinksFile {
    LinksFile {
        rate: possible_rate(raw.rate, "/links", "rate", check),
        delay: possible_delay(raw.delay, "/links", "delay", check),
        inside_rate: possible_rate(raw.inside_rate, "/links", "inside_rate", check),
        inside_delay: possible_delay(raw.inside_delay, "/links", "inside_delay", check),
        nic_delay: raw.nic_delay,
    }
}

pub(super) fn possible_rate(
    rate: Text<BitsPerSecond>,
    path: &str,
    key: &str,
    check: &mut Check<'_>,
) -> Text<BitsPerSecond> {
    let slowest = BitsPerSecond(10_000_000);
    if rate.0 >= slowest {
        return rate;
    }
    let message = "the lowest cable rate that can be emulated is 10 Mb/s";
    check.error(codes::BAD_NETWORK, &format!("{path}/{key}"), message).help("write `400Gbps`");
    Text(slowest)
}

pub(super) fn possible_delay(
    delay: Text<Picoseconds>,
    path: &str,
    key: &str,
    check: &mut Check<'_>,
) -> Text<Picoseconds> {
    if delay.0 > Picoseconds::ZERO {
        return delay;
    }
    let message = "a cable without propagation delay cannot be emulated";
    check.error(codes::BAD_NETWORK, &format!("{path}/{key}"), message).help("write `100ns`");
    Text(Picoseconds::from_nanos(100))
}
