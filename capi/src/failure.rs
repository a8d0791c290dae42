// SPDX-License-Identifier: Apache-2.0
//! Result codes, and the last error message of each thread.

use std::cell::RefCell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Error codes of `lightloom.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[expect(missing_docs, reason = "lightloom.h documents the codes")]
pub enum ErrorCode {
    Ok = 0,
    BadArgument = 1,
    BadFile = 2,
    BadState = 3,
    Stalled = 4,
    Failed = 5,
    Panicked = 6,
}

#[derive(Debug)]
pub(crate) struct CallFailure {
    kind: ErrorCode,
    text: String,
}

impl CallFailure {
    pub(crate) fn new(kind: ErrorCode, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadArgument, text)
    }

    pub(crate) fn runs() -> Self {
        Self::new(ErrorCode::BadState, "callbacks must not call this while the network is running")
    }

    pub(crate) fn broken() -> Self {
        Self::new(ErrorCode::BadState, "a run of this network has failed: close the network")
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

pub(crate) fn answer(call: impl FnOnce() -> Result<(), CallFailure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return ErrorCode::Ok as c_int,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            CallFailure::new(
                ErrorCode::Panicked,
                text.unwrap_or_else(|| "a panic without a message".to_owned()),
            )
        }
    };
    LAST.with_borrow_mut(|last| *last = failure.text);
    failure.kind as c_int
}

pub(crate) fn last<T>(look: impl FnOnce(&str) -> T) -> T {
    LAST.with_borrow(|last| look(last))
}
