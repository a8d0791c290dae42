// SPDX-License-Identifier: Apache-2.0
//! Synthesises a trace that resembles the InfiniteHBD paper's public trace (github.com/stepfun-ai/InfiniteHBD-Trace,
//! 400 servers, 348 days) in fault rate, duration quantiles, mean failed servers per 30 days, and fault classes. It
//! does not reproduce durations by class, batches of simultaneous faults, faults of zero length, or the few servers
//! that are out for months (ten of them account for 32 % of the public downtime).

use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;
use rand::seq::SliceRandom;

use super::{Fault, FaultKind, FaultTrace, ServerId, TraceTime};

/// Number of servers in the public trace.
pub const PUBLISHED_SERVERS: u32 = 400;
const PUBLISHED_DAYS: u32 = 348;
const PUBLISHED_FAULTS: f64 = 584.0;
const DAYS_PER_YEAR: f64 = 365.25;

/// Quantiles of the duration in days, interpolated by logarithm. Their mean is 5.7 days (5.5 in the public trace).
const DURATION_DAYS: [(f64, f64); 10] = [
    (0.0, 0.0005),
    (0.05, 0.008),
    (0.10, 0.009),
    (0.25, 0.086),
    (0.50, 0.85),
    (0.75, 3.16),
    (0.90, 12.97),
    (0.95, 30.7),
    (0.99, 81.9),
    (1.0, 130.96),
];

/// Mean percentage of failed servers for each twelfth of the public window (30 days).
const LEVEL_BY_TWELFTH: [f64; 12] =
    [0.82, 1.91, 6.31, 5.04, 1.24, 1.79, 1.64, 2.50, 2.68, 1.48, 1.07, 0.73];

/// Faults in the public trace by level and class. Rare classes are combined by level.
const FAULTS_BY_KIND: [(u32, &str, &str); 10] = [
    (158, "Hardware Failure", "GPU"),
    (144, "Other Failure", "Unknown Error"),
    (97, "Other Failure", "Stress Test Failure"),
    (40, "Hardware Failure", "Parameter Plane Cable"),
    (33, "Hardware Failure", "Fan"),
    (30, "Hardware Failure", "NIC"),
    (26, "Hardware Failure", "Power Supply"),
    (24, "Software Failure", "Other Failures"),
    (21, "Other Failure", "Other Failures"),
    (11, "Hardware Failure", "Other Failures"),
];

/// Parameters of a synthetic trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Synthesis {
    /// Number of servers, each with 8 GPUs as in the public trace.
    pub servers: u32,
    /// Length of the window in days.
    pub days: f64,
    /// Faults per server and year.
    pub faults_per_server_year: f64,
    /// Random seed.
    pub seed: Seed,
}

impl Synthesis {
    /// Returns the public trace's number of servers, days and fault rate.
    pub fn published(seed: Seed) -> Self {
        let days = f64::from(PUBLISHED_DAYS);
        let years = f64::from(PUBLISHED_SERVERS) * days / DAYS_PER_YEAR;
        let faults_per_server_year = PUBLISHED_FAULTS / years;
        Self { servers: PUBLISHED_SERVERS, days, faults_per_server_year, seed }
    }

    /// Returns the parameters with a different number of servers.
    #[must_use]
    pub fn with_servers(self, servers: u32) -> Self {
        Self { servers, ..self }
    }

    /// Generates the trace. One duration is drawn from each of equally probable slices, so that
    /// even a small trace has the published mix of short and long faults.
    pub fn trace(self) -> FaultTrace {
        let years = f64::from(self.servers) * self.days / DAYS_PER_YEAR;
        let faults = (self.faults_per_server_year * years).round() as usize;
        let mut random = self.seed.stream("synthetic trace", 0);
        let durations = stratified_durations(faults, &mut random);
        let centres = Centres::fit(self.days);
        let servers = UnequalServers::draw(self.servers, &mut random);
        let mut faults: Vec<Fault> = durations
            .into_iter()
            .map(|duration_days| {
                let duration_days = duration_days.min(self.days);
                let centre = centres.draw(&mut random);
                let start = (centre - duration_days / 2.0).clamp(0.0, self.days - duration_days);
                Fault {
                    start: at_resolution(start),
                    end: at_resolution(start + duration_days),
                    server: servers.pick(&mut random),
                    kind: pick_kind(&mut random),
                }
            })
            .collect();
        faults.sort_unstable();
        let names = number_by_first_fault(&mut faults);
        FaultTrace {
            servers: self.servers,
            gpus_per_server: 8,
            window: TraceTime::from_days(self.days),
            faults,
            kinds: FAULTS_BY_KIND.iter().map(|(_, level, class)| kind(level, class)).collect(),
            names,
            open_faults: 0,
        }
    }
}

fn at_resolution(days: f64) -> TraceTime {
    TraceTime::from_days((days * 1e4).round() / 1e4)
}

fn stratified_durations(count: usize, random: &mut Stream) -> Vec<f64> {
    let mut durations: Vec<f64> = (0..count)
        .map(|slice| duration_at((slice as f64 + random.random::<f64>()) / count as f64))
        .collect();
    durations.shuffle(random);
    durations
}

