// SPDX-License-Identifier: Apache-2.0

use std::path::PathBuf;

#[cfg(feature = "edges")]
use lightloom_drivers::tl1::Tl1;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Kind, Protocol, host, yes};
#[cfg(feature = "edges")]
use super::{Place, secret};
#[cfg(feature = "edges")]
use crate::driver::{Endpoint, stream::Address};

/// An optical switch with TL1 over TCP.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tl1File {
    /// Address, `host:port`.
    pub tcp: String,
    /// Account name.
    pub user: String,
    /// File with the password.
    pub password_file: PathBuf,
    /// Accept a vendor's default password, for emulated devices only.
    #[serde(default)]
    pub allow_default_password: bool,
    /// Whether the device has power monitors [default: yes].
    #[serde(default = "yes")]
    pub power_monitor: bool,
}

/// Rejects characters that would end the parameter, the command or the line. Quotation marks would
/// not help, because some switches do not strip them from a password.
pub fn check_parameter(what: &str, text: &str) -> Result<(), String> {
    let mut wrong =
        text.chars().filter(|c| !(' '..='~').contains(c) || matches!(c, ':' | ';' | '"'));
    let Some(wrong) = wrong.next() else { return Ok(()) };
    Err(format!(
        "{wrong:?} is not allowed in a TL1 {what}; help: use printable ASCII without `:`, `;` and `\"`; change it on the \
         switch, then here"
    ))
}

#[cfg(feature = "edges")]
const DEFAULT_PASSWORDS: [&str; 4] = ["", "root", "admin", "password"];

impl Protocol for Tl1File {
    fn kind(&self) -> Kind {
        Kind::ingress_then_egress()
    }

    fn host(&self) -> Option<&str> {
        host(&self.tcp)
    }

    #[cfg(feature = "edges")]
    fn check(&self) -> Result<(), (&'static str, anyhow::Error)> {
        check_parameter("user", &self.user).map_err(|why| ("tl1/user", anyhow::anyhow!(why)))?;
        self.password().map(drop).map_err(|error| ("tl1/password_file", error))
    }

    #[cfg(feature = "edges")]
    fn endpoint(&self, place: &Place<'_>) -> anyhow::Result<Endpoint> {
        check_parameter("user", &self.user).map_err(anyhow::Error::msg)?;
        let password = self.password()?;
        let dialect = Tl1::new(&self.user, &password, self.power_monitor).wired_as(place.ports);
        Ok(Endpoint::speaking(Address::Tcp(self.tcp.clone()), dialect))
    }
}

#[cfg(feature = "edges")]
impl Tl1File {
    fn password(&self) -> anyhow::Result<String> {
        let password = secret(&self.password_file)?;
        let shown = self.password_file.display();
        check_parameter("password", &password).map_err(|why| anyhow::anyhow!("{shown}: {why}"))?;
        if DEFAULT_PASSWORDS.contains(&password.as_str()) && !self.allow_default_password {
            anyhow::bail!(
                "{shown} contains a vendor's default password; help: change it on the device, \
                    then in the file; for an emulated device set `allow_default_password: true`"
            );
        }
        Ok(password)
    }
}
