// SPDX-License-Identifier: Apache-2.0
use serde_json::Value;

use super::*;

/// The canonical form of a plan, written by hand.
const CANONICAL: &str = concat!(
    r#"{"circuits":[{"a":"n0/b0.1","b":"n1/b1.1"}],"fabric_sha256":"f00d","faults":["n3"],"#,
    r#""groups":[{"id":"g0","job":0,"nodes":["n0","n1"],"ring":["n0/g0","n0/g1","n1/g1","n1/g0"]}],"#,
    r#""jobs":[{"constraints_kept":0,"constraints_total":0,"cross_tor_share":0.25,"#,
    r#""cross_tor_share_greedy":1,"gpus":4,"gpus_wanted":null,"name":"train","tp":4}],"#,
    r#""metrics":{"cost_per_gpu_usd":1234.5,"cross_tor_share":0,"gpus_faulty":2,"gpus_spare":0,"#,
    r#""gpus_total":8,"gpus_used":4,"gpus_wasted":2,"power_per_gpu_w":1e-7,"waste_ratio":0.25,"#,
    r#""waste_ratio_lower_bound":0.25},"ranks":[{"cp":0,"dp":0,"ep":0,"gpu":"n0/g0","group":"g0","job":0,"pp":0,"tp":0}],"#,
    r#""schema":"lightloom.plan/v2","#,
    r#""transceivers":[{"bundle":"n0/b0","path":"external-1"}]}"#
);
/// Output of `sha256sum` for it.
const DIGEST: &str = "aa98655de18eb8899386aa8452cf1f45b718244dae82d3981287066f8775b944";
/// Digest of the same plan including its seed, as earlier versions computed it.
const WITH_SEED: &str = "1d85e03cd07113fc8f48ca3ed4f2cf945db6626fb321a627c1c93c7b2d5909b7";

/// The same plan as an earlier version wrote it: different member order and number format, and with
/// the planning time.
const EARLIER: &str = r#"{
  "schema": "lightloom.plan/v2", "fabric_sha256": "f00d", "seed": 18446744073709551615, "faults": ["n3"],
  "jobs": [{"name": "train", "tp": 4, "gpus_wanted": null, "gpus": 4, "constraints_kept": 0,
    "constraints_total": 0, "cross_tor_share": 0.25, "cross_tor_share_greedy": 1.0}],
  "groups": [{"id": "g0", "job": 0, "nodes": ["n0", "n1"], "ring": ["n0/g0", "n0/g1", "n1/g1", "n1/g0"]}],
  "transceivers": [{"bundle": "n0/b0", "path": "external-1"}],
  "circuits": [{"a": "n0/b0.1", "b": "n1/b1.1"}],
  "ranks": [{"gpu": "n0/g0", "group": "g0", "job": 0, "tp": 0, "pp": 0, "dp": 0, "cp": 0, "ep": 0}],
  "metrics": {"gpus_total": 8, "gpus_faulty": 2, "gpus_used": 4, "gpus_spare": 0, "gpus_wasted": 2,
    "waste_ratio": 0.25, "waste_ratio_lower_bound": 0.25, "cross_tor_share": 0.0,
    "cost_per_gpu_usd": 1234.5, "power_per_gpu_w": 0.0000001, "plan_seconds": 0.00123}
}"#;

fn earlier() -> Plan {
    serde_json::from_str(EARLIER).unwrap()
}

#[test]
fn a_plan_has_the_digest_of_its_canonical_form_in_every_spelling() {
    assert_eq!(provenance::sha256(CANONICAL.as_bytes()), DIGEST);
    let value: Value = serde_json::from_str(EARLIER).unwrap();
    assert_eq!(digest(&value), DIGEST, "as a document");
    assert_eq!(digest(&earlier()), DIGEST, "as a plan");
    let canonical = canonical::bytes(&earlier(), NOT_IDENTITY).unwrap();
    assert_eq!(String::from_utf8(canonical).unwrap(), CANONICAL);
}

