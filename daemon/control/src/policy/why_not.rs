// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use super::{Control, OnFault};
use crate::ledger::Past;
use crate::record::{Broken, Cause, TxnResult};
use crate::state::{DeviceName, Now};
use lightloom_fabric::fault::Part;

impl Control {
    #[must_use]
    pub fn not_bypassed(&self, now: &Now) -> BTreeMap<String, Broken> {
        let news = self.news(now);
        let parts: Vec<Part> = news.iter().map(|(part, _)| *part).collect();
        let known = &self.reported_or_found();
        // A dark fibre is listed in `dark_fibres` until it is bypassed.
        let silent = news.iter().filter(|(part, _)| {
            matches!(part, Part::Bundle(_)) || known.contains_key(&part.to_string())
        });
        let since = |part: &Part| {
            let device = DeviceName::from(part.to_string().as_str());
            let down_since = self.unreachable(&device).map(|(since, _)| since);
            down_since.map_or(0, |since| now.wall_ms.saturating_sub((now.mono - since).0 / 1000))
        };
        let reason = self.why_not_bypassed(now, &parts);
        let of = |(part, why): &(Part, String)| {
            let name = part.to_string();
            let wall_ms = known.get(&name).map_or_else(|| since(part), |broken| broken.wall_ms);
            let sep = if why.is_empty() { "" } else { "; " };
            (
                name,
                Broken {
                    wall_ms,
                    why: format!("{why}{sep}not yet bypassed: {reason}"),
                    ..Broken::default()
                },
            )
        };
        silent.map(of).collect()
    }

    fn why_not_bypassed(&self, now: &Now, parts: &[Part]) -> String {
        if self.failed.is_some() {
            return "the journal has failed".into();
        }
        if self.setup.on_fault != OnFault::Bypass {
            return "the policy only reports faults".into();
        }
        if let Some(open) = &self.controller.ledger().open {
            return format!("transaction {} is in progress", open.intent.txn);
        }
        let left = (self.backoff.not_before(parts) - now.mono).0;
        let again = match left.div_ceil(1_000_000) {
            _ if !self.controller.may_act_alone(now) => {
                "the hourly limit of automatic changes is reached".to_owned()
            }
            0 => "being tried now".to_owned(),
            left => format!("retried in {left} s"),
        };
        let last = self
            .controller
            .ledger()
            .history
            .back()
            .filter(|past| past.cause == Cause::Bypass && past.result != TxnResult::Committed);
        match (&self.refused, last) {
            (Some(refused), _) => format!("{refused}; {again}"),
            (None, Some(past)) => format!("{}; {again}", failure(past)),
            (None, None) => again,
        }
    }
}

fn failure(past: &Past) -> String {
    let mut said: Vec<_> = past.parts.iter().filter(|(_, part)| !part.detail.is_empty()).collect();
    said.sort_by_key(|(_, part)| part.unlit);
    let result = match past.result {
        TxnResult::Aborted => "aborted",
        TxnResult::RolledBack => "rolled back",
        TxnResult::Partial => "partial",
        TxnResult::Committed => "committed",
    };
    let why = said.first().map(|(device, part)| format!(": {device}: {}", part.detail));
    format!("transaction {} {result}{}", past.txn, why.unwrap_or_default())
}
