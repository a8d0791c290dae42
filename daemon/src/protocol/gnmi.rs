// SPDX-License-Identifier: Apache-2.0

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Kind, Protocol, host, yes};

/// An optical switch with the OCP model, over gNMI.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GnmiFile {
    /// Address, `host:port`.
    pub tcp: String,
    /// TLS settings.
    #[serde(default)]
    pub tls: Option<GnmiTlsFile>,
    /// Use plain text, for emulated devices only.
    #[serde(default)]
    pub plaintext: bool,
    /// Account name, if the device requires one.
    #[serde(default)]
    pub user: Option<String>,
    /// File with the password.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Master arbitration between several controllers [default: none].
    #[serde(default)]
    pub election: Option<ElectionFile>,
    /// Whether the device has power monitors [default: yes].
    #[serde(default = "yes")]
    pub power_monitor: bool,
    /// Port group of the plan's ingress ports, if the device has several candidates.
    #[serde(default)]
    pub input_group: Option<String>,
    /// Port group of the plan's egress ports, if the device has several candidates.
    #[serde(default)]
    pub output_group: Option<String>,
    /// Version of the model on the device [default: 0.8.0].
    #[serde(default)]
    pub model_version: Option<String>,
}

/// Master arbitration: among controllers with the same role, only the one with the highest election
/// id may change a switch.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElectionFile {
    /// Election id; a takeover requires a higher id [default: the epoch if `etcd` is set, else 1].
    #[serde(default)]
    pub id: Option<u64>,
    /// Role name, if the switch has several [default: its default role].
    #[serde(default)]
    pub role: Option<String>,
}

/// TLS to a device.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GnmiTlsFile {
    /// CA certificate that signs the device's certificate, PEM.
    pub ca: PathBuf,
    /// Name in its certificate [default: the host of `tcp`].
    #[serde(default)]
    pub name: Option<String>,
    /// The daemon's certificate chain, PEM, if the device requires one.
    #[serde(default)]
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    #[serde(default)]
    pub key: Option<PathBuf>,
}

impl Protocol for GnmiFile {
    fn kind(&self) -> Kind {
        Kind::ingress_then_egress()
    }

    fn host(&self) -> Option<&str> {
        host(&self.tcp)
    }

    fn refuses_late(&self) -> bool {
        self.election.is_some()
    }

    #[cfg(feature = "edges")]
    fn check(&self) -> Result<(), (&'static str, anyhow::Error)> {
        let reached = reach::address(self).and_then(|_| reach::login(self));
        reached.map(drop).map_err(|error| ("gnmi", error))
    }

    #[cfg(feature = "edges")]
    fn endpoint(&self, place: &super::Place<'_>) -> anyhow::Result<crate::driver::Endpoint> {
        reach::endpoint(self, place)
    }
}

#[cfg(feature = "edges")]
mod reach;
