// SPDX-License-Identifier: Apache-2.0

pub use lightloom_gnmi::client::GnmiLogin;
pub use lightloom_gnmi::extension::Candidacy;

#[derive(Clone, Debug)]
pub struct Settings {
    /// For the HTTP/2 `:authority` header.
    pub authority: String,
    pub power_monitor: bool,
    /// `None` if the switch has one group per direction.
    pub groups: Option<(String, String)>,
    /// `None` for the version that this driver implements.
    pub model_version: Option<String>,
    pub login: Option<GnmiLogin>,
    /// `None` without master arbitration.
    pub candidacy: Option<Candidacy>,
}

impl Settings {
    /// Settings for power monitors, one group per direction, and no account or election.
    #[must_use]
    pub fn plain(authority: &str) -> Self {
        Self {
            authority: authority.to_owned(),
            power_monitor: true,
            groups: None,
            model_version: None,
            login: None,
            candidacy: None,
        }
    }
}
