// SPDX-License-Identifier: Apache-2.0
//! Master arbitration, the one of the extensions in the public `gnmi_ext.proto` that is spoken here: of several
//! clients with one role the one with the largest election id may change a device.

use std::fmt;

use prost::Message;

/// One extension of a request; of any but master arbitration the content is skipped.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Extension {
    /// Who may change the device.
    #[prost(message, optional, tag = "2")]
    pub master_arbitration: Option<MasterArbitration>,
}

/// Who a client is among those that may change a device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MasterArbitration {
    /// What the client is for; `None` for the default role.
    #[prost(message, optional, tag = "1")]
    pub role: Option<ArbitrationRole>,
    /// The larger one is master.
    #[prost(message, optional, tag = "2")]
    pub election_id: Option<Uint128>,
}

/// Clients of one role compete with each other alone.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ArbitrationRole {
    /// Its name.
    #[prost(string, tag = "1")]
    pub id: String,
}

/// 128 bits in two halves.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Uint128 {
    /// The upper half.
    #[prost(uint64, tag = "1")]
    pub high: u64,
    /// The lower half.
    #[prost(uint64, tag = "2")]
    pub low: u64,
}

impl Uint128 {
    /// The number.
    #[must_use]
    pub const fn number(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

impl From<u128> for Uint128 {
    #[expect(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
    fn from(number: u128) -> Self {
        Self { high: (number >> 64) as u64, low: number as u64 }
    }
}

/// What a client stands for election with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// `None` for the default role.
    pub role: Option<String>,
    /// Every next master has a larger one.
    pub election_id: u128,
}

impl Candidacy {
    /// As a request carries it.
    #[must_use]
    pub fn extension(&self) -> Extension {
        Extension::arbitration(self.role.as_deref(), Some(self.election_id))
    }
}

impl fmt::Display for Candidacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "election id {}", self.election_id)?;
        self.role.iter().try_for_each(|role| write!(f, " as `{role}`"))
    }
}

impl Extension {
    /// Master arbitration with this role and number.
    #[must_use]
    pub fn arbitration(role: Option<&str>, election_id: Option<u128>) -> Self {
        let role = role.map(|id| ArbitrationRole { id: id.to_owned() });
        let election_id = election_id.map(Uint128::from);
        Self { master_arbitration: Some(MasterArbitration { role, election_id }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::SetRequest;

    /// Field numbers of `gnmi.proto` (5) and `gnmi_ext.proto` (2; 1 and 2; 1; 1 and 2), written by hand.
    #[test]
    fn a_set_carries_role_and_election_id_at_the_published_fields() {
        let candidacy = Candidacy { role: Some("ocs".into()), election_id: 3 << 64 | 7 };
        let set = SetRequest { extension: vec![candidacy.extension()], ..SetRequest::default() };
        let by_hand =
            [0x2a, 15, 0x12, 13, 0x0a, 5, 0x0a, 3, b'o', b'c', b's', 0x12, 4, 0x08, 3, 0x10, 7];
        assert_eq!(set.encode_to_vec(), by_hand);
        let read = SetRequest::decode(&by_hand[..]).unwrap();
        assert_eq!(read, set);
        let arbitration = read.extension[0].master_arbitration.clone().unwrap();
        assert_eq!(arbitration.election_id.unwrap().number(), candidacy.election_id);
    }
}
