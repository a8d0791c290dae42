// SPDX-License-Identifier: Apache-2.0
//! The parts that are named as being at fault, with their evidence.

use serde::{Deserialize, Serialize};

use crate::words::words;

/// A part that is probably at fault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct NamedPart {
    /// What kind of part it is.
    pub kind: PartKind,
    /// Which: `node n17`, `transceiver n17/b0`, `fibre between n17/b0 and n18/b1`.
    pub part: String,
    /// What is seen and it explains.
    pub evidence: Vec<String>,
    /// The part that explains it second best; nothing if no other explains any of it.
    pub second: Option<String>,
    /// When the bypass around it began, Unix time in milliseconds; nothing if its links are in use and were read now.
    pub since_unix_ms: Option<u64>,
}

words! {
    /// A kind of part that can be at fault.
    PartKind {
        /// A node with all of its modules.
        Node,
        /// A module.
        Transceiver,
        /// One lane of a module.
        Lane,
        /// A fibre.
        Fibre,
        /// The connector of a fibre at a module or at a port of a switch.
        Connector,
        /// A port of an optical switch.
        SwitchPort,
    }
}