fn duration_at(rank: f64) -> f64 {
    let upper = DURATION_DAYS.iter().position(|(share, _)| rank <= *share).unwrap_or(9).max(1);
    let ((below, short), (above, long)) = (DURATION_DAYS[upper - 1], DURATION_DAYS[upper]);
    let position = (rank - below) / (above - below);
    short * (long / short).powf(position)
}

struct Centres {
    cumulative: Vec<f64>,
    piece_days: f64,
}

impl Centres {
    const PIECES: usize = 96;

    /// A long fault smears the failure level over its length, so Richardson-Lucy iteration (JOSA
    /// 62, 1972) finds the weights whose smeared sum matches the published level.
    fn fit(days: f64) -> Self {
        let piece_days = days / Self::PIECES as f64;
        let smear = smear(days);
        let target: Vec<f64> =
            (0..Self::PIECES).map(|piece| LEVEL_BY_TWELFTH[piece * 12 / Self::PIECES]).collect();
        let mut weights = target.clone();
        for _ in 0..200 {
            let seen =
                |to: usize| -> f64 { weights.iter().zip(&smear).map(|(w, row)| w * row[to]).sum() };
            let ratio: Vec<f64> = (0..Self::PIECES).map(|to| target[to] / seen(to)).collect();
            for (weight, row) in weights.iter_mut().zip(&smear) {
                *weight *= row.iter().zip(&ratio).map(|(share, r)| share * r).sum::<f64>();
            }
        }
        let total: f64 = weights.iter().sum();
        let mut so_far = 0.0;
        let cumulative = weights
            .iter()
            .map(|weight| {
                so_far += weight / total;
                so_far
            })
            .collect();
        Self { cumulative, piece_days }
    }

    fn draw(&self, random: &mut Stream) -> f64 {
        let rank = random.random::<f64>();
        let piece = self.cumulative.partition_point(|sum| *sum < rank).min(Self::PIECES - 1);
        (piece as f64 + random.random::<f64>()) * self.piece_days
    }
}

/// `smear[from][to]` is the fraction of downtime of faults centred in `from` that is in `to`.
fn smear(days: f64) -> Vec<Vec<f64>> {
    let piece_days = days / Centres::PIECES as f64;
    let durations: Vec<f64> = (0..200).map(|i| duration_at((f64::from(i) + 0.5) / 200.0)).collect();
    let row = |from: usize| {
        let mut row = vec![0.0; Centres::PIECES];
        for duration in durations.iter().map(|duration| duration.min(days)) {
            let centre = (from as f64 + 0.5) * piece_days;
            let start = (centre - duration / 2.0).clamp(0.0, days - duration);
            for (to, share) in row.iter_mut().enumerate() {
                let (low, high) = (to as f64 * piece_days, (to + 1) as f64 * piece_days);
                *share += (high.min(start + duration) - low.max(start)).max(0.0);
            }
        }
        let total: f64 = row.iter().sum();
        row.iter().map(|share| share / total).collect()
    };
    (0..Centres::PIECES).map(row).collect()
}

/// Fault rates drawn from an exponential distribution. 41 % of the servers then have no fault
/// (public trace: 42 %); with equal rates it would be 23 %.
struct UnequalServers {
    cumulative: Vec<f64>,
}

impl UnequalServers {
    fn draw(servers: u32, random: &mut Stream) -> Self {
        let mut so_far = 0.0;
        let cumulative = (0..servers)
            .map(|_| {
                so_far -= (1.0 - random.random::<f64>()).ln();
                so_far
            })
            .collect();
        Self { cumulative }
    }

    fn pick(&self, random: &mut Stream) -> ServerId {
        let total = self.cumulative.last().copied().unwrap_or(0.0);
        let rank = random.random::<f64>() * total;
        let index = self.cumulative.partition_point(|sum| *sum < rank);
        let last = self.cumulative.len().saturating_sub(1);
        ServerId(u32::try_from(index.min(last)).expect("as many as servers"))
    }
}

fn pick_kind(random: &mut Stream) -> u32 {
    let total: u32 = FAULTS_BY_KIND.iter().map(|(faults, ..)| faults).sum();
    let mut rank = random.random_range(0..total);
    for ((faults, ..), index) in FAULTS_BY_KIND.iter().zip(0..) {
        if rank < *faults {
            return index;
        }
        rank -= faults;
    }
    unreachable!("the rank is below the sum")
}

fn kind(level: &str, class: &str) -> FaultKind {
    FaultKind {
        level: level.to_owned(),
        class: class.to_owned(),
        description: "synthetic".to_owned(),
    }
}

fn number_by_first_fault(faults: &mut [Fault]) -> Vec<String> {
    let mut order: Vec<ServerId> = Vec::new();
    let mut number = rustc_hash::FxHashMap::default();
    for fault in faults.iter_mut() {
        let drawn = fault.server;
        let next = ServerId(u32::try_from(order.len()).expect("as many as servers"));
        fault.server = *number.entry(drawn).or_insert_with(|| {
            order.push(drawn);
            next
        });
    }
    faults.sort_unstable();
    order.iter().map(|server| format!("server-{:05}", server.0)).collect()
}
