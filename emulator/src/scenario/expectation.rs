// SPDX-License-Identifier: Apache-2.0
//! Expectations about a run, each written as one sentence.

use std::fmt;
use std::str::FromStr;

use lightloom_units::id::GroupId;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

use lightloom_engine::CONTROL_PRIORITY;

/// A condition on the result of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Expectation {
    /// Compares a metric with a bound.
    Figure {
        /// Metric to compare.
        figure: Figure,
        /// Comparison.
        comparison: Comparison,
        /// Bound.
        bound: f64,
        /// Workload of the flows; `None` for all flows.
        workload: Option<String>,
    },
    /// Every fault is restored within this time.
    RestoredWithin(Picoseconds),
    /// Every collective ends within this time.
    CompletesWithin(Picoseconds),
    /// A group's completion times are the same as without faults, to the picosecond.
    Unaffected(GroupId),
    /// No packet is dropped because of a full queue.
    NoDrops {
        /// Priority; `None` for all priorities.
        priority: Option<u8>,
    },
    /// No ports pause each other in a cycle.
    NoDeadlock,
    /// A workload's flows end at the same time as without faults, to the picosecond.
    WorkloadUnaffected(String),
    /// A workload completes all repetitions within this time.
    WorkloadCompletes {
        /// Workload name.
        name: String,
        /// Time limit.
        within: Picoseconds,
    },
}

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// A metric that expectations can compare.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Figure {
            $($(#[$doc])* $name),+
        }
        impl Figure {
            /// All metrics.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
            /// Returns the name used in scenario files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text),+
                }
            }
        }
    };
}

figures! {
    /// Share of GPUs that are healthy but outside a complete ring, at the end.
    WasteRatio = "waste_ratio",
    /// Share of inner data-parallel hops that cross ToRs, at the end.
    CrossTorShare = "cross_tor_share",
    /// Number of GPUs used by jobs at the end.
    GpusUsed = "gpus_used",
    /// Number of GPUs in groups with changed completion times.
    GpusAffected = "gpus_affected",
    /// Number of groups with changed completion times.
    GroupsAffected = "groups_affected",
    /// Number of GPUs out of service.
    GpusLost = "gpus_lost",
    /// Packets dropped because of a full queue.
    Drops = "drops",
    /// Retransmitted data packets.
    Retransmissions = "retransmissions",
    /// Total number of switched bundles.
    BundlesSwitched = "bundles_switched",
    /// Number of groups that were lost and never re-formed.
    GroupsLost = "groups_lost",
    /// Share of the groups' time without fault-induced downtime.
    Availability = "availability",
    /// Share of the groups' time that the same work takes without faults.
    Goodput = "goodput",
    /// Packets lost on dark or misconnected links.
    Lost = "packets_lost",
    /// Median flow completion time.
    FctP50 = "fct_p50",
    /// 99th percentile of the flow completion time.
    FctP99 = "fct_p99",
    /// Maximum flow completion time.
    FctMax = "fct_max",
    /// Median step duration.
    StepP50 = "step_p50",
    /// 99th percentile of the step duration.
    StepP99 = "step_p99",
    /// Maximum step duration.
    StepMax = "step_max",
    /// 99th percentile of the queue length on packet arrival.
    QueueP99 = "queue_p99",
    /// Maximum queue length on packet arrival.
    QueueMax = "queue_max",
    /// Number of PFC pauses requested by switches.
    Pauses = "pauses",
    /// Total pause time of all ports.
    Paused = "paused",
    /// Pause time of the port that was paused longest.
    PausedMax = "paused_max",
    /// Minimum bus bandwidth of collectives without restarts, in bytes per second.
    BusBandwidth = "bus_bandwidth",
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Groups,
    Plan,
    Steps,
    Flows,
}

impl Figure {
    pub(crate) const fn needs(self) -> Needs {
        match self {
            Self::WasteRatio | Self::CrossTorShare | Self::GpusUsed => Needs::Plan,
            Self::GroupsAffected | Self::BundlesSwitched | Self::GroupsLost => Needs::Groups,
            Self::StepP50 | Self::StepP99 | Self::StepMax => Needs::Steps,
            Self::FctP50 | Self::FctP99 | Self::FctMax | Self::QueueP99 | Self::QueueMax => {
                Needs::Flows
            }
            _ => Needs::Nothing,
        }
    }

