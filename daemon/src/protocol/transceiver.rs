// SPDX-License-Identifier: Apache-2.0

use lightloom_firmware_api::frame::BITS_PER_SECOND;
use schemars::JsonSchema;
use serde::Deserialize;

#[cfg(feature = "edges")]
use lightloom_drivers::ocstrx::OcsTrx;
#[cfg(feature = "edges")]
use lightloom_firmware_api::path::DataPathPolicy;

#[cfg(feature = "edges")]
use super::Place;
use super::{Kind, Protocol};
#[cfg(feature = "edges")]
use crate::driver::{Endpoint, stream::Address};

/// A transceiver on a serial line.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SerialFile {
    /// Path to the serial device or pty.
    pub serial: String,
    /// Line rate [default: 921600].
    #[serde(default = "usual_rate")]
    pub bits_per_second: u32,
    /// Required state of the data paths while the module switches [default: hot].
    #[serde(default)]
    pub policy: PathPolicy,
}

pub(crate) fn usual_rate() -> u32 {
    BITS_PER_SECOND
}

/// Required state of a module's data paths while it switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathPolicy {
    /// All deactivated.
    Deactivated,
    /// Transmitters muted by the module.
    Mute,
    /// No requirement: the module switches with its transmitters on.
    #[default]
    Hot,
}

#[cfg(feature = "edges")]
impl PathPolicy {
    pub(super) const fn code(self) -> DataPathPolicy {
        match self {
            Self::Deactivated => DataPathPolicy::RequireDeactivated,
            Self::Mute => DataPathPolicy::MuteTransmit,
            Self::Hot => DataPathPolicy::Hot,
        }
    }
}

impl Protocol for SerialFile {
    fn kind(&self) -> Kind {
        Kind::Transceiver { bits_per_second: Some(self.bits_per_second) }
    }

    #[cfg(feature = "edges")]
    fn endpoint(&self, place: &Place<'_>) -> anyhow::Result<Endpoint> {
        let path = self.serial.clone();
        let address = Address::Serial { path, bits_per_second: self.bits_per_second };
        let dialect = OcsTrx::new(self.policy.code(), fresh_sequence(place.wall_ms));
        let dialect = dialect.called(place.device).leading_in(place.epoch);
        Ok(Endpoint::speaking(address, dialect))
    }
}

#[cfg(feature = "edges")]
pub(super) fn fresh_sequence(wall_ms: u64) -> u16 {
    (wall_ms.wrapping_mul(257) & 0xffff) as u16
}
