// SPDX-License-Identifier: Apache-2.0
//! Runs the stored inputs of a fuzz target as an ordinary test. Tests include this file by path.

/// Passes each input in `fuzz/CORPUS` to `body`.
#[allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "the corpus is in files")]
pub(crate) fn replay(corpus: &str, body: impl Fn(&[u8])) {
    let crate_folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut above = crate_folder.ancestors().map(|above| above.join("fuzz").join(corpus));
    let folder = above.find(|folder| folder.is_dir()).expect("the corpus is stored");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is stored") {
        body(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 4, "{} holds {count} inputs", folder.display());
}
