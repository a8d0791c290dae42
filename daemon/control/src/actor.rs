// SPDX-License-Identifier: Apache-2.0

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    Fault,
    ConfirmTimeout,
    Drift,
    Undo,
    Late,
    Heal,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    Policy(Policy),
    Client(String),
}

impl Policy {
    const ALL: [Self; 6] =
        [Self::Fault, Self::ConfirmTimeout, Self::Drift, Self::Undo, Self::Late, Self::Heal];

    fn as_str(self) -> &'static str {
        match self {
            Self::Fault => "policy:fault",
            Self::ConfirmTimeout => "policy:confirm-timeout",
            Self::Drift => "policy:drift",
            Self::Undo => "policy:undo",
            Self::Late => "policy:late-command",
            Self::Heal => "policy:heal",
        }
    }
}

impl Actor {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Policy(policy) => policy.as_str(),
            Self::Client(name) => name,
        }
    }

    pub fn is_policy(&self) -> bool {
        matches!(self, Self::Policy(_))
    }
}

impl From<&str> for Actor {
    fn from(text: &str) -> Self {
        let policy = Policy::ALL.into_iter().find(|policy| policy.as_str() == text);
        policy.map_or_else(|| Self::Client(text.to_owned()), Self::Policy)
    }
}

impl From<String> for Actor {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Policy> for Actor {
    fn from(policy: Policy) -> Self {
        Self::Policy(policy)
    }
}

impl FromStr for Actor {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::from(text))
    }
}

impl PartialEq<&str> for Actor {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == *text
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Actor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Actor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actor_names_in_journals_are_stable() {
        for (text, actor) in [
            ("policy:fault", Actor::Policy(Policy::Fault)),
            ("policy:confirm-timeout", Actor::Policy(Policy::ConfirmTimeout)),
            ("policy:drift", Actor::Policy(Policy::Drift)),
            ("policy:undo", Actor::Policy(Policy::Undo)),
            ("policy:heal", Actor::Policy(Policy::Heal)),
            ("uid:0", Actor::Client("uid:0".into())),
            ("policy:", Actor::Client("policy:".into())),
        ] {
            let json = serde_json::to_string(&actor).expect("a string");
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Actor>(&json).expect("an actor"), actor);
        }
    }
}
