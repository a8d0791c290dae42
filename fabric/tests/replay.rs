//! Every input that the fuzz target of fabric files has kept runs again, as an ordinary test.

use lightloom_fabric::document::{Severity, Style, render};
use lightloom_fabric::file;

#[test]
fn document() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/document");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus is stored") {
        let path = entry.expect("the corpus can be listed").path();
        #[expect(clippy::disallowed_methods, reason = "the corpus is in files")]
        let bytes = std::fs::read(&path).expect("the input can be read");
        let (fabric, mistakes) = file::load("fuzz.yaml", &bytes);
        let refused = mistakes.iter().any(|mistake| mistake.severity == Severity::Error);
        assert_eq!(fabric.is_none(), refused, "{}", path.display());
        render(&mistakes, Style::Coloured);
        count += 1;
    }
    assert!(count >= 4, "{folder} holds {count} inputs");
}
