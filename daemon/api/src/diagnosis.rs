// SPDX-License-Identifier: Apache-2.0
//! Parts that are probably at fault, with their evidence.

use serde::{Deserialize, Serialize};

use crate::words::words;

/// A part that is probably at fault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct NamedPart {
    /// Kind of part.
    pub kind: PartKind,
    /// Name of the part: `node n17`, `transceiver n17/b0`, `fibre between n17/b0 and n18/b1`.
    pub part: String,
    /// Observations that this part explains.
    pub evidence: Vec<String>,
    /// The second-best explanation. `None` if no other part explains any of the evidence.
    pub second: Option<String>,
    /// Start of the bypass around the part, Unix time in milliseconds. `None` if not bypassed.
    pub since_unix_ms: Option<u64>,
}

words! {
    /// A kind of part.
    PartKind {
        /// A node with all its modules.
        Node,
        /// A module.
        Transceiver,
        /// One lane of a module.
        Lane,
        /// A fibre.
        Fibre,
        /// The connector of a fibre at a module or at a switch port.
        Connector,
        /// A port of an optical switch.
        SwitchPort,
    }
}
