// SPDX-License-Identifier: Apache-2.0
//! Checks figures that are recalled, or are our own earlier results. Readers do not see them.

use lightloom_study::cost::read_prices;
use lightloom_study::reproduce::{Inputs, Verdict, infinitehbd};
use lightloom_units::seed::Seed;

fn differing(prices: &str) -> Vec<String> {
    let prices = read_prices("prices.yaml", prices.as_bytes()).0.unwrap();
    let inputs = Inputs { trace: None, prices: &prices, samples: 20, seed: Seed(1) };
    let claims = infinitehbd(&inputs).unwrap();
    let quoted: Vec<_> = claims.iter().filter(|claim| !claim.label.is_public()).collect();
    assert!(quoted.len() > 40, "{}", quoted.len());
    let differs = quoted.iter().filter(|claim| claim.verdict == Verdict::Differs);
    differs.map(|claim| claim.claim.clone()).collect()
}

#[test]
fn published_costs_are_reproduced_and_sensitive_to_one_dollar() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../topologies/prices.yaml");
    let shipped = std::fs::read_to_string(path).unwrap();
    assert_eq!(differing(&shipped), Vec::<String>::new());
    let dearer = shipped.replace("mean: 600,", "mean: 601,");
    assert!(differing(&dearer).contains(&"cost of khop:2".to_owned()));
}
