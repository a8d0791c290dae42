// SPDX-License-Identifier: Apache-2.0
//! What the tests of several rooms need. It knows no room, so that the tests of a room compile that room alone.

use std::path::{Path, PathBuf};

/// How many cases a test tries: `suite` in every run of the tests, `night` with `LIGHTLOOM_NIGHT=1`, as `ci/nightly` sets
/// it. The cases of the suite are the first of the night's.
#[must_use]
pub fn cases<Count>(suite: Count, night: Count) -> Count {
    if std::env::var_os("LIGHTLOOM_NIGHT").is_some() { night } else { suite }
}

/// A file of the published measurements that tests judge by, which are no part of the project. `None`, and a line that
/// says so, where they are not there. `manifest` is `env!("CARGO_MANIFEST_DIR")` of a package.
#[must_use]
#[expect(clippy::print_stdout, reason = "a test says that it is skipped")]
pub fn shared_data(manifest: &str, name: &str) -> Option<PathBuf> {
    let beside = Path::new(manifest).ancestors().map(|folder| folder.join("../shared/data"));
    let found = beside.map(|folder| folder.join(name)).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: no ../shared/data");
    }
    found
}
