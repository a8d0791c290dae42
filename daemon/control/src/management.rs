// SPDX-License-Identifier: Apache-2.0
//! The management network. Readings are independent only if their replies do not share a part of
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::state::DeviceName;

/// Type of a management failure domain.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "DomainKindFile")]
pub enum DomainKind {
    /// A line shared by several devices.
    Line,
    /// A terminal server, or a host with several devices behind one address.
    Server,
    /// An agent that gives access to the modules of its host.
    Agent,
    /// A switch of the management network.
    Switch,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Domain {
    pub kind: DomainKind,
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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Management {
    shared: BTreeMap<DeviceName, BTreeSet<Domain>>,
}

impl Management {
    pub fn insert(&mut self, device: DeviceName, domain: Domain) {
        self.shared.entry(device).or_default().insert(domain);
    }

    pub fn share(&self, one: &DeviceName, other: &DeviceName) -> bool {
        let [ones, others] = [one, other].map(|device| self.shared.get(device));
        one == other || ones.zip(others).is_some_and(|(ones, others)| !ones.is_disjoint(others))
    }

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    Remote(String),
    /// The line is missing or another program uses it, so the state of the device is unknown.
    Local(String),
}

impl Trouble {
    pub fn why(&self) -> &str {
        match self {
            Self::Remote(why) | Self::Local(why) => why,
        }
    }

    pub fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }
}

impl From<&str> for Trouble {
    fn from(why: &str) -> Self {
        Self::Remote(why.into())
    }
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Remote(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_behind_one_server_share_a_failure_domain() {
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
