// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use lightloom_fabric::plan::{Metrics, Plan, digest};
use serde::Serialize;

use crate::table::{TextTable, separated};

#[derive(Serialize)]
pub(super) struct Against {
    file: String,
    digest: String,
    faults: Vec<String>,
    same_fabric: bool,
    same_plan: bool,
    metrics: Metrics,
    #[serde(skip)]
    rows: Vec<[String; 3]>,
}

impl Against {
    pub(super) fn new(file: String, other: &Plan, plan: &Plan) -> Self {
        let row = |what: &str, of: &dyn Fn(&Plan) -> String| [what.to_owned(), of(plan), of(other)];
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let cross_connects =
            |plan: &Plan| plan.phases.iter().map(|phase| phase.circuits.len()).sum::<usize>();
        let rows = vec![
            row("plan", &|plan| digest(plan)[..12].to_owned()),
            row("failed parts", &|plan| plan.faults.len().to_string()),
            row("job groups", &|plan| {
                plan.groups.iter().filter(|group| group.job.is_some()).count().to_string()
            }),
            row("GPUs used", &|plan| plan.metrics.gpus_used.to_string()),
            row("GPUs spare", &|plan| plan.metrics.gpus_spare.to_string()),
            row("wasted", &|plan| percent(plan.metrics.waste_ratio)),
            row("inner hops across ToRs", &|plan| percent(plan.metrics.cross_tor_share)),
            row("communication per step", &|plan| {
                or_dash(plan.metrics.step_time_ps.map(|time| time.to_string()))
            }),
            row("cross-connects, all phases", &|plan| cross_connects(plan).to_string()),
        ];
        Self {
            file,
            digest: digest(other),
            faults: other.faults.iter().map(ToString::to_string).collect(),
            same_fabric: other.fabric_sha256 == plan.fabric_sha256,
            same_plan: digest(other) == digest(plan),
            metrics: other.metrics.clone(),
            rows,
        }
    }
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = ["", "this plan", self.file.as_str()];
        // The digests in the first row can consist of digits only.
        let mut table = TextTable::new(headings).verbatim();
        for (at, row) in self.rows.iter().enumerate() {
            table.row(row.clone().map(|cell| if at == 0 { cell } else { separated(&cell) }));
        }
        write!(f, "\n{table}")?;
        match (self.same_fabric, self.same_plan) {
            (false, _) => writeln!(f, "{} was made for another fabric file", self.file),
            (true, true) => writeln!(f, "the plans are identical"),
            (true, false) => Ok(()),
        }
    }
}
