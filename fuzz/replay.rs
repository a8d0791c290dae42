//! Runs every stored input of a fuzz target again, as an ordinary test of a crate. Tests take it in by its
//! path.

/// Hands each input under `fuzz/CORPUS` to `body`.
#[allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "the corpus is in files")]
pub(crate) fn replay(corpus: &str, body: impl Fn(&[u8])) {
    let folder = format!("{}/../fuzz/{corpus}", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is stored") {
        body(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 4, "{folder} holds {count} inputs");
}
