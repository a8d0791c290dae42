// SPDX-License-Identifier: Apache-2.0
//! Service traffic: flows with published size distributions and random starts at a given load.

use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime, Text, as_text};
use rand::RngExt;
use schemars::JsonSchema;
use serde::Deserialize;

use lightloom_engine::{FlowSpec, VertexId};

/// A point of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PointFile")]
pub struct SizeRow {
    /// Flow size.
    #[serde(with = "as_text")]
    #[schemars(with = "Text<Bytes>")]
    pub bytes: Bytes,
    /// Percentage of flows up to this size.
    #[schemars(range(min = 0, max = 100))]
    pub percent: f64,
}

/// A flow size distribution, interpolated linearly between points.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSizes {
    rows: Vec<SizeRow>,
}

/// Web search (Alizadeh et al.: "Data center TCP (DCTCP)", SIGCOMM 2010, figure 4), with the points
/// of HPCC's traffic generator (Li et al., SIGCOMM 2019, section 5.1).
const WEB_SEARCH: &[(u64, f64)] = &[
    (0, 0.0),
    (10_000, 15.0),
    (20_000, 20.0),
    (30_000, 30.0),
    (50_000, 40.0),
    (80_000, 53.0),
    (200_000, 60.0),
    (1_000_000, 70.0),
    (2_000_000, 80.0),
    (5_000_000, 90.0),
    (10_000_000, 97.0),
    (30_000_000, 100.0),
];

/// A Hadoop cluster (Roy et al.: "Inside the social network's (datacenter) network", SIGCOMM 2015,
/// figure 6), with the points of HPCC's traffic generator.
const HADOOP: &[(u64, f64)] = &[
    (0, 0.0),
    (100, 1.0),
    (200, 2.0),
    (300, 5.0),
    (350, 15.0),
    (400, 20.0),
    (500, 30.0),
    (600, 40.0),
    (700, 50.0),
    (1_000, 60.0),
    (2_000, 67.0),
    (7_000, 70.0),
    (30_000, 72.0),
    (50_000, 82.0),
    (80_000, 87.0),
    (120_000, 90.0),
    (300_000, 95.0),
    (1_000_000, 97.5),
    (2_000_000, 99.0),
    (10_000_000, 100.0),
];

impl FlowSizes {
    /// Returns the web search distribution.
    pub fn web_search() -> Self {
        Self::published(WEB_SEARCH)
    }
    /// Returns the Hadoop distribution.
    pub fn hadoop() -> Self {
        Self::published(HADOOP)
    }
    fn published(rows: &[(u64, f64)]) -> Self {
        let rows = rows.iter();
        let rows = rows.map(|&(bytes, percent)| SizeRow { bytes: Bytes(bytes), percent });
        Self { rows: rows.collect() }
    }

    /// Returns `None` if the points do not increase from 0 to 100 percent.
    pub fn through(rows: Vec<SizeRow>) -> Option<Self> {
        let rises = rows
            .windows(2)
            .all(|pair| pair[0].bytes < pair[1].bytes && pair[0].percent <= pair[1].percent);
        let begins = rows.first().is_some_and(|row| row.percent >= 0.0);
        let ends = rows.last().is_some_and(|row| (row.percent - 100.0).abs() < 1e-9);
        (rises && begins && ends).then_some(Self { rows })
    }

    /// Returns the size (at least one byte) at quantile `share`, which must be less than one.
    pub fn at(&self, share: f64) -> Bytes {
        let percent = share * 100.0;
        let above = self.rows.partition_point(|row| row.percent <= percent);
        let (Some(high), Some(low)) = (self.rows.get(above), self.rows.get(above.wrapping_sub(1)))
        else {
            return self.rows.get(above).map_or(Bytes(1), |row| Bytes(row.bytes.0.max(1)));
        };
        let part = (percent - low.percent) / (high.percent - low.percent);
        let more = (high.bytes.0 - low.bytes.0) as f64 * part;
        Bytes((low.bytes.0 + more as u64).max(1))
    }

