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

fn figures(plan: &Plan) -> [(&'static str, String); 9] {
    let groups = plan.groups.iter().filter(|group| group.job.is_some());
    let circuits: usize = plan.phases.iter().map(|phase| phase.circuits.len()).sum();
    let step = plan.metrics.step_time_ps;
    [
        ("plan", digest(plan)[..12].to_owned()),
        ("failed parts", plan.faults.len().to_string()),
        ("job groups", groups.count().to_string()),
        ("GPUs used", plan.metrics.gpus_used.to_string()),
        ("GPUs spare", plan.metrics.gpus_spare.to_string()),
        ("wasted", format!("{:.2} %", plan.metrics.waste_ratio * 100.0)),
        ("inner hops across ToRs", format!("{:.2} %", plan.metrics.cross_tor_share * 100.0)),
        ("communication per step", step.map_or("-".to_owned(), |time| time.to_string())),
        ("cross-connects, all phases", circuits.to_string()),
    ]
}

impl Against {
    pub(super) fn new(file: String, other: &Plan, plan: &Plan) -> Self {
        let rows = figures(plan).into_iter().zip(figures(other));
        let rows = rows.map(|((what, this), (_, other))| [what.to_owned(), this, other]).collect();
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