    /// Returns the unit of the metric.
    pub const fn unit(self) -> FigureUnit {
        match self {
            Self::FctP50
            | Self::FctP99
            | Self::FctMax
            | Self::StepP50
            | Self::StepP99
            | Self::StepMax
            | Self::Paused
            | Self::PausedMax => FigureUnit::Time,
            Self::QueueP99 | Self::QueueMax => FigureUnit::Size,
            Self::BusBandwidth => FigureUnit::Rate,
            _ => FigureUnit::Number,
        }
    }

    /// Formats a value with its unit.
    pub fn show(self, value: f64) -> String {
        match self.unit() {
            FigureUnit::Time if value == f64::INFINITY => "never".to_owned(),
            FigureUnit::Time => Picoseconds(value as u64).to_string(),
            FigureUnit::Size => Bytes(value as u64).to_string(),
            FigureUnit::Rate => BitsPerSecond((value * 8.0) as u64).to_string(),
            FigureUnit::Number => value.to_string(),
        }
    }

    fn read(self, text: &str) -> Result<f64, ExpectationError> {
        match self.unit() {
            FigureUnit::Time => Ok(amount::<Picoseconds>(text)?.0 as f64),
            FigureUnit::Size => Ok(amount::<Bytes>(text)?.0 as f64),
            FigureUnit::Rate => Ok(amount::<BitsPerSecond>(text)?.0 as f64 / 8.0),
            FigureUnit::Number => {
                let per_cent = text.strip_suffix('%').filter(|_| self.is_share());
                let number = match per_cent {
                    Some(number) => number.trim().parse().ok().map(|number: f64| number / 100.0),
                    None => text.parse().ok(),
                };
                let number = number.filter(|number: &f64| number.is_finite());
                number.ok_or_else(|| ExpectationError::Number(text.to_owned()))
            }
        }
    }

    /// Returns whether the metric is a share between 0 and 1.
    pub const fn is_share(self) -> bool {
        matches!(self, Self::WasteRatio | Self::CrossTorShare | Self::Availability | Self::Goodput)
    }

    /// Returns whether the metric is a flow completion time and can be limited to a workload.
    pub const fn is_of_flows(self) -> bool {
        matches!(self, Self::FctP50 | Self::FctP99 | Self::FctMax)
    }

    /// Returns whether the metric is the same in all runs without faults.
    pub const fn needs_faults(self) -> bool {
        matches!(
            self,
            Self::GpusAffected
                | Self::GroupsAffected
                | Self::GpusLost
                | Self::GroupsLost
                | Self::BundlesSwitched
                | Self::Availability
                | Self::Goodput
                | Self::Lost
        )
    }
}

/// Unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureUnit {
    /// Dimensionless.
    Number,
    /// Picoseconds.
    Time,
    /// Bytes.
    Size,
    /// Bytes per second, printed as bits per second.
    Rate,
}

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `==`
    Equal,
    /// `>=`
    AtLeast,
    /// `>`
    Above,
}

impl Comparison {
    const ALL: [(Self, &'static str); 5] = [
        (Self::AtMost, "<="),
        (Self::AtLeast, ">="),
        (Self::Equal, "=="),
        (Self::Below, "<"),
        (Self::Above, ">"),
    ];
    /// Returns whether the comparison holds.
    pub fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Below => value < bound,
            Self::AtMost => value <= bound,
            Self::Equal => (value - bound).abs() < 1e-12,
            Self::AtLeast => value >= bound,
            Self::Above => value > bound,
        }
    }

    /// Returns `true` if the comparison holds for all values from 0 to `most`, `false` if it holds
    /// for none of them, and otherwise `None`.
    pub fn over(self, bound: f64, most: f64) -> Option<bool> {
        let (all, none) = match self {
            Self::Below => (bound > most, bound <= 0.0),
            Self::AtMost => (bound >= most, bound < 0.0),
            Self::Equal => (false, bound < 0.0 || bound > most),
            Self::AtLeast => (bound <= 0.0, bound > most),
            Self::Above => (bound < 0.0, bound >= most),
        };
        (all || none).then_some(all)
    }

    /// Returns the relative distance of a value from `bound`, negative if the comparison fails.
    pub fn margin(self, value: f64, bound: f64) -> f64 {
        let scale = if bound == 0.0 { 1.0 } else { bound.abs() };
        let inside = match self {
            Self::Below | Self::AtMost => bound - value,
            Self::AtLeast | Self::Above => value - bound,
            Self::Equal => -(value - bound).abs(),
        };
        // Round for the JSON round trip, and turn negative zero into zero.
        (inside / scale * 1e6).round() / 1e6 + 0.0
    }
}

