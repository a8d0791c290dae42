// SPDX-License-Identifier: Apache-2.0

use super::{Kind, Protocol};
use crate::config::linux::LinuxFile;
#[cfg(feature = "edges")]
use crate::driver::{Endpoint, linux::Linux};

impl Protocol for LinuxFile {
    fn kind(&self) -> Kind {
        Kind::LinuxSwitch { nodes: self.links.iter().filter_map(|link| link.node).collect() }
    }

    #[cfg(feature = "edges")]
    fn endpoint(&self, _place: &super::Place<'_>) -> anyhow::Result<Endpoint> {
        Ok(Endpoint::local(Linux::new(self.clone())))
    }
}
