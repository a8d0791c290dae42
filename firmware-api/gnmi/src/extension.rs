// SPDX-License-Identifier: Apache-2.0
//! Master arbitration (public `gnmi_ext.proto`), the only supported extension. Among clients with the same
//! role, only the one with the largest election id may change a device.

use std::fmt;

use prost::Message;

/// An extension of a request. Unknown extensions are skipped.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Extension {
    /// Determines which client may change the device.
    #[prost(message, optional, tag = "2")]
    pub master_arbitration: Option<MasterArbitration>,
}

/// A client's role and election id.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MasterArbitration {
    /// `None` is the default role.
    #[prost(message, optional, tag = "1")]
    pub role: Option<ArbitrationRole>,
    /// The client with the largest id is master.
    #[prost(message, optional, tag = "2")]
    pub election_id: Option<Uint128>,
}

/// A role. Only clients with the same role compete.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ArbitrationRole {
    /// Name of the role.
    #[prost(string, tag = "1")]
    pub id: String,
}

/// A 128-bit number.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Uint128 {
    /// Upper half.
    #[prost(uint64, tag = "1")]
    pub high: u64,
    /// Lower half.
    #[prost(uint64, tag = "2")]
    pub low: u64,
}

impl Uint128 {
    /// Combines both halves.
    pub const fn number(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

impl From<u128> for Uint128 {
    #[expect(clippy::cast_possible_truncation, reason = "each half is truncated on purpose")]
    fn from(number: u128) -> Self {
        Self { high: (number >> 64) as u64, low: number as u64 }
    }
}

/// A controller's candidacy for mastership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// `None` is the default role.
    pub role: Option<String>,
    /// Election id. Each new master needs a larger id.
    pub election_id: u128,
}

impl Candidacy {
    /// Converts the candidacy to the extension of a request.
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
    /// Creates a master arbitration extension.
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

    /// Field numbers from `gnmi.proto` (5) and `gnmi_ext.proto` (2; 1 and 2; 1; 1 and 2).
    #[test]
    fn set_carries_role_and_election_id_in_the_published_fields() {
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
