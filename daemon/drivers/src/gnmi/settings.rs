// SPDX-License-Identifier: Apache-2.0

pub use lightloom_gnmi::client::GnmiLogin;
pub use lightloom_gnmi::extension::Candidacy;

#[derive(Clone, Debug)]
pub struct Settings {
    pub authority: String,
    pub power_monitor: bool,
    pub groups: Option<(String, String)>,
    pub model_version: Option<String>,
    pub login: Option<GnmiLogin>,
    pub candidacy: Option<Candidacy>,
}

impl Settings {
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
