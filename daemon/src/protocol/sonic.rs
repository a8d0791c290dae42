// SPDX-License-Identifier: Apache-2.0

use std::path::PathBuf;

use lightloom_control::state::Micros;
#[cfg(feature = "edges")]
use lightloom_drivers::sonic::{ReadFrom, Sonic};
use lightloom_fabric::fat_tree::device_ports::DevicePorts;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Agent, Kind, Protocol, host};
#[cfg(feature = "edges")]
use super::{Place, secret};
#[cfg(feature = "edges")]
use crate::driver::{Endpoint, stream::Address};

/// A SONiC switch.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SonicFile {
    /// Address of the Redis server, `host:port`.
    pub tcp: String,
    /// File with the password.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Read positions back from CONFIG_DB, for tests with a database and no switch.
    #[serde(default)]
    pub read_config: bool,
}

/// Time limit for the switch's agent to execute a change in CONFIG_DB and update STATE_DB.
const AGENT_WITHIN: Micros = Micros::from_secs(5);
const AGENT_POLL: Micros = Micros::from_millis(50);

impl Protocol for SonicFile {
    fn kind(&self) -> Kind {
        Kind::OpticalSwitch {
            ports: |_| DevicePorts::Sides,
            agent: (!self.read_config).then_some(Agent { poll: AGENT_POLL, within: AGENT_WITHIN }),
        }
    }

    fn host(&self) -> Option<&str> {
        host(&self.tcp)
    }

    #[cfg(feature = "edges")]
    fn check(&self) -> Result<(), (&'static str, anyhow::Error)> {
        self.password().map(drop).map_err(|error| ("sonic/password_file", error))
    }

    #[cfg(feature = "edges")]
    fn endpoint(&self, place: &Place<'_>) -> anyhow::Result<Endpoint> {
        let read = if self.read_config { ReadFrom::Config } else { ReadFrom::State };
        let dialect = Sonic::new(read, self.password()?).claiming(place.claimant, place.wall_ms);
        Ok(Endpoint::speaking(Address::Tcp(self.tcp.clone()), dialect))
    }
}

#[cfg(feature = "edges")]
impl SonicFile {
    fn password(&self) -> anyhow::Result<Option<String>> {
        self.password_file.as_deref().map(secret).transpose()
    }
}