/// Errors in an expectation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum ExpectationError {
    #[error(
        "`{0}` is not an expectation: use `METRIC < NUMBER`, `restored within TIME`, `completes within TIME`, \
         `group gN unaffected`, `workload NAME unaffected`, `workload NAME completes within TIME`, `workload NAME fct_p99 < TIME`, `no drops`, `no drops on priority N` or \
         `no deadlock`"
    )]
    Form(String),
    #[error("unknown metric `{name}`: the metrics are {known}", known = known_figures())]
    Figure { name: String },
    #[error(
        "`{figure}` is not available per workload; help: use `fct_p50`, `fct_p99` or `fct_max`"
    )]
    NotOfWorkloads { figure: &'static str },
    #[error("`{0}` is not a comparison: use `{1}`")]
    Sign(&'static str, &'static str),
    #[error("`{0}` is not a number")]
    Number(String),
    #[error("{0}")]
    Time(String),
    #[error("unknown priority `{0}`: data has priorities 0 to 6")]
    Priority(String),
    #[error("{0}")]
    Group(String),
}

fn known_figures() -> String {
    let names: Vec<String> =
        Figure::ALL.iter().map(|figure| format!("`{}`", figure.name())).collect();
    names.join(", ")
}

impl Expectation {
    /// Returns the workload that the expectation refers to.
    pub fn workload(&self) -> Option<&str> {
        match self {
            Self::WorkloadUnaffected(name)
            | Self::WorkloadCompletes { name, .. }
            | Self::Figure { workload: Some(name), .. } => Some(name),
            _ => None,
        }
    }
}

impl FromStr for Expectation {
    type Err = ExpectationError;
    fn from_str(text: &str) -> Result<Self, ExpectationError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["restored", "within", span] => Ok(Self::RestoredWithin(amount(span)?)),
            ["completes", "within", span] => Ok(Self::CompletesWithin(amount(span)?)),
            ["group", group, "unaffected"] => {
                let group = group.parse::<GroupId>();
                group
                    .map(Self::Unaffected)
                    .map_err(|error| ExpectationError::Group(error.to_string()))
            }
            ["workload", name @ .., "unaffected"] if !name.is_empty() => {
                Ok(Self::WorkloadUnaffected(name.join(" ")))
            }
            ["workload", name @ .., "completes", "within", span] if !name.is_empty() => {
                Ok(Self::WorkloadCompletes { name: name.join(" "), within: amount(span)? })
            }
            ["workload", name @ .., figure, sign, bound]
                if !name.is_empty() && Comparison::ALL.iter().any(|(_, known)| known == sign) =>
            {
                figure_of(&format!("{figure} {sign} {bound}"), Some(name.join(" ")))
            }
            ["no", "deadlock"] => Ok(Self::NoDeadlock),
            ["no", "drops"] => Ok(Self::NoDrops { priority: None }),
            ["no", "drops", "on", "priority", priority] => {
                let known = priority.parse().ok().filter(|number| *number < CONTROL_PRIORITY);
                let priority =
                    known.ok_or_else(|| ExpectationError::Priority((*priority).to_owned()))?;
                Ok(Self::NoDrops { priority: Some(priority) })
            }
            _ => figure_of(text, None),
        }
    }
}

