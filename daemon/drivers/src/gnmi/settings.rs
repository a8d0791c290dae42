// SPDX-License-Identifier: Apache-2.0
//! How a switch is to be spoken to.

pub use lightloom_gnmi::client::GnmiLogin;
pub use lightloom_gnmi::extension::Candidacy;

/// What has to be known of a switch before it is asked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `host:port`, as HTTP names the switch.
    pub authority: String,
    /// It measures power.
    pub power_monitor: bool,
    /// The groups of the plan's ingress and egress ports; `None` if the switch has one of either direction.
    pub groups: Option<(String, String)>,
    /// The version of the model that is expected of it; `None` for the one that this was written for.
    pub model_version: Option<String>,
    /// The account; `None` if it asks for none.
    pub login: Option<GnmiLogin>,
    /// What this stands for election with; `None` if no other controller may take its place.
    pub candidacy: Option<Candidacy>,
}

impl Settings {
    /// Of a switch with power monitors, one group of each direction and neither account nor election.
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
