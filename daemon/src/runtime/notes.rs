// SPDX-License-Identifier: Apache-2.0

use std::time::Instant;

use lightloom_control::controller::{Contended, Crossed, Note, end_name};
use lightloom_control::record::TxnResult;
use lightloom_control::state::{DeviceName, Txn};
use lightloom_fabric::fault::Part;

use super::{Runtime, contention};
use crate::hooks::Hook;

impl Runtime {
    pub(super) fn note(&mut self, note: Note) {
        match note {
            Note::Reachable(device) => {
                tracing::info!(%device, "up");
                self.metrics.device_up.with_label_values(&[device.as_str()]).set(1.0);
            }
            Note::Unreachable(device, why) => {
                tracing::warn!(%device, why, "down");
                self.metrics.device_up.with_label_values(&[device.as_str()]).set(0.0);
            }
            Note::Drift(device, drift) => self.drifted(&device, drift.len()),
            Note::Crossed(device, crossed) => self.crossed(&device, &crossed),
            Note::Contended(device, contended) => self.contended(&device, contended.as_ref()),
            Note::Bypassing(parts, again_in) => {
                let (parts, again_in_s) = (named(&parts), again_in.0 / 1_000_000);
                tracing::warn!(parts, again_in_s, "bypassing failed parts");
            }
            Note::TooMany(parts) => tracing::error!(
                parts = named(&parts),
                "failed parts are not bypassed, because the hourly limit of automatic changes is \
                    reached; help: run `ctl fault`"
            ),
            Note::Healing { healed, left } => tracing::info!(
                ?healed,
                ?left,
                "healing after repairs; help: groups are left if their job runs without consent: \
                    drain its nodes, or list it under `policies.heal`"
            ),
            Note::Fired(txn) => self.fired(txn),
            Note::Ended(txn, result) => self.ended(txn, result),
            Note::Unknown(device, why) => {
                tracing::warn!(%device, why, "outcome unknown");
                self.metrics.unknown.inc();
            }
            Note::Late(_) => self.metrics.late.inc(),
        }
    }

    fn drifted(&mut self, device: &DeviceName, slots: usize) {
        #[expect(clippy::cast_precision_loss, reason = "a metric")]
        self.metrics.drifted_slots.with_label_values(&[device.as_str()]).set(slots as f64);
        if self.control.ledger().version == 0 {
            self.nothing_is_ours();
        } else if slots == 0 {
            tracing::info!(%device, "the drift is resolved");
        } else {
            tracing::warn!(%device, slots, "drift");
        }
    }

    fn crossed(&self, device: &DeviceName, crossed: &[Crossed]) {
        #[expect(clippy::cast_precision_loss, reason = "a metric")]
        let ends = crossed.len() as f64;
        self.metrics.crossed_ends.with_label_values(&[device.as_str()]).set(ends);
        match crossed.first() {
            None => tracing::info!(%device, "cables are no longer crossed"),
            Some(crossed) => tracing::warn!(
                %device, lit_by = crossed.lit_by, should_be = end_name(&crossed.should_be),
                "crossed cables?"
            ),
        }
    }

    fn contended(&self, device: &DeviceName, contended: Option<&Contended>) {
        let value = f64::from(u8::from(contended.is_some()));
        self.metrics.contended.with_label_values(&[device.as_str()]).set(value);
        let Some(contended) = contended else {
            tracing::info!(%device, "no other controller is changing this device any longer");
            return;
        };
        let evidence = contention::evidence(device, contended);
        let stopped = contended.stopped_for.is_some();
        tracing::warn!(%device, stopped, evidence, "another controller is changing this device");
    }

    fn fired(&mut self, txn: Txn) {
        if let Some(event_at) = self.event_at.take() {
            self.metrics.event_to_fired_seconds.observe(event_at.elapsed().as_secs_f64());
        }
        if self.began.as_ref().is_none_or(|(began, _)| *began != txn) {
            self.began = Some((txn, Instant::now()));
        }
        tracing::info!(%txn, "switching circuits");
    }

    fn nothing_is_ours(&mut self) {
        if !std::mem::replace(&mut self.said_nothing_is_ours, true) {
            tracing::info!(
                "the journal is new, so lit circuits are not managed until `lightloom ctl adopt \
                    all`"
            );
        }
    }

    fn ended(&mut self, txn: Txn, result: TxnResult) {
        let label = match result {
            TxnResult::Committed => "committed",
            TxnResult::RolledBack => "rolled-back",
            TxnResult::Aborted => "aborted",
            TxnResult::Partial => "partial",
        };
        tracing::info!(%txn, result = label, "transaction ended");
        self.metrics.transactions.with_label_values(&[label]).inc();
        let hook = match result {
            TxnResult::Committed => Hook::After,
            TxnResult::RolledBack | TxnResult::Aborted | TxnResult::Partial => Hook::Failed,
        };
        let history = &self.control.ledger().history;
        let past = history.iter().rev().find(|past| past.txn == txn).map(crate::view::past::past);
        let said = past.iter().flat_map(|past| &past.devices);
        let said = said.filter(|device| !device.detail.is_empty());
        let first = said.min_by_key(|device| device.unlit);
        let trouble = first.map(|first| format!("{}: {}", first.device, first.detail));
        self.traces.ended(txn, result, label, trouble.as_deref());
        if let Some(past) = &past {
            self.hooks.afterwards(hook, past, &self.metrics);
        }
        if let Some((_, began)) = self.began.take() {
            self.metrics.transaction_seconds.observe(began.elapsed().as_secs_f64());
        }
    }
}

fn named(parts: &[(Part, String)]) -> String {
    parts.iter().map(|(part, why)| format!("{part} ({why})")).collect::<Vec<_>>().join(", ")
}
