// SPDX-License-Identifier: Apache-2.0

#[cfg(feature = "edges")]
use lightloom_drivers::scpi::Scpi;
use schemars::JsonSchema;
use serde::Deserialize;

#[cfg(feature = "edges")]
use super::Place;
use super::{Kind, Protocol, host, yes};
#[cfg(feature = "edges")]
use crate::driver::{Endpoint, stream::Address};

/// An optical switch with SCPI, over TCP or a serial line.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScpiFile {
    /// Address, `host:port`.
    #[serde(default)]
    pub tcp: Option<String>,
    /// Alternative: a serial line, 38400 8N1.
    #[serde(default)]
    pub serial: Option<String>,
    /// Whether the device has power monitors [default: yes].
    #[serde(default = "yes")]
    pub power_monitor: bool,
}

impl Protocol for ScpiFile {
    fn kind(&self) -> Kind {
        Kind::ingress_then_egress()
    }

    fn host(&self) -> Option<&str> {
        self.tcp.as_deref().and_then(host)
    }

    #[cfg(feature = "edges")]
    fn endpoint(&self, place: &Place<'_>) -> anyhow::Result<Endpoint> {
        let address = match (&self.tcp, &self.serial) {
            (Some(tcp), None) => Address::Tcp(tcp.clone()),
            (None, Some(path)) => Address::Serial { path: path.clone(), bits_per_second: 38_400 },
            _ => anyhow::bail!("scpi: expected either `tcp` or `serial`"),
        };
        Ok(Endpoint::speaking(address, Scpi::new(self.power_monitor).wired_as(place.ports)))
    }
}
