// SPDX-License-Identifier: Apache-2.0
//! Availability and goodput, as docs/metrics.md defines them.
//!
//! Workers are the GPUs of a group, hosts that carry only traffic, and optical ports of a fabric
//! with phases.

use super::flows::Compared;
use super::{JudgedRun, groups};
use crate::outcome::Metrics;

#[derive(Clone, Copy, Default)]
pub(super) struct Share {
    pub(super) part: f64,
    pub(super) whole: f64,
}

impl Share {
    fn add(&mut self, other: Self) {
        self.part += other.part;
        self.whole += other.whole;
    }

    /// Rounded to nine digits to survive the JSON round trip.
    fn ratio(self) -> f64 {
        let Self { part, whole } = self;
        let share = if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 1.0 };
        (share * 1e9).round() / 1e9
    }
}

pub(super) fn metrics(ran: &JudgedRun<'_>, traffic: Option<&Compared<'_>>) -> Metrics {
    let (mut up, mut useful) = (Share::default(), Share::default());
    if !ran.log.groups.is_empty() {
        up.add(groups::availability(ran.log));
        useful.add(groups::goodput(ran.log, ran.baseline));
    }
    if let Some(traffic) = traffic.filter(|_| ran.log.groups.is_empty()) {
        up.add(of_hosts(ran));
        let hosts = ran.start.substrate.hosts.len();
        let (here, calm) = (ran.log.ended.0, ran.baseline.ended.0);
        useful.add(Share {
            part: calm.min(here) as f64 * (hosts - traffic.hosts_open()) as f64,
            whole: here as f64 * hosts as f64,
        });
    }
    if let Some(ports) = optical_ports(ran) {
        let time = ran.log.ended.0 as f64;
        up.add(Share { part: ports * time - ran.log.broken as f64, whole: ports * time });
        let [took, calm] = [ran.log, ran.baseline].map(|log| {
            let ended = log.phases.len() == ran.baseline.phases.len();
            let times = log.phases.iter().map(|phase| phase.time);
            times.sum::<Option<lightloom_units::Picoseconds>>().filter(|_| ended)
        });
        let part = took.and(calm).map_or(0.0, |time| time.0 as f64);
        let whole = took.map_or(time, |time| time.0 as f64);
        useful.add(Share { part: part * ports, whole: whole * ports });
    }
    Metrics { availability: up.ratio(), goodput: useful.ratio() }
}

pub(super) fn optical_ports(ran: &JudgedRun<'_>) -> Option<f64> {
    let circuits = ran.start.substrate.circuits.as_ref()?.network();
    let ports = u128::from(circuits.optical_ports()) * circuits.leaves() as u128;
    (!ran.log.phases.is_empty()).then_some(ports as f64)
}

fn of_hosts(ran: &JudgedRun<'_>) -> Share {
    let ended = ran.log.ended;
    let whole = ended.0 as f64 * ran.start.substrate.hosts.len() as f64;
    let out = ran.log.out_of_service.iter();
    let lost: u64 = out.map(|(since, until)| until.0.min(ended.0).saturating_sub(since.0)).sum();
    Share { part: whole - lost as f64, whole }
}
