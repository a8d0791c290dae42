// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use lightloom::junit::{self, JunitCase, JunitEnd, Suite};
use lightloom_daemon_api::text::count;
use serde::Serialize;

use super::case::{CaseVerdict, SuiteResults, percentile};
use super::target::{Options, Protocol};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub id: String,
    pub clause: &'static str,
    pub says: &'static str,
    pub verdict: &'static str,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SetUps {
    pub count: usize,
    pub median_seconds: f64,
    pub p99_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Untestable {
    pub promise: &'static str,
    pub why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SuiteReport {
    pub schema: &'static str,
    pub version: &'static str,
    pub target: String,
    pub protocol: &'static str,
    pub standard: &'static str,
    pub identity: String,
    pub seed: u64,
    pub may_move: Vec<String>,
    pub interrupted: bool,
    pub cases: Vec<Line>,
    /// `None` if no circuit was created.
    pub set_up: Option<SetUps>,
    pub observations: BTreeMap<&'static str, String>,
    pub untestable: Vec<Untestable>,
}

impl SuiteReport {
    pub fn of(
        protocol: Protocol,
        identity: String,
        options: &Options,
        results: SuiteResults,
    ) -> Self {
        let cases = results.cases.into_iter().map(|(case, verdict)| {
            let (word, detail) = match verdict {
                CaseVerdict::Passed => ("passed", String::new()),
                CaseVerdict::Misbehaves(what) => ("misbehaves", what),
                CaseVerdict::Fault(what) => ("fault", what),
                CaseVerdict::NotTested(why) => ("not-tested", why),
            };
            Line {
                id: format!("{}/{}", protocol.scheme(), case.id()),
                clause: case.clause,
                says: case.says,
                verdict: word,
                detail,
            }
        });
        let [median, p99] = [50, 99]
            .map(|share| percentile(&results.set_ups, share).map(|span| span.as_secs_f64()));
        let set_up = median.zip(p99).map(|(median_seconds, p99_seconds)| SetUps {
            count: results.set_ups.len(),
            median_seconds,
            p99_seconds,
        });
        let untestable = results.untestable.iter();
        let untestable = untestable.map(|&(promise, why)| Untestable { promise, why });
        Self {
            schema: "lightloom.conform/v1",
            version: env!("CARGO_PKG_VERSION"),
            target: options.target.clone(),
            protocol: protocol.scheme(),
            standard: protocol.standard(),
            identity,
            seed: options.seed,
            may_move: options.may_move.clone(),
            interrupted: results.is_interrupted,
            cases: cases.collect(),
            set_up,
            observations: results.observations,
            untestable: untestable.collect(),
        }
    }

    pub fn count(&self, verdict: &str) -> usize {
        self.cases.iter().filter(|line| line.verdict == verdict).count()
    }

    pub fn is_good(&self) -> bool {
        self.count("misbehaves") == 0 && self.count("fault") == 0 && !self.interrupted
    }

    fn summary(&self) -> String {
        format!(
            "{} passed, {} misbehaving, {}, {} not tested",
            self.count("passed"),
            self.count("misbehaves"),
            count(self.count("fault"), "fault"),
            self.count("not-tested")
        )
    }

    /// Returns the measured times and the observed choices of the device.
    fn remarks(&self) -> Vec<String> {
        let times = self.set_up.map(|SetUps { count, median_seconds, p99_seconds }| {
            let (median, p99) = (median_seconds * 1e3, p99_seconds * 1e3);
            format!("set-up of {count} circuits: median {median:.1} ms, p99 {p99:.1} ms")
        });
        let observed = self.observations.iter();
        times
            .into_iter()
            .chain(observed.map(|(subject, found)| format!("{subject}: {found}")))
            .collect()
    }

    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}\nagainst {}\n\n", self.target, self.identity, self.standard);
        let width = self.cases.iter().map(|line| line.id.len()).max().unwrap_or(0);
        for line in &self.cases {
            let word = match line.verdict {
                "misbehaves" => "MISBEHAVES",
                "fault" => "FAULT",
                other => other,
            };
            let _ = write!(text, "{word:10}  {:width$}  {}", line.id, line.says);
            let _ = match line.detail.as_str() {
                "" => writeln!(text),
                detail => {
                    write!(text, "\n{:10}  {:width$}  → {detail} ({})\n", "", "", line.clause)
                }
            };
        }
        let _ = write!(text, "\n{}", self.summary());
        if self.interrupted {
            text.push_str("; interrupted: the moved circuits were restored");
        }
        text.push('\n');
        for remark in self.remarks() {
            let _ = writeln!(text, "{remark}");
        }
        for one in &self.untestable {
            let _ = writeln!(text, "not tested: {}: {}", one.promise, one.why);
        }
        text
    }

    pub fn junit(&self) -> String {
        let mut suite = Suite::new(format!("conform {}", self.target));
        let class = format!("lightloom.conform.{}", self.protocol);
        for line in &self.cases {
            let message = match line.detail.is_empty() {
                true => String::new(),
                false => format!("{}: {} ({})", line.says, line.detail, line.clause),
            };
            let ended = match line.verdict {
                "passed" => JunitEnd::Well,
                "misbehaves" => JunitEnd::Failed(message, String::new()),
                "fault" => JunitEnd::Error(message),
                _ => JunitEnd::Skipped(message),
            };
            suite.add(JunitCase::new(line.id.clone(), &class, ended).took(Duration::ZERO));
        }
        junit::document("lightloom conform", &[suite])
    }
}
