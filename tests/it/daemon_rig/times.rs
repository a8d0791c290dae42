// SPDX-License-Identifier: Apache-2.0
//! Measured times, and the state folder whose disk affects them.

use std::path::Path;

/// By default, the state is in memory, which shows the daemon's own time; in `LIGHTLOOM_STATE`,
/// times include flushes.
pub(crate) fn state_folder() -> tempfile::TempDir {
    let named = std::env::var_os("LIGHTLOOM_STATE").map(std::path::PathBuf::from);
    let memory = Path::new("/dev/shm");
    match named.or_else(|| memory.is_dir().then(|| memory.to_owned())) {
        Some(folder) => tempfile::tempdir_in(folder).unwrap(),
        None => tempfile::tempdir().unwrap(),
    }
}

#[derive(Default)]
pub(crate) struct Times(pub(crate) Vec<f64>);

impl Times {
    pub(crate) fn at(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * share).round() as usize]
    }

    pub(crate) fn show(&self, what: &str) {
        let (median, tail, worst) = (self.at(0.5), self.at(0.99), self.at(1.0));
        let count = self.0.len();
        println!("{what}: median {median:.2} ms, p99 {tail:.2} ms, worst {worst:.2} ms of {count}");
    }
}
