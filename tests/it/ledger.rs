// SPDX-License-Identifier: Apache-2.0
//! `ci/ledger --check` rejects worse figures, unless they were reset with a reason.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

#[test]
fn counted_figures_are_no_worse_than_the_ledger() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join(".git").exists() || Command::new("python3").arg("-V").output().is_err() {
        println!("skipped: no git checkout or no python3");
        return;
    }
    let counted = [
        "lines",
        "types",
        "circle",
        "words",
        "programs",
        "docs",
        "pages",
        "prose",
        "mfu-error",
        "collectives",
    ];
    let done = Command::new("python3")
        .args(["ci/ledger", "--check"])
        .args(counted)
        .current_dir(root)
        .output()
        .expect("Python is there");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

struct Checkout(TempDir);

impl Checkout {
    fn with_best(value: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let checkout = Self(folder);
        let root = checkout.0.path();
        fs::create_dir(root.join("ci")).expect("a new folder");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("ci/ledger");
        fs::copy(program, root.join("ci/ledger")).expect("the program is there");
        checkout.writes("rust-toolchain.toml", "[toolchain]\nchannel = \"1.95.0\"\n");
        checkout.writes("README.md", "# A checkout\n");
        checkout.writes(
            "ci/ledger.toml",
            &format!(
                "toolchain = \"1.95.0\"\n\n[figure.size]\ncommand = \"cat value\"\nread = ['size (\\d+)']\n\
                 unit = \"bytes\"\nbetter = \"lower\"\nbest = {value}\ncommit = \"0\"\ndate = \"2026-01-01\"\n"
            ),
        );
        checkout.is(value);
        assert!(checkout.run("git", &["init", "-q"]).0, "git is there");
        checkout.commits();
        checkout
    }

    fn writes(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).expect("the folder can be written");
    }

    fn is(&self, value: u32) {
        self.writes("value", &format!("size {value}\n"));
    }

    fn commits(&self) {
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        let commit = [&who[..], &["commit", "-qam", "change"]].concat();
        assert!(self.run("git", &["add", "."]).0 && self.run("git", &commit).0);
    }

    fn run(&self, program: &str, arguments: &[&str]) -> (bool, String) {
        let done = Command::new(program)
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .expect("git and Python are there");
        let text = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn ledger(&self, arguments: &[&str]) -> (bool, String) {
        self.run("python3", &[&["ci/ledger"], arguments].concat())
    }
}

#[test]
fn figure_may_worsen_by_at_most_three_percent_of_its_best() {
    let checkout = Checkout::with_best(1000);
    checkout.is(1030);
    assert!(checkout.ledger(&["--check"]).0);
    checkout.is(1031);
    let (is_good, text) = checkout.ledger(&["--check"]);
    assert!(!is_good && text.contains("size: 1,031 is more than 3 % worse than 1,000"), "{text}");
}

#[test]
fn later_values_are_checked_against_the_best() {
    let checkout = Checkout::with_best(1000);
    checkout.is(900);
    assert!(checkout.ledger(&["--take"]).0);
    checkout.commits();
    checkout.is(940);
    let (is_good, text) = checkout.ledger(&["--check"]);
    assert!(!is_good && text.contains("worse than 900"), "{text}");
}

#[test]
fn worse_figure_requires_a_reason() {
    let checkout = Checkout::with_best(1000);
    checkout.is(1500);
    let (is_good, text) = checkout.ledger(&["--take"]);
    assert!(!is_good && text.contains("give the reason"), "{text}");
    assert!(!checkout.ledger(&["--check"]).0);
    assert!(checkout.ledger(&["--take", "size", "--why", "it does more"]).0);
    assert!(checkout.ledger(&["--check"]).0);
    checkout.commits();
    assert!(checkout.ledger(&["--check"]).0);
}

#[test]
fn no_reason_lifts_a_ceiling() {
    let checkout = Checkout::with_best(1000);
    let name = checkout.0.path().join("ci/ledger.toml");
    let text = fs::read_to_string(&name).expect("it is there");
    fs::write(&name, text.replace("best = 1000", "ceiling = 1010\nbest = 1000")).expect("written");
    checkout.commits();
    checkout.is(1010);
    assert!(checkout.ledger(&["--check"]).0);
    checkout.is(1011);
    let (is_good, text) = checkout.ledger(&["--check"]);
    assert!(!is_good && text.contains("past the ceiling of 1,010"), "{text}");
    let (is_good, text) = checkout.ledger(&["--take", "size", "--why", "it does more"]);
    assert!(!is_good && text.contains("past the ceiling of 1,010"), "{text}");
    let text = fs::read_to_string(&name).expect("it is there");
    fs::write(&name, text.replace("ceiling = 1010", "ceiling = 1020")).expect("written");
    let (is_good, text) = checkout.ledger(&["--check"]);
    assert!(!is_good && text.contains("lifts the ceiling of 1,010"), "{text}");
}

