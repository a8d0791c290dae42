// SPDX-License-Identifier: Apache-2.0
//! What carries the answers of devices, and so fails for several of them at once: lines, terminal servers, agents on
//! hosts, switches of the management network.
//!
//! Two readings are independent where nothing is on the way of both: then no single failure of management explains
//! them. A device is always on a line of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::state::DeviceName;

/// What kind of thing carries answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DomainKind {
    /// The serial line or session of one device.
    Line,
    /// A terminal server, or a host with several devices behind one address.
    Server,
    /// A program on a host through which its modules are reached.
    Agent,
    /// A switch of the management network.
    Switch,
}

/// One failure domain of management.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Domain {
    /// What it is.
    pub kind: DomainKind,
    /// Its name; for a line that of its device.
    pub name: Arc<str>,
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DomainKind::Line => "line of",
            DomainKind::Server => "server",
            DomainKind::Agent => "agent",
            DomainKind::Switch => "management switch",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// Which domains each device is behind, beside its own line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Management {
    shared: BTreeMap<DeviceName, BTreeSet<Domain>>,
}

impl Management {
    /// This device is reached through this.
    pub fn insert(&mut self, device: DeviceName, domain: Domain) {
        self.shared.entry(device).or_default().insert(domain);
    }

    /// Whether one failure of management can silence both.
    #[must_use]
    pub fn share(&self, one: &DeviceName, other: &DeviceName) -> bool {
        let [ones, others] = [one, other].map(|device| self.shared.get(device));
        one == other || ones.zip(others).is_some_and(|(ones, others)| !ones.is_disjoint(others))
    }

    /// Every domain that several devices are behind, with these devices.
    #[must_use]
    pub fn shared(&self) -> BTreeMap<&Domain, BTreeSet<&DeviceName>> {
        let mut behind = BTreeMap::<&Domain, BTreeSet<&DeviceName>>::new();
        for (device, domains) in &self.shared {
            for domain in domains {
                behind.entry(domain).or_default().insert(device);
            }
        }
        behind.retain(|_, devices| devices.len() > 1);
        behind
    }
}

/// Why a device cannot be talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It does not answer, for all that is known.
    Silent(String),
    /// This machine cannot ask it: its line is missing, or another program has it. That says nothing of the device.
    Local(String),
}

impl Trouble {
    /// In words.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::Silent(why) | Self::Local(why) => why,
        }
    }

    /// Whether it is this machine that cannot ask.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }
}

impl From<&str> for Trouble {
    fn from(why: &str) -> Self {
        Self::Silent(why.into())
    }
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Silent(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_behind_one_server_are_not_independent_and_lines_are() {
        let mut management = Management::default();
        let [one, other, third]: [DeviceName; 3] =
            ["n0/b0", "n1/b0", "n2/b0"].map(DeviceName::from);
        assert!(!management.share(&one, &other) && management.share(&one, &one));
        let server = Domain { kind: DomainKind::Server, name: "ts0".into() };
        management.insert(one.clone(), server.clone());
        management.insert(other.clone(), server.clone());
        assert!(management.share(&one, &other) && !management.share(&one, &third));
        assert_eq!(management.shared()[&server].len(), 2);
        assert_eq!(server.to_string(), "server ts0");
    }
}
