// SPDX-License-Identifier: Apache-2.0
//! Errors of back-to-back collectives by class, with the accelerator left out of the fit.

use std::fmt::Write;
use std::path::Path;

use lightloom_training::collectives::{JudgedCollective, error, judge};

const RECORDED: &str = include_str!("collectives.csv");
const WORSE: f64 = 2.0;

fn judged() -> Option<Vec<JudgedCollective>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let Ok(table) = std::fs::read_to_string(data.join("collectives_nccl_tests.csv")) else {
        println!("skipped: no ../shared/data");
        return None;
    };
    let (judged, without) = judge(&[&table]).expect("the columns of nccl-tests");
    assert_eq!((judged.len(), without), (1263, 0));
    Some(judged)
}

#[test]
fn no_class_is_worse_than_recorded() {
    let Some(judged) = judged() else { return };
    let mut found = String::from("class,of,percent\n");
    for class in ["up to 64 KiB", "up to 1 MiB", "up to 64 MiB", "above 64 MiB"] {
        let kinds = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"];
        for of in ["", "a100", "h200", "gb200"].into_iter().chain(kinds) {
            let (percent, _) = error(&judged, class, "left out", of);
            println!("{class}, {of}: {percent:.1} %");
            let _ = writeln!(found, "{class},{of},{percent:.1}");
            let name = format!("{class},{of},");
            let recorded = RECORDED.lines().find_map(|line| line.strip_prefix(&name));
            let recorded: f64 = recorded.expect("a recorded class").parse().expect("a number");
            let is_new = std::env::var_os("LIGHTLOOM_BLESS").is_some();
            assert!(is_new || percent < recorded + WORSE, "{class}, {of}: {percent:.1} %");
        }
    }
    if std::env::var_os("LIGHTLOOM_BLESS").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/collectives.csv");
        std::fs::write(file, found).expect("the figures can be recorded");
    }
}
