// SPDX-License-Identifier: Apache-2.0
//! The integration tests of `lightloom-lab` as one program, with a file per subject and a folder
//! for shared parts.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod conform;
mod conform_stranger;
mod conform_tls;
/// The status page, as `ctl status` prints it.
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
