// SPDX-License-Identifier: Apache-2.0

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod library;
mod schedules;