#[test]
fn one_plan_has_one_digest_whichever_seed_found_it_and_is_known_by_its_earlier_one() {
    let other = Plan { seed: lightloom_units::seed::Seed(0), ..earlier() };
    assert_eq!(digest(&other), DIGEST);
    assert!(is_called(&earlier(), DIGEST) && is_called(&earlier(), WITH_SEED));
    assert!(is_called(&other, DIGEST) && !is_called(&other, WITH_SEED));
    let written = Plan { digest: WITH_SEED.to_owned(), ..earlier() };
    assert!(written.is_as_written());
}

#[test]
fn how_a_plan_was_made_is_not_its_identity_and_what_it_sets_is() {
    let inputs = || [("fabric".to_owned(), crate::provenance::Input::of("f.yaml", b"x"))].into();
    let sealed = earlier().sealed(inputs());
    assert_eq!((sealed.digest.as_str(), sealed.version.as_str()), (DIGEST, VERSION));
    assert!(sealed.is_as_written() && earlier().is_as_written());
    let written = serde_json::to_vec(&sealed).unwrap();
    assert_eq!(digest(&serde_json::from_slice::<Value>(&written).unwrap()), DIGEST);
    let read: Plan = serde_json::from_slice(&written).unwrap();
    assert_eq!(read, sealed);
    let mut edited = read;
    edited.transceivers[0].path = Path::Loopback;
    assert!(!edited.is_as_written());
    assert_ne!(digest(&edited), DIGEST);
}

#[test]
fn the_plan_of_a_fat_tree_has_the_same_identity_with_and_without_its_sensitivity() {
    let plan = r#"{"schema":"lightloom.plan/v2","phases":[],"metrics":{"gpus_total":8,"plan_seconds":0.5}"#;
    let of =
        |more: &str| digest(&serde_json::from_str::<Value>(&format!("{plan}{more}}}")).unwrap());
    assert_eq!(of(""), of(r#","sensitivity":[{"a":1}],"version":"9","inputs":{},"digest":"x""#));
    let canonical = r#"{"metrics":{"gpus_total":8},"phases":[],"schema":"lightloom.plan/v2"}"#;
    assert_eq!(of(""), provenance::sha256(canonical.as_bytes()));
}

/// The schema is the first key, so a truncated plan is reported as a bad plan and not as another
/// kind of file.
#[test]
fn nothing_behind_the_schema_is_read_to_know_a_plan() {
    assert!(is_plan(b"{\"schema\": \"lightloom.plan/v2\", \"version\": "));
    assert!(is_plan(b"{\"name\": {\"schema\": 1}, \"schema\": \"lightloom.plan/v1\"}"));
    assert!(!is_plan(b"{\"name\": {\"schema\": \"lightloom.plan/v2\"}}"));
    assert!(
        !is_plan(b"kind: fabric\n") && !is_plan(b"[\"schema\"]") && !is_plan(b"{\"schema\": 2}")
    );
    let earlier = read(b"{\"schema\": \"lightloom.plan/v1\", \"no\": 1}");
    assert!(matches!(earlier, Err(ReadError::Earlier)), "{earlier:?}");
}

#[test]
fn a_plan_in_parts_has_the_same_digest_and_is_made_of_the_one_before() {
    let before = earlier();
    assert_eq!(Spelled::of(&before).digest(), DIGEST);
    let mut next = before.clone();
    next.groups[0].nodes.reverse();
    (next.circuits, next.metrics.gpus_faulty) = (Vec::new(), 3);
    next.transceivers.push(Transceiver { path: Path::Loopback, ..before.transceivers[0] });
    assert_eq!(Spelled::of(&before).next(&before, &next).digest(), digest(&next));
    let change = PlanChange::between(&before, &next);
    let change: PlanChange =
        serde_json::from_str(&serde_json::to_string(&change).unwrap()).unwrap();
    assert_eq!(change.of(&before), Some(next));
}
