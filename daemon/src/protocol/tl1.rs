// SPDX-License-Identifier: Apache-2.0
//! Optical switches that speak TL1.

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

/// TL1 over TCP.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tl1File {
    /// `host:port`.
    pub tcp: String,
    /// The account.
    pub user: String,
    /// The file its password is in.
    pub password_file: PathBuf,
    /// Take a vendor's default password all the same: for emulated devices.
    #[serde(default)]
    pub allow_default_password: bool,
    /// Whether it has power monitors [default: yes].
    #[serde(default = "yes")]
    pub power_monitor: bool,
}

/// Passwords that vendors ship.
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
        self.password().map(drop).map_err(|error| ("tl1/password_file", error))
    }

    #[cfg(feature = "edges")]
    fn endpoint(&self, place: &Place<'_>) -> anyhow::Result<Endpoint> {
        let password = self.password()?;
        let dialect = Tl1::new(&self.user, &password, self.power_monitor).wired_as(place.ports);
        Ok(Endpoint::speaking(Address::Tcp(self.tcp.clone()), dialect))
    }
}

#[cfg(feature = "edges")]
impl Tl1File {
    /// The password of the account.
    ///
    /// # Errors
    /// A file that cannot be read or that everybody can read; a vendor's default password, where the file does not
    /// allow it.
    fn password(&self) -> anyhow::Result<String> {
        let password = secret(&self.password_file)?;
        if DEFAULT_PASSWORDS.contains(&password.as_str()) && !self.allow_default_password {
            let shown = self.password_file.display();
            anyhow::bail!(
                "{shown} holds a vendor's default password: change it on the device, then in the file; for an emulated \
                 device write `allow_default_password: true`"
            );
        }
        Ok(password)
    }
}
