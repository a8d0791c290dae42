// SPDX-License-Identifier: Apache-2.0
//! The daemon's process in the world, with its starts, crashes, writes and replies.

use super::*;

impl World {
    pub(crate) fn kill(&mut self) {
        self.crash("killed");
    }

    pub(crate) fn reboot_machine(&mut self) {
        self.now.boot = format!("b{}", self.rng.random::<u32>());
        let old = std::mem::replace(&mut self.now.mono, Micros::from_secs(30));
        self.devices.values_mut().for_each(|model| model.clock_restarts(old, self.now.mono));
        // Times of the previous clock are invalid, but light has settled.
        self.lit_from.clear();
        self.mended.values_mut().for_each(|at| *at = self.now.mono);
        self.erred.values_mut().for_each(|at| *at = self.now.mono);
        assert!(self.control.is_none(), "only a dead daemon's machine reboots here");
        self.queue.clear();
        self.at(Micros::default(), Happening::Restart);
    }

    // ---- the daemon's life ---------------------------------------------------------------------

    pub(super) fn start(&mut self) {
        if self.control.is_some() {
            return;
        }
        self.life += 1;
        let opened = self.disk.journal().map_err(JournalError::from);
        let (journal, opened) = match opened.and_then(Journal::<Record, _>::open) {
            Ok(opened) => opened,
            // The torn tail cannot be cut, so the daemon restarts repeatedly.
            Err(error) => {
                self.note(|| format!("the daemon does not start: {error}"));
                return self.at(Micros::from_millis(500), Happening::Restart);
            }
        };
        if let Some(damage) = opened.damage {
            self.note(|| format!("journal damaged: {damage}"));
            return;
        }
        let ledger = Ledger::fold(&opened.records);
        self.check_durable(&ledger);
        self.durable = ledger.clone();
        self.journal = Some(journal);
        let was_open = ledger.open.is_some();
        let (control, actions) =
            Control::start(self.inventory.clone(), self.setup.clone(), ledger, &self.now);
        let life = self.life;
        self.note(|| format!("daemon starts, life {life}, open transaction: {was_open}"));
        self.control = Some(control);
        self.perform(actions);
        let names: Vec<DeviceName> = self.devices.keys().cloned().collect();
        for device in names {
            let life = self.life;
            self.at(Micros(500), Happening::Up { life, device });
        }
    }

    pub(super) fn crash(&mut self, why: &str) {
        self.note(|| format!("daemon dies: {why}"));
        self.counts.crashes += 1;
        self.control = None;
        self.journal = None;
        self.waiting.clear();
        self.unsynced.clear();
        self.last_op.clear();
        self.unread.clear();
        self.disconnected.clear();
        self.disk.lose_power(&mut self.rng);
        self.at(self.dead_for, Happening::Restart);
    }

    pub(super) fn point(&mut self, what: &str) -> bool {
        if self.control.is_none() {
            return true;
        }
        let dies = self.dies_here();
        if dies {
            self.crash(what);
        }
        dies
    }

    pub(super) fn dies_here(&mut self) -> bool {
        self.counts.points += 1;
        let planned = self.crash_at.is_some_and(|c| c.point == self.counts.points);
        planned || (self.crash_chance > 0.0 && self.rng.random_bool(self.crash_chance))
    }

    pub(super) fn handle(&mut self, event: Event) {
        let Some(control) = &mut self.control else { return };
        let actions = control.handle(&self.now, event);
        self.perform(actions);
    }

    pub(super) fn shorten_journal(&mut self) {
        const RECORDS_MAX: u64 = 100;
        let (Some(journal), Some(control)) = (&mut self.journal, &self.control) else {
            return;
        };
        let controller = control.controller();
        if journal.length() < RECORDS_MAX || controller.transactions().is_busy() {
            return;
        }
        let first = controller.ledger().begun_anew(journal.head().to_owned());
        let dies = self.crash_chance > 0.0 && self.rng.random_bool(0.2);
        // Stop at a random operation, or after all of them.
        self.disk.stop_after(dies.then(|| self.rng.random_range(0..12)));
        if journal.restart(&first).is_ok() {
            self.counts.shortened += 1;
        }
        self.disk.stop_after(None);
        if dies {
            self.crash("while the journal begins anew");
        }
    }

