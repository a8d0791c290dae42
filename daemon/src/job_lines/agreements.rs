// SPDX-License-Identifier: Apache-2.0
//! Process groups of one job that need a phase at the same time. A change for one of them would cut
//! the circuits of the others, so the phase is requested once, when all of them have asked.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::watch::{Receiver, Sender, channel};

/// A phase of a job, by their places in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobPhase {
    pub(super) job: usize,
    pub(super) phase: usize,
}

#[derive(Debug)]
struct Agreement {
    groups: BTreeSet<String>,
    /// The code of the answer, which is empty until the request has ended.
    code: Sender<String>,
}

/// The phases for which some groups have asked and others have not.
#[derive(Debug, Default)]
pub(super) struct Agreements(BTreeMap<JobPhase, Agreement>);

impl Agreements {
    /// Adds a group. The last one of `needed` groups gets the sender, and requests the phase.
    pub(super) fn ask(
        &mut self,
        of: JobPhase,
        group: &str,
        needed: usize,
    ) -> (Receiver<String>, Option<Sender<String>>) {
        let agreement = self.0.entry(of).or_insert_with(|| Agreement {
            groups: BTreeSet::new(),
            code: channel(String::new()).0,
        });
        agreement.groups.insert(group.to_owned());
        let (code, is_last) = (agreement.code.subscribe(), agreement.groups.len() >= needed);
        let complete = if is_last { self.0.remove(&of) } else { None };
        (code, complete.map(|complete| complete.code))
    }

    /// Removes a group that waits no longer. Returns whether other groups were missing.
    pub(super) fn withdraw(&mut self, of: JobPhase, group: &str) -> bool {
        let Some(agreement) = self.0.get_mut(&of) else { return false };
        let was_waiting = agreement.groups.remove(group);
        if agreement.groups.is_empty() {
            self.0.remove(&of);
        }
        was_waiting
    }
}