    /// Returns the mean size in bytes.
    pub fn mean(&self) -> f64 {
        let first = self.rows.first().map_or(0.0, |row| row.bytes.0 as f64 * row.percent / 100.0);
        let parts = self.rows.windows(2).map(|pair| {
            let middle = (pair[0].bytes.0 + pair[1].bytes.0) as f64 / 2.0;
            middle * (pair[1].percent - pair[0].percent) / 100.0
        });
        first + parts.sum::<f64>()
    }

    /// Returns the flows that start within a period after `start`. Each host starts flows as a
    /// Poisson process with a load of `load` times `rate`, and destinations are random.
    pub fn flows(
        &self,
        seed: Seed,
        hosts: &[VertexId],
        load: f64,
        rate: BitsPerSecond,
        start: SimTime,
        lasts: Picoseconds,
    ) -> Vec<FlowSpec> {
        // The load excludes protocol overhead.
        let gap_ps = self.mean() * 8.0 / (load * rate.0 as f64) * 1e12;
        let mut flows = Vec::new();
        for (place, &source) in hosts.iter().enumerate() {
            let mut draws = seed.stream("arrivals", place as u64);
            let mut at = 0.0;
            loop {
                let (gap, size): (f64, f64) = (draws.random(), draws.random());
                let other: f64 = draws.random();
                at -= (1.0 - gap).ln() * gap_ps;
                if at >= lasts.get() as f64 {
                    break;
                }
                let other = (other * (hosts.len() - 1) as f64) as usize;
                let destination = hosts[other + usize::from(other >= place)];
                let flow = FlowSpec::new(source, destination, self.at(size));
                flows.push(flow.at(start + Picoseconds(at as u64)));
            }
        }
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_sizes_have_the_published_shares_and_mean() {
        for sizes in [FlowSizes::web_search(), FlowSizes::hadoop()] {
            let mut draws = Seed(1).stream("test", 0);
            let drawn: Vec<f64> = (0..200_000)
                .map(|_| {
                    let share: f64 = draws.random();
                    sizes.at(share).0 as f64
                })
                .collect();
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            assert!((mean / sizes.mean() - 1.0).abs() < 0.03, "{mean} is not {}", sizes.mean());
            for row in &sizes.rows {
                let below = drawn.iter().filter(|size| **size <= row.bytes.0 as f64).count();
                let percent = below as f64 / drawn.len() as f64 * 100.0;
                assert!((percent - row.percent).abs() < 0.5, "{percent} % up to {}", row.bytes);
            }
        }
        // Calculated by hand from the published points.
        assert!((FlowSizes::web_search().mean() / 1.7115e6 - 1.0).abs() < 0.02);
    }

    #[test]
    fn arrivals_match_the_load_and_spread_of_a_poisson_process() {
        let hosts: Vec<VertexId> = (0..16).map(VertexId).collect();
        let (rate, lasts) = (BitsPerSecond::from_gbps(100), Picoseconds::from_millis(2_000));
        let sizes = FlowSizes::hadoop();
        let flows = sizes.flows(Seed(3), &hosts, 0.3, rate, SimTime(7), lasts);
        let data: u64 = flows.iter().map(|flow| flow.message.0).sum();
        let load = data as f64 * 8.0 / (16.0 * 100e9 * 2.0);
        assert!((load / 0.3 - 1.0).abs() < 0.05, "{load}");
        assert!(flows.iter().all(|flow| flow.source != flow.destination && flow.start.0 >= 7));
        // In a Poisson process, the standard deviation of the gaps equals their mean.
        let starts: Vec<f64> =
            flows.iter().filter(|f| f.source == hosts[0]).map(|f| f.start.0 as f64).collect();
        let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{} {mean}", variance.sqrt());
    }

    #[test]
    fn size_points_must_rise_to_100_percent() {
        let row = |bytes, percent| SizeRow { bytes: Bytes(bytes), percent };
        assert!(FlowSizes::through(vec![row(1, 0.0), row(10, 100.0)]).is_some());
        assert!(FlowSizes::through(vec![row(1, 50.0), row(10, 100.0)]).is_some());
        assert!(FlowSizes::through(vec![row(10, 0.0), row(1, 100.0)]).is_none());
        assert!(FlowSizes::through(vec![row(1, 0.0), row(10, 99.0)]).is_none());
        assert!(FlowSizes::through(Vec::new()).is_none());
    }
}
