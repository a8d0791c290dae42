//! What waits for what when a run ends before its work is done.

use super::super::workload::Workload;
use super::{Job, Story};
use crate::engine::FlowId;

impl Story<'_> {
    /// One sentence for each workload that is not done.
    pub(super) fn waiting(&self) -> Vec<String> {
        let workloads = self.scenario.workloads.iter().zip(&self.jobs);
        let open = workloads.filter(|(_, job)| !job.done);
        let sentence = |(workload, job): (&Workload, &Job)| {
            let behind = workload.after.iter().find(|before| !self.jobs[**before].done);
            let reason = match (behind, job.blocked) {
                (Some(before), _) => {
                    format!("waits for `{}`", self.scenario.workloads[*before].name)
                }
                (None, true) => "finds no way between its hosts".to_owned(),
                (None, false) => self.what_runs(job),
            };
            format!("`{}` {reason}", workload.name)
        };
        open.map(sentence).collect()
    }

    fn what_runs(&self, job: &Job) -> String {
        let flows = job.steps.last().into_iter().flat_map(|step| step.flows.iter().cloned());
        let records = flows.flatten().map(|flow| (FlowId(flow), self.engine.record(FlowId(flow))));
        let open: Vec<_> = records.filter(|(_, record)| record.end.is_none()).collect();
        let Some((flow, record)) = open.first() else { return "is under way".to_owned() };
        let plant = &self.scenario.plant;
        let ends = format!("{} to {}", plant.name(record.source), plant.name(record.destination));
        let why = if record.cancelled {
            "was given up, for it has no way".to_owned()
        } else {
            match self.engine.path(*flow).iter().find(|link| !self.engine.is_up(**link)) {
                Some(link) => format!("waits for {}, which is dark", plant.link_name(*link)),
                None => format!("has delivered {} of {}", record.delivered, record.size),
            }
        };
        format!("has {} flows to end; the first, {ends}, {why}", open.len())
    }
}
