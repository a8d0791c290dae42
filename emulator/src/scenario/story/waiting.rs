//! What waits for what when a run is stopped before its work is done.

use lightloom_engine::steady::Stage;

use super::{Lane, Story};

/// Most groups that are told one by one.
const MOST_TOLD: usize = 10;

impl Story<'_> {
    /// One sentence for each group and workload that has work left.
    pub(super) fn waiting(&self) -> Vec<String> {
        let program: Vec<_> = self.program().collect();
        let unfinished: Vec<usize> = (0..self.lanes.len())
            .filter(|lane| !self.lanes[*lane].lost && self.lanes[*lane].next < program.len())
            .collect();
        let mut sentences: Vec<String> = unfinished
            .iter()
            .take(MOST_TOLD)
            .map(|index| {
                let lane = &self.lanes[*index];
                let (_, collective) = program[lane.next];
                format!("g{index}: `{}` {}", collective.name, self.reason(*index, lane))
            })
            .collect();
        if unfinished.len() > MOST_TOLD {
            sentences.push(format!("and {} more groups", unfinished.len() - MOST_TOLD));
        }
        if let Some(engine) = self.engine.engine() {
            let name = |vertex| self.installed.vertex_name(vertex);
            let link = |link| self.installed.link_name(engine.network(), link);
            sentences.extend(self.jobs.waiting(engine, &name, &link));
        }
        sentences
    }

    fn reason(&self, index: usize, lane: &Lane) -> String {
        if lane.stopped {
            return "waits for its transceivers".to_owned();
        }
        let dark = lane.links.iter().find(|link| !self.passes(**link));
        if let Some(link) = dark {
            let plan = if self.control.is_gone() {
                "no plan is made, the control plane is gone"
            } else {
                "no plan has replaced it"
            };
            return format!(
                "waits for {}, which is dark; {plan}",
                self.installed.link_name(self.engine.network(), *link)
            );
        }
        let behind = self.lanes.iter().enumerate().find(|(other, there)| {
            *other != index && there.job == lane.job && !there.lost && there.next < lane.next
        });
        match (&lane.running, behind) {
            (Some(_), _) => "is under way".to_owned(),
            (None, _) if self.between[lane.job as usize].running.is_some() => {
                "is under way between the groups".to_owned()
            }
            (None, Some((other, _))) => format!("waits for g{other}"),
            (None, None) => "waits for light on its ring".to_owned(),
        }
    }
}
