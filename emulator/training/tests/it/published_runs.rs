// SPDX-License-Identifier: Apache-2.0
//! Compares every published run in `../shared/data` with the time computed by the command line.
//!
//! `cargo test -p lightloom-training --test it published_runs:: -- --nocapture` prints the errors
//! by class.

use std::collections::BTreeMap;
use std::path::Path;

use lightloom_training::bands::{bands, coverage};
use lightloom_training::runs::Runs;
use lightloom_training::runs::judge::{CLASSES, Errors, Judged};

pub(crate) fn published() -> Option<Runs> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let read = |name| std::fs::read_to_string(data.join(name)).ok();
    let tables = ["mfu_measured.csv", "mfu_measured_2.csv", "mfu_measured_3.csv"].map(read);
    let [Some(first), Some(second), Some(third)] = tables else {
        println!("skipped: no ../shared/data");
        return None;
    };
    Some(Runs::read(&[&first, &second, &third]).0)
}

fn of(judged: &[Judged<'_>], class: &str, tests: bool) -> Errors {
    Errors::of(judged.iter().filter(|one| one.tests == tests && one.classes().contains(&class)))
}

#[test]
fn errors_on_test_runs_stay_within_their_class_limits() {
    let Some(runs) = published() else { return };
    let judged = runs.judge();
    for class in CLASSES {
        for tests in [true, false] {
            let errors = of(&judged, class, tests);
            let part = if tests { "test" } else { "fit" };
            println!("{class}, {part}: {errors:?}");
        }
    }
    for one in judged.iter().filter(|one| one.outcome.is_err()) {
        println!("{:?}", one.outcome);
    }
    for (class, most) in [
        ("all", 0.08),
        ("dense", 0.065),
        ("dense on Hopper", 0.065),
        ("A100", 0.06),
        ("mixtures", 0.145),
    ] {
        let errors = of(&judged, class, true);
        assert!(errors.mean <= most, "{class}: {errors:?}");
    }
    let refused = judged.iter().filter(|one| one.outcome.is_err()).count();
    assert!(50 * refused <= judged.len(), "{refused} of {} refused", judged.len());
}

#[test]
fn fitting_and_testing_split_keeps_groups_whole() {
    let Some(runs) = published() else { return };
    let mut parts: BTreeMap<(&str, &str, &str), bool> = BTreeMap::new();
    for (run, tests) in runs.runs.iter().zip(runs.testing()) {
        let group = (&*run.source, &*run.model, &*run.accelerator);
        assert_eq!(*parts.entry(group).or_insert(tests), tests, "{group:?}");
    }
}

#[test]
fn errors_stay_bounded_without_software_and_features() {
    let Some(mut runs) = published() else { return };
    for run in &mut runs.runs {
        (run.request.constants, run.request.changes.features) = (None, None);
    }
    let judged = runs.judge();
    let errors = of(&judged, "all", true);
    println!("without options: {errors:?}");
    assert!(errors.mean <= 0.12, "{errors:?}");
}

#[test]
fn later_model_joins_testing_without_moving_others() {
    let Some(mut runs) = published() else { return };
    let before = runs.testing();
    let mut later = runs.runs[0].clone();
    later.model = "AAA-1B".to_owned();
    runs.runs.push(later);
    let after = runs.testing();
    assert_eq!(after[..before.len()], before);
    assert!(after[before.len()]);
}

#[test]
fn shipped_error_bands_match_the_judge() {
    let Some(runs) = published() else { return };
    let judged = runs.judge();
    let mut text = csv::Writer::from_writer(Vec::new());
    for band in bands(judged.iter()) {
        text.serialize(band).expect("plain values");
    }
    let text = text.into_inner().expect("a vector");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/calibrated/bands.csv");
    if std::env::var_os("LIGHTLOOM_BLESS").is_some() {
        return std::fs::write(path, text).expect("the source can be written");
    }
    let shipped = std::fs::read(path).expect("shipped");
    assert!(shipped == text, "run with LIGHTLOOM_BLESS=1");
}

#[test]
fn intervals_contain_their_share_of_runs() {
    let Some(runs) = published() else { return };
    let [of_80, of_95] = coverage(&runs.judge());
    println!("{:.1} % and {:.1} %", 100.0 * of_80, 100.0 * of_95);
    assert!((0.75..=0.88).contains(&of_80) && (0.9..=0.98).contains(&of_95));
}

#[test]
fn no_share_of_peak_exceeds_the_measured_share() {
    for (card, framework) in
        [("a100", "llm-foundry"), ("h100", "nemo-25.02"), ("h100", "llm-foundry")]
    {
        let card = lightloom_training::cards::accelerator(card).expect("shipped");
        let (chip, framework) = card.constants(Some(framework)).expect("shipped");
        let best = card.best_gemm_efficiency.values().next().copied().unwrap_or(1.0);
        let share = chip.gemm[0] * framework.gemm;
        assert!(share <= best * 1.001, "{}/{}: {share} of {best}", chip.name, framework.name);
    }
}
