// SPDX-License-Identifier: Apache-2.0
//! Computes the number, duration and concurrency of the faults in a trace.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{FaultTrace, TraceTime};

const DAYS_PER_YEAR: f64 = 365.25;
/// Bin width of [`Statistics::mean_ratio_by_month`], in days.
const MONTH_DAYS: f64 = 30.0;

/// Number of servers out of service at the same time, time-weighted over the window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Concurrency {
    /// Mean fraction of the servers.
    pub mean_ratio: f64,
    /// Median number of servers.
    pub p50_servers: u32,
    /// 90th percentile.
    pub p90_servers: u32,
    /// 95th percentile.
    pub p95_servers: u32,
    /// 99th percentile.
    pub p99_servers: u32,
    /// Maximum.
    pub max_servers: u32,
}

/// Durations of faults in days. Each fault counts once.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Durations {
    /// Mean duration.
    pub mean_days: f64,
    /// Quantiles as pairs (fraction of the faults, days).
    pub quantiles_days: Vec<(f64, f64)>,
    /// Number of faults with equal start and end.
    pub zero_length: u32,
}

/// Statistics of one fault class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindStatistics {
    /// Class, such as `GPU` or `NIC`.
    pub class: String,
    /// Number of faults.
    pub faults: u32,
    /// Fraction of the total downtime. Overlapping faults are each counted in full.
    pub downtime_share: f64,
}

/// Statistics of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// Observed servers.
    pub servers: u32,
    /// Servers with at least one fault.
    pub servers_affected: u32,
    /// GPUs per server.
    pub gpus_per_server: u32,
    /// Window for concurrency, in days.
    pub window_days: f64,
    /// Number of faults.
    pub faults: u32,
    /// Faults without an end event.
    pub open_faults: u32,
    /// Faults per server and year.
    pub faults_per_server_year: f64,
    /// Server-days out of service. Overlapping faults of the same server are counted once.
    pub server_days: f64,
    /// Servers out of service at the same time.
    pub concurrency: Concurrency,
    /// Durations of faults.
    pub durations: Durations,
    /// Mean fraction of servers out of service for each 30 days of the window.
    pub mean_ratio_by_month: Vec<f64>,
    /// Fault classes, most frequent first.
    pub kinds: Vec<KindStatistics>,
}

impl FaultTrace {
    /// Returns the mean fraction of servers out of service over the window.
    pub fn mean_ratio(&self) -> f64 {
        let spent = self.server_timeline(self.window).ms_by_faulty_count();
        server_ms(&spent) as f64 / (self.window.0 as f64 * f64::from(self.servers))
    }

    /// Returns the statistics of the trace.
    pub fn statistics(&self) -> Statistics {
        let last = self.faults.iter().map(|fault| fault.end).max().unwrap_or_default();
        let years = f64::from(self.servers) * self.window.as_days() / DAYS_PER_YEAR;
        let mut affected: Vec<_> = self.faults.iter().map(|fault| fault.server).collect();
        affected.sort_unstable();
        affected.dedup();
        let whole = self.server_timeline(last.max(TraceTime(1))).ms_by_faulty_count();
        Statistics {
            servers: self.servers,
            servers_affected: count(affected.len()),
            gpus_per_server: self.gpus_per_server,
            window_days: self.window.as_days(),
            faults: count(self.faults.len()),
            open_faults: self.open_faults,
            faults_per_server_year: self.faults.len() as f64 / years,
            server_days: TraceTime(server_ms(&whole)).as_days(),
            concurrency: self.concurrency(),
            durations: self.durations(),
            mean_ratio_by_month: self.mean_ratio_by_month(),
            kinds: self.kind_statistics(),
        }
    }

    fn concurrency(&self) -> Concurrency {
        let spent = self.server_timeline(self.window).ms_by_faulty_count();
        let [p50_servers, p90_servers, p95_servers, p99_servers] =
            [0.50, 0.90, 0.95, 0.99].map(|share| {
                let wanted = share * self.window.0 as f64;
                let mut so_far = 0;
                let reached = spent.iter().position(|ms| {
                    so_far += ms;
                    so_far as f64 >= wanted
                });
                count(reached.unwrap_or(spent.len() - 1))
            });
        let most = spent.iter().rposition(|&ms| ms > 0).unwrap_or(0);
        Concurrency {
            mean_ratio: self.mean_ratio(),
            p50_servers,
            p90_servers,
            p95_servers,
            p99_servers,
            max_servers: count(most),
        }
    }

    fn durations(&self) -> Durations {
        let mut days: Vec<f64> = self
            .faults
            .iter()
            .map(|fault| TraceTime(fault.end.ms_since(fault.start)).as_days())
            .collect();
        if days.is_empty() {
            return Durations::default();
        }
        days.sort_unstable_by(f64::total_cmp);
        let quantiles = [0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0].map(|share| {
            let rank = share * (days.len() - 1) as f64;
            let (below, above) = (days[rank.floor() as usize], days[rank.ceil() as usize]);
            (share, below + (above - below) * rank.fract())
        });
        Durations {
            mean_days: days.iter().sum::<f64>() / days.len() as f64,
            quantiles_days: quantiles.to_vec(),
            zero_length: count(self.faults.iter().filter(|f| f.start == f.end).count()),
        }
    }

    fn mean_ratio_by_month(&self) -> Vec<f64> {
        let months = (self.window.as_days() / MONTH_DAYS).ceil() as usize;
        let (mut ratios, mut start, mut lost_before) = (Vec::new(), TraceTime::START, 0);
        for month in 1..=months {
            let end = TraceTime::from_days(month as f64 * MONTH_DAYS).min(self.window);
            let lost = server_ms(&self.server_timeline(end).ms_by_faulty_count());
            let width = end.ms_since(start) as f64;
            ratios.push((lost - lost_before) as f64 / (width * f64::from(self.servers)));
            (start, lost_before) = (end, lost);
        }
        ratios
    }

    fn kind_statistics(&self) -> Vec<KindStatistics> {
        let mut by_class: BTreeMap<&str, (u32, u64)> = BTreeMap::new();
        for fault in &self.faults {
            let class = self.kinds.get(fault.kind as usize).map_or("unknown", |kind| &kind.class);
            let entry = by_class.entry(class).or_default();
            entry.0 += 1;
            entry.1 += fault.end.ms_since(fault.start);
        }
        let total = by_class.values().map(|(_, ms)| ms).sum::<u64>().max(1) as f64;
        let mut kinds: Vec<KindStatistics> = by_class
            .into_iter()
            .map(|(class, (faults, ms))| KindStatistics {
                class: class.to_owned(),
                faults,
                downtime_share: ms as f64 / total,
            })
            .collect();
        kinds.sort_by(|a, b| b.faults.cmp(&a.faults).then_with(|| a.class.cmp(&b.class)));
        kinds
    }
}

fn server_ms(ms_by_count: &[u64]) -> u64 {
    ms_by_count.iter().zip(0..).map(|(ms, servers): (_, u64)| ms * servers).sum()
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("a trace is bounded by its file size")
}