fn figure_of(text: &str, workload: Option<String>) -> Result<Expectation, ExpectationError> {
    let found = Comparison::ALL.iter().find_map(|(comparison, sign)| {
        text.split_once(sign).map(|(name, bound)| (name.trim(), *comparison, bound.trim()))
    });
    let (name, comparison, bound) = found.ok_or_else(|| ExpectationError::Form(text.to_owned()))?;
    let swapped = [("=<", "<="), ("=>", ">=")].into_iter().find(|(sign, _)| text.contains(sign));
    if let Some((written, sign)) = swapped {
        return Err(ExpectationError::Sign(written, sign));
    }
    let figure = Figure::ALL.iter().copied().find(|figure| figure.name() == name);
    let figure = figure.ok_or_else(|| ExpectationError::Figure { name: name.to_owned() })?;
    if workload.is_some() && !figure.is_of_flows() {
        return Err(ExpectationError::NotOfWorkloads { figure: figure.name() });
    }
    let bound = figure.read(bound)?;
    Ok(Expectation::Figure { figure, comparison, bound, workload })
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Figure { figure, comparison, bound, workload } => {
                let sign =
                    Comparison::ALL.iter().find(|(c, _)| c == comparison).map_or("", |(_, s)| s);
                if let Some(name) = workload {
                    write!(f, "workload {name} ")?;
                }
                write!(f, "{} {sign} {}", figure.name(), figure.show(*bound))
            }
            Self::RestoredWithin(span) => write!(f, "restored within {span}"),
            Self::CompletesWithin(span) => write!(f, "completes within {span}"),
            Self::Unaffected(group) => write!(f, "group {group} unaffected"),
            Self::NoDrops { priority: None } => f.write_str("no drops"),
            Self::NoDrops { priority: Some(priority) } => {
                write!(f, "no drops on priority {priority}")
            }
            Self::NoDeadlock => f.write_str("no deadlock"),
            Self::WorkloadUnaffected(name) => write!(f, "workload {name} unaffected"),
            Self::WorkloadCompletes { name, within } => {
                write!(f, "workload {name} completes within {within}")
            }
        }
    }
}

fn amount<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, ExpectationError> {
    text.parse().map_err(|error: T::Err| ExpectationError::Time(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_round_trip_through_text() {
        for text in [
            "waste_ratio < 0.01",
            "drops == 0",
            "group g3 unaffected",
            "restored within 5 ms",
            "workload all of it unaffected",
            "workload all of it completes within 5 ms",
            "workload all of it fct_p99 < 5 ms",
            "no drops",
            "no drops on priority 3",
            "no deadlock",
        ] {
            let compact = text.replace("5 ms", "5ms");
            assert_eq!(compact.parse::<Expectation>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bound_outside_the_range_makes_the_verdict_constant() {
        for (sentence, over) in [
            ("availability >= 0", Some(true)),
            ("availability <= 1", Some(true)),
            ("availability < 1", None),
            ("availability > 1", Some(false)),
            ("availability == 1", None),
            ("goodput < 0", Some(false)),
            ("drops >= 0", Some(true)),
            ("drops > -1", Some(true)),
            ("drops == 0", None),
            ("drops < 0", Some(false)),
            ("drops <= 7", None),
        ] {
            let Expectation::Figure { figure, comparison, bound, .. } = sentence.parse().unwrap()
            else {
                panic!("{sentence}")
            };
            let most = if figure.is_share() { 1.0 } else { f64::INFINITY };
            assert_eq!(comparison.over(bound, most), over, "{sentence}");
        }
    }

    #[test]
    fn invalid_expectation_error_suggests_a_valid_one() {
        let message = |text: &str| text.parse::<Expectation>().unwrap_err().to_string();
        assert!(message("all will be well").contains("`restored within TIME`"));
        assert!(message("wast_ratio < 1").contains("`waste_ratio`"));
        assert!(message("drops < few").contains("`few` is not a number"));
        assert!(message("availability > nan").contains("`nan` is not a number"));
        assert!(message("drops < inf").contains("`inf` is not a number"));
        assert!(message("restored within 5").contains("60us"));
        assert!(message("group 3 unaffected").contains("`g12`"));
        assert!(message("no drops on priority 7").contains("0 to 6"));
    }
}