/// Someone may edit the file by hand or commit it.
#[test]
fn best_value_worsens_only_with_a_new_reason() {
    let checkout = Checkout::with_best(1000);
    let name = checkout.0.path().join("ci/ledger.toml");
    let text =
        fs::read_to_string(&name).expect("it is there").replace("best = 1000", "best = 2000");
    fs::write(&name, text).expect("it can be written");
    let (is_good, text) = checkout.ledger(&["--check"]);
    assert!(!is_good && text.contains("gives no new `why`"), "{text}");
    checkout.commits();
    assert!(!checkout.ledger(&["--check"]).0);
}

#[test]
fn another_compiler_requires_new_figures() {
    let checkout = Checkout::with_best(1000);
    checkout.writes("rust-toolchain.toml", "[toolchain]\nchannel = \"1.96.0\"\n");
    let (is_good, text) = checkout.ledger(&["--check"]);
    assert!(!is_good && text.contains("rust-toolchain.toml says 1.96.0"), "{text}");
    assert!(checkout.ledger(&["--take"]).0);
    assert!(checkout.ledger(&["--check"]).0);
}

#[test]
fn stated_figures_match_the_ledger() {
    let checkout = Checkout::with_best(1000);
    checkout.writes("README.md", "It is 1,000<!-- ledger: size --> bytes long.\n");
    let (is_good, text) = checkout.ledger(&["--check"]);
    assert!(is_good, "{text}");
    let wrong = [
        ("Took 7 ms on an idle machine.", "README.md:1: a figure that was measured"),
        ("It is 990<!-- ledger: size --> bytes long.", "README.md:1: states 990"),
        (
            "It is 5<!-- ledger: depth --> deep.",
            "README.md:1: ci/ledger.toml has no value of depth",
        ),
    ];
    for (line, problem) in wrong {
        checkout.writes("README.md", line);
        let (is_good, text) = checkout.ledger(&["--check"]);
        assert!(!is_good && text.contains(problem), "{text}");
    }
}

/// A command that fails or prints something else must not be a good figure.
#[test]
fn unreadable_figure_fails_the_check() {
    let checkout = Checkout::with_best(1000);
    checkout.writes("value", "nothing here\n");
    let (is_good, text) = checkout.ledger(&["--check"]);
    assert!(!is_good && text.contains("the output has no"), "{text}");
}

/// The expected counts were determined by hand. Refused words are escaped, because this file is
/// counted as well.
#[test]
fn count_script_matches_manual_counts() {
    let checkout = Checkout::with_best(1);
    let root = checkout.0.path();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("ci/count");
    fs::copy(program, root.join("ci/count")).expect("the program is there");
    for folder in ["a/src", "a/tests", "docs/more"] {
        fs::create_dir_all(root.join(folder)).expect("a new folder");
    }
    let lib = "mod one;\nmod two;\npub use two::Two;\n\n#[cfg(test)]\nmod tests {\n    struct Inside;\n\n    fn f() {\n    }\n}\n";
    checkout.writes("a/src/lib.rs", lib);
    checkout.writes(
        "a/src/one.rs",
        "use crate::two::{self, Two as Other};\npub struct One;\nfn clever() {}\n",
    );
    checkout.writes(
        "a/src/two.rs",
        "pub struct Two;\npub enum One {}\nfn to\u{6c}dFe\u{6c}t(of: crate::one::One) {}\n",
    );
    checkout.writes("a/tests/three.rs", "pub struct Two; // a spot price\n");
    checkout.writes("words.md", "A Sto\u{72}y of nob\u{6f}dy and of the user nob\u{6f}dy.\n");
    checkout.writes("docs/more/page.md", "Two words\n\nand two.\n");
    let counted = |what| checkout.run("python3", &["ci/count", what]).1.trim().to_owned();
    assert_eq!(counted("lines"), "lines: 10");
    assert_eq!(counted("types"), "types: 50.00 % (1 of 2)");
    assert_eq!(counted("circle"), "circle: 2");
    assert_eq!(counted("words"), "words: 4");
    assert_eq!(counted("docs"), "docs: 7");
    assert_eq!(counted("pages"), "pages: 3");
}
