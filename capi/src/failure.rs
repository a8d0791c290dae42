// SPDX-License-Identifier: Apache-2.0
//! Result codes of calls, and the last error message of each thread.

use std::cell::RefCell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Error codes of `lightloom.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ErrorCode {
    /// `LIGHTLOOM_OK`.
    Ok = 0,
    /// `LIGHTLOOM_BAD_ARGUMENT`.
    BadArgument = 1,
    /// `LIGHTLOOM_BAD_FILE`.
    BadFile = 2,
    /// `LIGHTLOOM_BAD_STATE`.
    BadState = 3,
    /// `LIGHTLOOM_STALLED`.
    Stalled = 4,
    /// `LIGHTLOOM_FAILED`.
    Failed = 5,
    /// `LIGHTLOOM_PANICKED`.
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
        Self::new(ErrorCode::BadState, "the network is running: a callback may not do this")
    }

    pub(crate) fn broken() -> Self {
        Self::new(ErrorCode::BadState, "a run of this network has failed: close it")
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a call and converts errors and panics to codes.
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

/// Passes the last error message of this thread to `look`.
pub(crate) fn last<T>(look: impl FnOnce(&str) -> T) -> T {
    LAST.with_borrow(|last| look(last))
}
