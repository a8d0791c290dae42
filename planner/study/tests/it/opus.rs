// SPDX-License-Identifier: Apache-2.0
//! Published steps of a job at several switching times, compared with the emulation and the plan.

use lightloom_study::reproduce::{PublishedStep, Verdict, opus};

const TABLE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/opus_perlmutter_64.csv");

#[test]
fn predicts_every_published_step_within_5_percent() {
    let Ok(table) = std::fs::read_to_string(TABLE) else {
        println!("skipped: no ../shared/data");
        return;
    };
    let row = |line: &str| {
        let cells: Option<Vec<f64>> = line.split(',').map(|cell| cell.parse().ok()).collect();
        let [switching_ms, provision_s, baseline_s] = cells?.try_into().ok()?;
        Some(PublishedStep { switching_ms, provision_s, baseline_s })
    };
    let published: Vec<PublishedStep> = table.lines().filter_map(row).collect();
    let claims = opus(&published);
    assert_eq!(claims.len(), 24);
    for claim in &claims {
        println!("{}: {:?} {:?}", claim.claim, claim.published, claim.ours);
        assert_eq!(claim.verdict, Verdict::Reproduced, "{claim:?}");
    }
    for (plan, theirs) in claims[16..].iter().zip(&published) {
        assert!(plan.ours.expect("a step") < theirs.provision_s, "{plan:?}");
    }
}

#[test]
fn plan_is_never_slower_than_static_circuits() {
    let steps: Vec<f64> = opus(&[]).iter().filter_map(|claim| claim.ours).collect();
    assert_eq!(steps.len(), 8);
    assert!(steps.is_sorted() && steps[4] < 14.45, "it switches up to 250 ms: {steps:?}");
    assert!(steps[5..].iter().all(|step| *step == 14.498), "{steps:?}");
}
