// SPDX-License-Identifier: Apache-2.0
//! Handles failures to write the journal or audit log. The daemon treats open changes as it does
//! after a crash, continues to read devices, and retries until a write succeeds.

use super::{NotStored, Runtime, full_disk};
use crate::journal::{Damage, JournalError};
use lightloom_control::controller::Answer;
use lightloom_control::ledger::Ledger;
use lightloom_control::policy::NoJournal;
use lightloom_control::state::Micros;

const MEND_EVERY: Micros = Micros::from_secs(1);

const COUNT_EVERY: Micros = Micros::from_secs(10);

impl Runtime {
    pub(super) fn journal_failed(&mut self, error: &JournalError) {
        tracing::error!(%error, "the journal failed: changes are refused, circuits stay lit");
        self.metrics.journal_failed.set(1);
        self.mend_at = self.clock.now().mono + MEND_EVERY;
        let read = self.journal.read_back();
        let (ledger, proof) = match read {
            Ok((records, proof)) => (Ledger::fold(&records), Ok(proof)),
            Err(why) => (self.control.ledger().clone(), Err(why.to_string())),
        };
        self.proof = proof;
        for (_, answer) in std::mem::take(&mut self.answers) {
            let _ = answer.send(match error {
                JournalError::Full(why) => {
                    let reasons = vec![full_disk(&why.to_string())];
                    self.stored(|_| Answer::Refused { reasons })
                }
                error => Err(NotStored(error.to_string())),
            });
        }
        self.only_read(ledger, &error.to_string());
    }

    pub(super) fn mend(&mut self) {
        let now = self.clock.now();
        if now.mono < self.mend_at {
            return;
        }
        self.mend_at = now.mono + MEND_EVERY;
        self.audit.mend();
        if now.mono >= self.count_at {
            self.count_at = now.mono + COUNT_EVERY;
            self.audit.write_counts(&now);
        }
        if self.damage.is_some() {
            return;
        }
        match (self.control.journal_failure().is_some(), self.journal.untroubled()) {
            (true, Ok(())) => self.try_again(),
            (false, Err(trouble)) => self.journal_failed(&trouble),
            _ => {}
        }
        let short =
            self.control.journal_failure().is_none() && self.journal.short_of_space().is_some();
        if short && self.journal.set_aside().is_ok() {
            tracing::info!("the disk has free space again: changes are accepted");
        }
    }

    pub fn short_of_space(&self) -> Option<String> {
        self.journal.short_of_space().or_else(|| self.audit.short_of_space())
    }

    fn try_again(&mut self) {
        let (records, proof) = match self.journal.reopen() {
            Ok(read) => read,
            Err(JournalError::Lost(damage)) => return self.mark_damaged(damage),
            Err(error) => {
                let ledger = self.control.ledger().clone();
                self.only_read(ledger, &error.to_string());
                return;
            }
        };
        tracing::info!("the journal accepts records again: open changes are completed");
        self.metrics.journal_failed.set(0);
        self.proof = Ok(proof);
        self.records = self.journal.length();
        self.began = None;
        let first = self.control.go_on(Ledger::fold(&records), &self.clock.now());
        self.perform(first);
    }

    pub(super) fn mark_damaged(&mut self, damage: Damage) {
        let why = format!("{damage}; {}", self.place.after_damage(&damage));
        let ledger = self.control.ledger().clone();
        self.damage = Some(damage);
        self.control.only_read(ledger, NoJournal::Damaged(why));
    }

    fn only_read(&mut self, ledger: Ledger, why: &str) {
        self.records = self.journal.length();
        self.began = None;
        self.control.only_read(ledger, NoJournal::Failed(why.to_owned()));
    }
}
