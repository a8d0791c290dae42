// SPDX-License-Identifier: Apache-2.0

use lightloom_control::controller::Contended;
use lightloom_control::state::DeviceName;

pub fn evidence(device: &DeviceName, contended: &Contended) -> String {
    let mut said = Vec::new();
    if let Some(drift) = contended.drift {
        let [ours, found] = [drift.wanted, drift.observed].map(|at| device.place(at));
        let times = match contended.times {
            1 => "once".to_owned(),
            times => {
                let seconds = contended.last_ms.saturating_sub(contended.first_ms).div_ceil(1000);
                format!("{times} times within {seconds} s")
            }
        };
        let slot = device.slot(drift.slot);
        said.push(format!("{slot} was restored to {ours} and changed to {found} again, {times}"));
    }
    if let Some(report) = &contended.report {
        said.push(format!("the device reported {report}"));
    }
    if let Some(by) = &contended.claimed_by {
        said.push(format!("it is claimed by {by}"));
    }
    said.join("; ")
}
