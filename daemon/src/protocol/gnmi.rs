// SPDX-License-Identifier: Apache-2.0
//! Optical switches with the OCP model, over gNMI: TLS, or plain text where the file says so.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Kind, Protocol, host, yes};

/// The OCP model over gNMI.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GnmiFile {
    /// `host:port`.
    pub tcp: String,
    /// Who it must be, and who this is.
    #[serde(default)]
    pub tls: Option<GnmiTlsFile>,
    /// Speak to it in plain text: for emulated devices.
    #[serde(default)]
    pub plaintext: bool,
    /// The account, where it asks for one.
    #[serde(default)]
    pub user: Option<String>,
    /// The file its password is in.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Who may change it among several controllers [default: whoever asks].
    #[serde(default)]
    pub election: Option<ElectionFile>,
    /// Whether it has power monitors [default: yes].
    #[serde(default = "yes")]
    pub power_monitor: bool,
    /// The port group of the plan's ingress ports, where several may be it.
    #[serde(default)]
    pub input_group: Option<String>,
    /// The port group of the plan's egress ports, where several may be it.
    #[serde(default)]
    pub output_group: Option<String>,
    /// The version of the model that it has [default: 0.8.0].
    #[serde(default)]
    pub model_version: Option<String>,
}

/// Master arbitration: of the controllers of one role that with the largest id may change a switch.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElectionFile {
    /// The id; a controller that takes another's place needs a larger one [default: the epoch of the daemon that leads, under
    /// `etcd`, where none is written; else 1].
    #[serde(default)]
    pub id: Option<u64>,
    /// The role, where the switch has several [default: its default role].
    #[serde(default)]
    pub role: Option<String>,
}

/// TLS to a device.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GnmiTlsFile {
    /// The authority that signs its certificate, PEM.
    pub ca: PathBuf,
    /// The name in its certificate [default: the host of `tcp`].
    #[serde(default)]
    pub name: Option<String>,
    /// The daemon's certificate chain, PEM, where the device asks for one.
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

/// How it is reached.
#[cfg(feature = "edges")]
mod reach;
