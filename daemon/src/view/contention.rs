// SPDX-License-Identifier: Apache-2.0

use super::{Knowledge, attention};
use crate::runtime::contention;
use lightloom_control::controller::{Contended, QUIET};
use lightloom_control::state::DeviceName;
use lightloom_daemon_api::status::ContendedDevice;

pub(super) fn all(known: &Knowledge<'_>) -> Vec<ContendedDevice> {
    let now = &known.now;
    let contended = known.control.sightings().devices().keys().filter_map(|device| {
        let contended = known.control.sightings().contended(device, now)?;
        Some(ContendedDevice {
            device: device.to_string(),
            evidence: contention::evidence(device, &contended),
            times: contended.times,
            first_unix_ms: contended.first_ms,
            last_unix_ms: contended.last_ms,
            stopped: contended.stopped_for.is_some() || contended.claimed_by.is_some(),
            next: next(known, device, &contended),
        })
    });
    contended.collect()
}

fn next(known: &Knowledge<'_>, device: &DeviceName, contended: &Contended) -> String {
    let keep = attention::adopt(known, std::slice::from_ref(device));
    let keep = format!("keep its setting: {keep}");
    if contended.claimed_by.is_some() {
        return format!(
            "stop one of the two controllers: a claim in a database expires 60 s after its holder \
                stops; over gNMI, the controller with the larger election id takes over; {keep}"
        );
    }
    let again = attention::restore(known).or_else(|| attention::again(known));
    let again = again.unwrap_or_else(|| "lightloom ctl apply PLAN --mode update".into());
    let then = match contended.stopped_for {
        Some(left) => {
            let minutes = left.0.div_ceil(60_000_000);
            format!("restoring resumes when you decide, or after {minutes} min without a change")
        }
        None => {
            let minutes = QUIET.0 / 60_000_000;
            format!(
                "restored at increasing intervals; forgotten after {minutes} min without a \
                change"
            )
        }
    };
    format!("stop the other controller, then restore ours: {again}; or {keep}; {then}")
}
