// SPDX-License-Identifier: Apache-2.0
//! Transceivers behind a host's agent.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::transceiver::PathPolicy;
use super::{Kind, Protocol, host};

/// A module behind an agent.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentModuleFile {
    /// Agent address, `host:port`.
    pub tcp: String,
    /// Name of the module in the agent's configuration.
    pub module: String,
    /// TLS identities of the agent and of this daemon.
    pub tls: AgentTlsFile,
    /// Expected serial number of the module.
    #[serde(default)]
    pub serial: Option<String>,
    /// Required state of the data paths while the module switches [default: hot].
    #[serde(default)]
    pub policy: PathPolicy,
}

/// Mutual TLS to an agent.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentTlsFile {
    /// CA certificate that signs the agents' certificates, PEM.
    pub ca: PathBuf,
    /// Name in the agent's certificate [default: the host of `tcp`].
    #[serde(default)]
    pub name: Option<String>,
    /// The daemon's certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

impl Protocol for AgentModuleFile {
    fn kind(&self) -> Kind {
        Kind::Transceiver { bits_per_second: None }
    }

    fn host(&self) -> Option<&str> {
        host(&self.tcp)
    }

    #[cfg(feature = "edges")]
    fn check(&self) -> Result<(), (&'static str, anyhow::Error)> {
        reach::address(self).map(drop).map_err(|error| ("agent", error))
    }

    #[cfg(feature = "edges")]
    fn endpoint(&self, place: &super::Place<'_>) -> anyhow::Result<crate::driver::Endpoint> {
        reach::endpoint(self, place)
    }
}

#[cfg(feature = "edges")]
mod reach {
    use std::sync::Arc;

    use lightloom_drivers::ocstrx::OcsTrx;

    use super::super::{Place, tls, transceiver::fresh_sequence};
    use super::AgentModuleFile;
    use crate::driver::{Endpoint, stream::Address};

    pub(super) fn endpoint(file: &AgentModuleFile, place: &Place<'_>) -> anyhow::Result<Endpoint> {
        let dialect = OcsTrx::new(file.policy.code(), fresh_sequence(place.wall_ms));
        let dialect = dialect.called(place.device).expecting(file.serial.clone());
        let dialect = dialect.at_agent(&file.module).map_err(anyhow::Error::msg)?;
        Ok(Endpoint::speaking(address(file)?, dialect))
    }

    pub(super) fn address(file: &AgentModuleFile) -> anyhow::Result<Address> {
        let identity =
            (tls::certificates(&file.tls.certificate)?, tls::private_key(&file.tls.key)?);
        let config = tls::client(tls::authorities(&file.tls.ca)?, Some(identity))?;
        let name = tls::server_name(file.tls.name.as_deref(), &file.tcp)?;
        Ok(Address::Tls { address: file.tcp.clone(), name, config: Arc::new(config) })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::load;
    use crate::protocol::DriverFile;

    #[test]
    fn expands_agent_module_patterns() {
        let text = "state_dir: s\nmodules:\n- nodes: [0, 3]\n  bundles: 2\n  agent:\n    tcp: \"host{node}:7410\"\n\
                    \x20   module: n{node}-b{bundle}\n    tls: {ca: a, certificate: b, key: c}\n";
        let config = load("daemon.yaml", text.as_bytes()).0.unwrap();
        assert_eq!(config.drivers.len(), 8);
        let (driver, _) = &config.drivers[&"n3/b1".into()];
        let DriverFile::Agent(file) = driver else { panic!("{driver:?}") };
        assert_eq!((file.tcp.as_str(), file.module.as_str()), ("host3:7410", "n3-b1"));
        assert_eq!(driver.protocol().host(), Some("host3"), "the modules of a host share an agent");
        let (head, _) = text.split_once("  agent:").unwrap();
        for both in [text.replace("  agent:", "  serial: x\n  agent:"), head.to_owned()] {
            let (config, mistakes) = load("daemon.yaml", both.as_bytes());
            assert!(config.is_none());
            assert!(
                mistakes[0].to_string().contains("the modules need exactly one connection"),
                "{mistakes:?}"
            );
        }
    }
}
