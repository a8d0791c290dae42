// SPDX-License-Identifier: Apache-2.0
//! The agent's configuration file. `docs/hardware.md` shows an example.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use lightloom_fabric::document::{self, Check, Diagnostic};
use lightloom_firmware_api::message::MODULE_NAME_BYTES_MAX;
use schemars::JsonSchema;
use serde::Deserialize;

pub mod codes {
    use lightloom_fabric::document::Code;

    pub const SAME_MODULE: Code =
        Code { id: "LL0711", title: "two entries of an agent refer to the same module" };
    pub const BAD_MODULE: Code =
        Code { id: "LL0712", title: "a module that an agent cannot serve" };
    pub const ALL: &[Code] = &[SAME_MODULE, BAD_MODULE];
}

/// The configuration file of `lightloom-agent`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentFile {
    /// Address and port to listen on.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// TLS identity of this host, and the CA of the daemons that it accepts.
    pub tls: HostTlsFile,
    /// Directory for the persistent log of moves.
    pub state_dir: PathBuf,
    /// Whether modules may be switched [default: no, they are read-only].
    #[serde(default)]
    pub allow_moves: bool,
    /// Cages of this host, each with a module that the agent serves.
    pub cages: Vec<ModuleFile>,
}

/// Mutual TLS of an agent.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostTlsFile {
    /// The host's certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// CA certificate that signs the daemons' certificates, PEM.
    pub client_ca: PathBuf,
}

/// A module of the host.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModuleFile {
    /// Name that daemons use for this module.
    pub name: String,
    /// The `eeprom` file of the `optoe` driver, which gives access to the module's memory.
    #[serde(default)]
    pub eeprom: Option<PathBuf>,
    /// Alternative: the I2C bus of the module, accessed without a driver.
    #[serde(default)]
    pub i2c: Option<I2cFile>,
    /// Module profile that describes how to set its optical switch.
    pub profile: PathBuf,
    /// Expected serial number [default: any].
    #[serde(default)]
    pub serial: Option<String>,
}

/// An address on an I2C bus.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct I2cFile {
    /// Device file of the bus, such as `/dev/i2c-11`.
    pub bus: PathBuf,
    /// Address [default: 80, which is 50h].
    #[serde(default = "usual_address")]
    pub address: u16,
}

fn usual_address() -> u16 {
    0x50
}

pub fn load(file: &str, bytes: &[u8]) -> (Option<AgentFile>, Vec<Diagnostic>) {
    document::load(file, bytes, check)
}

fn check(file: AgentFile, check: &mut Check<'_>) -> Option<AgentFile> {
    if file.cages.is_empty() {
        let report = check.error(codes::BAD_MODULE, "/cages", "no module is listed");
        report.help("use `- {name: n0-b0, eeprom: FILE, profile: FILE}`");
    }
    let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
    for (index, module) in file.cages.iter().enumerate() {
        let path = format!("/cages/{index}");
        if !(1..=MODULE_NAME_BYTES_MAX).contains(&module.name.len()) {
            let message = format!("the name is {} bytes long", module.name.len());
            let help = format!("use 1 to {MODULE_NAME_BYTES_MAX} bytes");
            check.error(codes::BAD_MODULE, &format!("{path}/name"), message).help(help);
        }
        if !names.insert(&module.name) {
            let message = format!("two modules have the name `{}`", module.name);
            let report = check.error(codes::SAME_MODULE, &format!("{path}/name"), message);
            report.help("give each module a unique name");
        }
        if module.eeprom.is_some() == module.i2c.is_some() {
            let report =
                check.error(codes::BAD_MODULE, &path, "the module needs exactly one connection");
            report.help("use either `eeprom` or `i2c`");
        } else if !places.insert((&module.eeprom, &module.i2c)) {
            let report = check.error(
                codes::SAME_MODULE,
                &path,
                "another entry refers to the same \
                module",
            );
            report.help("a module with two names could be switched twice: list it once");
        }
    }
    (!check.has_errors()).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_module_is_served_under_one_name() {
        let text = "listen: 127.0.0.1:0\ntls: {certificate: a, key: b, client_ca: c}\nstate_dir: s\n\
                    cages:\n- {name: a, eeprom: /e, profile: p}\n- {name: a, eeprom: /e, profile: p}\n\
                    - {name: \"\", eeprom: /f, profile: p}\n\
                    - {name: b, profile: p}\n";
        let (file, mistakes) = load("agent.yaml", text.as_bytes());
        assert!(file.is_none());
        let shown: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        for (line, said) in [
            ("6:3: error[LL0711]", "another entry refers to the same module"),
            ("6:10: error[LL0711]", "two modules have the name `a`"),
            ("7:10: error[LL0712]", "the name is 0 bytes long"),
            ("8:3: error[LL0712]", "the module needs exactly one connection"),
        ] {
            let found = shown.iter().any(|one| one.contains(line) && one.contains(said));
            assert!(found, "{line} {said}: {shown:?}");
        }
    }
}
