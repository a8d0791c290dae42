// SPDX-License-Identifier: Apache-2.0
//! Errors of back-to-back collectives by class, with the accelerator left out of the fit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lightloom_training::collectives::{JudgedCollective, error, judge};

const RECORDED: &str = include_str!("collectives.txt");
const WORSE: f64 = 2.0;

fn judged() -> Option<Vec<JudgedCollective>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let names = ["collectives_nccl_tests.csv", "expert_exchange_deepep.csv"];
    let [Ok(library), Ok(experts)] = names.map(|name| std::fs::read_to_string(data.join(name)))
    else {
        println!("skipped: no ../shared/data");
        return None;
    };
    let (judged, without) = judge(&[&library, &experts]).expect("the columns of the tables");
    assert_eq!((judged.len(), without), (1263 + 2 * 3138, 0));
    Some(judged)
}

fn errors(judged: &[JudgedCollective]) -> BTreeMap<String, f64> {
    let mut classes: BTreeSet<(&str, &str)> = BTreeSet::new();
    for one in judged {
        for of in ["", &one.hardware, one.collective] {
            classes.insert((&one.class, of));
        }
    }
    let named = |(class, of)| (format!("{class}; {of}"), error(judged, class, "left out", of).0);
    classes.into_iter().map(named).collect()
}

#[test]
fn no_class_is_worse_than_recorded() {
    let Some(judged) = judged() else { return };
    let found = errors(&judged);
    if std::env::var_os("LIGHTLOOM_BLESS").is_some() {
        let lines = found.iter().map(|(class, percent)| format!("{class}: {percent:.1}\n"));
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/collectives.txt");
        std::fs::write(file, lines.collect::<String>()).expect("the figures can be recorded");
        return;
    }
    let recorded = RECORDED.lines().filter_map(|line| line.split_once(": "));
    let worse: Vec<_> = recorded
        .filter(|(class, recorded)| {
            let recorded: f64 = recorded.parse().expect("a recorded percentage");
            found.get(*class).is_none_or(|percent| *percent > recorded + WORSE)
        })
        .collect();
    assert!(worse.is_empty(), "{worse:?} recorded, now {found:?}");
}
