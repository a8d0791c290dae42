// SPDX-License-Identifier: Apache-2.0
//! Maps the controller's enums to the API's enums, with all variants checked at compile time.

use lightloom_control::change;
use lightloom_control::drive::Verdict;
use lightloom_control::record::{self, Cause, TxnResult};
use lightloom_daemon_api::body::{Mode, OnFailure};
use lightloom_daemon_api::transaction::{DeviceVerdict, Kind, TransactionResult, TransactionState};

pub(super) fn kind(cause: &Cause) -> Kind {
    match cause {
        Cause::Apply => Kind::Apply,
        Cause::Phase => Kind::Phase,
        Cause::Rollback(_) => Kind::Rollback,
        Cause::ConfirmTimeout(_) => Kind::ConfirmTimeout,
        Cause::Bypass => Kind::Bypass,
        Cause::Repair => Kind::Repair,
        Cause::Drift | Cause::Late(_) => Kind::Drift,
        Cause::Deferred(_) => Kind::Deferred,
        Cause::Probe => Kind::Probe,
    }
}

pub(super) fn verdict(verdict: Verdict) -> DeviceVerdict {
    match verdict {
        Verdict::Applied => DeviceVerdict::Applied,
        Verdict::Untouched => DeviceVerdict::Untouched,
        Verdict::Refused => DeviceVerdict::Refused,
        Verdict::Failed => DeviceVerdict::Failed,
        Verdict::Unknown => DeviceVerdict::Unknown,
        Verdict::RolledBack => DeviceVerdict::RolledBack,
    }
}

pub(super) fn result(result: TxnResult) -> TransactionResult {
    match result {
        TxnResult::Committed => TransactionResult::Committed,
        TxnResult::RolledBack => TransactionResult::RolledBack,
        TxnResult::Aborted => TransactionResult::Aborted,
        TxnResult::Partial => TransactionResult::Partial,
    }
}

pub(super) fn state(result: &TransactionResult) -> TransactionState {
    match result {
        TransactionResult::Committed => TransactionState::Committed,
        TransactionResult::RolledBack => TransactionState::RolledBack,
        TransactionResult::Aborted => TransactionState::Aborted,
        TransactionResult::Partial => TransactionState::Partial,
        TransactionResult::Undone => TransactionState::Undone,
        TransactionResult::Other(word) => TransactionState::Other(word.clone()),
    }
}

pub fn mode(mode: Mode) -> change::Mode {
    match mode {
        Mode::Safe => change::Mode::Safe,
        Mode::Update => change::Mode::Update,
        Mode::Overwrite => change::Mode::Overwrite,
        Mode::Probe => change::Mode::Probe,
    }
}

pub fn on_failure(on_failure: OnFailure) -> record::OnFailure {
    match on_failure {
        OnFailure::Rollback => record::OnFailure::Rollback,
        OnFailure::Hold => record::OnFailure::Hold,
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    fn word(value: impl Serialize) -> String {
        serde_json::to_string(&value).unwrap()
    }

    #[test]
    fn api_and_journal_use_the_same_words() {
        let verdicts = [
            Verdict::Applied,
            Verdict::Untouched,
            Verdict::Refused,
            Verdict::Failed,
            Verdict::Unknown,
            Verdict::RolledBack,
        ];
        for one in verdicts {
            assert_eq!(word(verdict(one)), word(one));
        }
        let results =
            [TxnResult::Committed, TxnResult::RolledBack, TxnResult::Aborted, TxnResult::Partial];
        for one in results {
            assert_eq!([word(result(one)), word(state(&result(one)))], [word(one), word(one)]);
        }
        for one in [Mode::Safe, Mode::Update, Mode::Overwrite, Mode::Probe] {
            assert_eq!(word(one), word(mode(one)));
        }
        for one in [OnFailure::Rollback, OnFailure::Hold] {
            assert_eq!(word(one), word(on_failure(one)));
        }
    }
}
