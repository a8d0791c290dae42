// SPDX-License-Identifier: Apache-2.0
//! Environment variables that make collective libraries in all programs of a node send over light.
//!
//! | for | variables |
//! | --- | --- |
//! | `torch.distributed` | `MASTER_ADDR`, `MASTER_PORT`, `RANK`, `WORLD_SIZE`, `GLOO_SOCKET_IFNAME` |
//! | Open MPI | `OMPI_MCA_…`: payload only over light, control of ranks over the data-centre network |

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::address::{DCN, LIGHT};
use crate::ranks::Ranks;
use crate::record::{AGENT, Folder};
use crate::{Error, address};

pub(crate) fn write_agent(folder: &Folder, own: &Path) -> Result<(), Error> {
    let [own, dir] =
        [own, folder.path()].map(|path| path.display().to_string().replace('\'', r"'\''"));
    let text = format!(
        "#!/bin/sh\nnode=$1; shift\nexec '{own}' twin exec \"$node\" --dir '{dir}' -- sh -c \"$*\"\n"
    );
    let file = folder.file(AGENT);
    fs::write(&file, text)
        .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o755)))
        .map_err(Error::cannot(format!("write {}", file.display())))
}

/// Omits variables that the user has already set.
pub(crate) fn of(folder: &Folder, node: &str) -> Result<Vec<(&'static str, String)>, Error> {
    let ranks: Ranks = folder.read(crate::ranks::FILE)?.unwrap_or_default();
    let agent = folder.file(AGENT).display().to_string();
    let mut all = vec![
        ("LIGHTLOOM_TWIN", folder.path().display().to_string()),
        ("LIGHTLOOM_NODE", node.to_owned()),
        ("GLOO_SOCKET_IFNAME", LIGHT.to_owned()),
        ("OMPI_MCA_btl", "tcp,self".to_owned()),
        ("OMPI_MCA_btl_tcp_if_include", LIGHT.to_owned()),
        // Other nodes do not reach a node through the interface with its address.
        ("OMPI_MCA_reachable", "weighted".to_owned()),
        ("OMPI_MCA_oob_tcp_if_include", DCN.to_owned()),
        ("OMPI_MCA_plm_rsh_agent", agent),
        // The nodes share the processors of one host.
        ("OMPI_MCA_hwloc_base_binding_policy", "none".to_owned()),
        ("OMPI_MCA_mpi_yield_when_idle", "1".to_owned()),
        // Inside the twin, all users appear as root.
        ("OMPI_ALLOW_RUN_AS_ROOT", "1".to_owned()),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1".to_owned()),
    ];
    if let Some((group, rank)) = ranks.find(node).filter(|(group, _)| group.job.is_some()) {
        let first = group.members.first().and_then(|first| first.node.strip_prefix('n'));
        let first = first.and_then(|number| number.parse().ok()).map(address::light);
        all.extend(first.map(|first| ("MASTER_ADDR", first.to_string())));
        all.extend([
            ("MASTER_PORT", "29500".to_owned()),
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", group.members.len().to_string()),
        ]);
    }
    all.retain(|(name, _)| name.starts_with("LIGHTLOOM") || std::env::var_os(name).is_none());
    Ok(all)
}
