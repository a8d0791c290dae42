// SPDX-License-Identifier: Apache-2.0
//! Integration tests of `lightloom-lab` in one program.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod conform;
mod conform_stranger;
mod conform_tls;
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the other pages of `ctl` are in these files, too"
)]
#[path = "../../src/ctl"]
mod ctl {
    mod show;
    mod time;

    pub(crate) fn status_page(status: &lightloom_daemon_api::status::Status) -> String {
        show::status(status)
    }
}
mod weeks;
