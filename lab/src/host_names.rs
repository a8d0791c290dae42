// SPDX-License-Identifier: Apache-2.0
//! Options that name the hosts of a plan.

use std::path::PathBuf;

use anyhow::Context;
use lightloom_report::export::ExportNames;

#[derive(Debug, clap::Args)]
pub(crate) struct HostNames {
    /// Template for host names: `{}` is the number, `{:04}` pads it to four digits [default: ids].
    #[arg(long, value_name = "TEMPLATE")]
    hostname: Option<String>,
    /// File with host names: one id and one name per line.
    #[arg(long, value_name = "FILE", conflicts_with = "hostname")]
    hostnames: Option<PathBuf>,
}

impl HostNames {
    pub(crate) fn read(&self, prefix: &'static str, count: u32) -> anyhow::Result<ExportNames> {
        if let Some(template) = &self.hostname {
            return Ok(ExportNames::from_template(template, count)?);
        }
        let Some(path) = &self.hostnames else { return Ok(ExportNames::ids(prefix, count)) };
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        ExportNames::from_list(&text, prefix, count).context(name)
    }
}