    pub(super) fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Append(records) => {
                    if !self.append(records) {
                        return;
                    }
                }
                Action::Send(device, ticket, op) => {
                    if self.point("before a send") {
                        return;
                    }
                    self.send(device, ticket, op);
                }
                Action::Abandon(device, _) => {
                    let life = self.life;
                    self.at(Micros(100), Happening::Down { life, device });
                }
                Action::Answer(reply_to, answer) => {
                    if self.point("before an answer") {
                        return;
                    }
                    self.answer(reply_to, answer);
                }
                Action::Note(note) => self.take_note(note),
            }
        }
    }

    pub(super) fn append(&mut self, records: Vec<Record>) -> bool {
        if self.point("before a write") {
            return false;
        }
        // A crash keeps the durable data and arbitrary sectors of the new data.
        let inside = self.dies_here();
        let Some(journal) = &mut self.journal else { return false };
        let synced = records.iter().any(Record::is_waited_for);
        self.disk.lie(inside);
        let result =
            if synced { journal.append(&records).map(|_| ()) } else { journal.write(&records) };
        self.disk.lie(false);
        if let Err(error) = result {
            self.crash(&format!("journal: {error}"));
            return false;
        }
        if inside {
            self.crash("inside a write");
            return false;
        }
        if self.point("after a write") {
            return false;
        }
        self.unsynced.extend(records);
        for record in if synced { std::mem::take(&mut self.unsynced) } else { Vec::new() } {
            self.check_record(&record);
            match &record {
                Record::Plan(plan) => _ = self.plans.insert(plan.sha256().to_owned()),
                Record::PlanAfter(plan) => _ = self.plans.insert(plan.sha256.clone()),
                _ => {}
            }
            self.durable.apply(&record);
        }
        true
    }

    pub(super) fn answer(&mut self, reply_to: ReplyTo, answer: Answer) {
        let Some(asked) = self.waiting.remove(&reply_to.0) else { return };
        match &answer {
            Answer::Conflict { .. } => self.counts.conflicts += 1,
            Answer::Refused { .. } => self.counts.refused += 1,
            Answer::Accepted { .. }
            | Answer::Done
            | Answer::Adopted { .. }
            | Answer::NothingToDo { .. }
            | Answer::Booked { .. }
            | Answer::PhaseRefused { .. } => {}
        }
        self.note(|| format!("answer {asked:?}: {answer:?}"));
        self.answers.push((asked, answer));
    }

    pub(super) fn take_note(&mut self, note: Note) {
        self.note(|| format!("note {note:?}"));
        match note {
            Note::Unknown(device, _) => {
                self.counts.unknown += 1;
                if self.unknown_at.len() < 100 {
                    self.unknown_at.push(self.now.mono);
                }
                let flying = self.last_op.keys().filter(|(d, _)| *d == device).cloned();
                for key in flying.collect::<Vec<_>>() {
                    if let Some(Op::Switch { .. }) = self.last_op.remove(&key) {
                        self.unread.insert(device.clone());
                    }
                }
            }
            Note::Bypassing(parts, _) => {
                self.counts.bypasses += 1;
                self.judge_found(&parts);
            }
            Note::Drift(_, drift) if !drift.is_empty() => self.counts.drifts += 1,
            Note::Ended(txn, result) => {
                match result {
                    TxnResult::Committed => self.counts.committed += 1,
                    TxnResult::RolledBack => self.counts.rolled_back += 1,
                    TxnResult::Aborted => self.counts.aborted += 1,
                    TxnResult::Partial => self.counts.partial += 1,
                }
                let last = self.controller().and_then(|c| c.ledger().history.back());
                let is = |cause: fn(&Cause) -> bool| last.is_some_and(|past| cause(&past.cause));
                let committed = result == TxnResult::Committed;
                let settled = is(|cause| matches!(cause, Cause::Deferred(_))) && committed;
                let bypassed = is(|cause| *cause == Cause::Bypass) && committed;
                let plan = is(|cause| *cause == Cause::Apply)
                    && last.is_some_and(|past| !past.plan_sha256.is_empty());
                self.counts.settled += u64::from(settled);
                self.counts.bypassed += u64::from(bypassed);
                self.counts.plans += u64::from(plan && committed);
                self.judge_end();
                self.ended.push((txn, result));
            }
            _ => {}
        }
    }
}
