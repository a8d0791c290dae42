// SPDX-License-Identifier: Apache-2.0
//! What `lightloom-collective` promises, in one program: a file a subject, a folder what several of them use.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod library;
mod schedules;
