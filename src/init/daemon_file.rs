// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write;

use anyhow::bail;
use lightloom_fabric::fabric::Fabric;

pub(super) fn text(fabric: &Fabric, fabric_file: &str) -> anyhow::Result<String> {
    let switches = fabric.dcn.circuits().map_or(0, |network| network.switches());
    let bundles = if fabric.hbd.ring().is_some() { fabric.hbd.k() } else { 0 };
    if switches == 0 && bundles == 0 {
        bail!(
            "`{}` has neither rings of transceivers nor optical switches, so the daemon would have no devices",
            fabric.name
        );
    }
    let mut text = format!(
        "# The daemon for `{}`. Fill in addresses, certificates and drivers; `lightloomd --config FILE --check` lists
# missing entries. Nothing moves before `lightloom ctl apply`.
state_dir: /var/lib/lightloom
fabric: {fabric_file}
policies:
  on_failure: rollback        # or hold: leave devices in place and report their positions
  on_drift: report            # or restore
  on_fault: report            # or bypass: bypass failed nodes automatically
  poll_every: 1s
",
        fabric.name
    );
    if bundles > 0 {
        let last = fabric.hbd.nodes() - 1;
        let _ = write!(
            text,
            "# Transceivers, by an agent on each host (docs/hardware.md); emulated ones: `serial: \"/dev/…/n{{node}}-b{{bundle}}\"`.
modules:
  - nodes: [0, {last}]
    bundles: {bundles}
    agent:
      tcp: \"host{{node}}:7410\"
      module: \"n{{node}}-b{{bundle}}\"
      tls: {{ca: agents.pem, certificate: daemon.pem, key: daemon.key}}
"
        );
    }
    if switches > 0 {
        text += "# Optical switches; `scpi` may be `tl1`, `sonic` or `gnmi`, each with its own keys (docs/hardware.md).\ndevices:\n";
        for switch in 0..switches {
            let _ = writeln!(
                text,
                "  - {{name: ocs{switch}, driver: {{scpi: {{tcp: \"ocs{switch}:5025\"}}}}}}"
            );
        }
    }
    Ok(text)
}
