// SPDX-License-Identifier: Apache-2.0
//! What the tests of several rooms need. It knows no room, so that the tests of a room compile that room alone.

/// How many cases a test tries: `suite` in every run of the tests, `night` with `LIGHTLOOM_NIGHT=1`, as `ci/nightly` sets
/// it. The cases of the suite are the first of the night's.
#[must_use]
pub fn cases<Count>(suite: Count, night: Count) -> Count {
    if std::env::var_os("LIGHTLOOM_NIGHT").is_some() { night } else { suite }
}
