// SPDX-License-Identifier: Apache-2.0
use serde_json::Value;

use super::*;

const CANONICAL: &str = concat!(
    r#"{"circuits":[{"a":"n0/b0.1","b":"n1/b1.1"}],"fabric_sha256":"f00d","faults":["n3"],"#,
    r#""groups":[{"id":"g0","job":0,"nodes":["n0","n1"],"ring":["n0/g0","n0/g1","n1/g1","n1/g0"]}],"#,
    r#""jobs":[{"cross_tor_share":0.25,"gpus":4,"gpus_wanted":null,"name":"train","tp":4}],"#,
    r#""metrics":{"cross_tor_share":0,"dark_port_time_share":1e-7,"gpus_faulty":2,"gpus_spare":0,"#,
    r#""gpus_total":8,"gpus_used":4,"gpus_wasted":2,"orchestration_gain":1234.5,"waste_ratio":0.25,"#,
    r#""waste_ratio_lower_bound":0.25},"ranks":[{"cp":0,"dp":0,"ep":0,"gpu":"n0/g0","group":"g0","job":0,"pp":0,"tp":0}],"#,
    r#""schema":"lightloom.plan/v2","#,
    r#""transceivers":[{"bundle":"n0/b0","path":"external-1"}]}"#
);
const DIGEST: &str = "b71bf116cd8e1cdbfbd6f79ace116d2c94152c4d740f98c186596767513c6bff";

const FORMATTED: &str = r#"{
  "schema": "lightloom.plan/v2", "fabric_sha256": "f00d", "seed": 18446744073709551615, "faults": ["n3"],
  "jobs": [{"name": "train", "tp": 4, "gpus_wanted": null, "gpus": 4,
    "cross_tor_share": 0.25}],
  "groups": [{"id": "g0", "job": 0, "nodes": ["n0", "n1"], "ring": ["n0/g0", "n0/g1", "n1/g1", "n1/g0"]}],
  "transceivers": [{"bundle": "n0/b0", "path": "external-1"}],
  "circuits": [{"a": "n0/b0.1", "b": "n1/b1.1"}],
  "ranks": [{"gpu": "n0/g0", "group": "g0", "job": 0, "tp": 0, "pp": 0, "dp": 0, "cp": 0, "ep": 0}],
  "metrics": {"gpus_total": 8, "gpus_faulty": 2, "gpus_used": 4, "gpus_spare": 0, "gpus_wasted": 2,
    "waste_ratio": 0.25, "waste_ratio_lower_bound": 0.25, "cross_tor_share": 0.0,
    "orchestration_gain": 1234.5, "dark_port_time_share": 0.0000001}
}"#;

fn formatted() -> Plan {
    serde_json::from_str(FORMATTED).unwrap()
}

#[test]
fn digest_is_the_hash_of_the_canonical_form() {
    assert_eq!(provenance::sha256(CANONICAL.as_bytes()), DIGEST);
    let value: Value = serde_json::from_str(FORMATTED).unwrap();
    assert_eq!(digest(&value), DIGEST, "as a document");
    assert_eq!(digest(&formatted()), DIGEST, "as a plan");
    let canonical = canonical::bytes(&formatted(), NOT_IDENTITY).unwrap();
    assert_eq!(String::from_utf8(canonical).unwrap(), CANONICAL);
}

#[test]
fn digest_ignores_the_seed() {
    let other = Plan { seed: lightloom_units::seed::Seed(0), ..formatted() };
    assert_eq!(digest(&other), DIGEST);
}

#[test]
fn digest_covers_plan_settings_but_not_provenance() {
    let inputs = || [("fabric".to_owned(), crate::provenance::Input::of("f.yaml", b"x"))].into();
    let sealed = formatted().sealed(inputs());
    assert_eq!((sealed.digest.as_str(), sealed.version.as_str()), (DIGEST, VERSION));
    assert!(sealed.is_as_written() && formatted().is_as_written());
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
fn plan_digest_ignores_the_causes_of_waste() {
    let plan = r#"{"schema":"lightloom.plan/v2","phases":[],"metrics":{"gpus_total":8}"#;
    let of =
        |more: &str| digest(&serde_json::from_str::<Value>(&format!("{plan}{more}}}")).unwrap());
    assert_eq!(of(""), of(r#","why":[{"a":1}],"version":"9","inputs":{},"digest":"x""#));
    let canonical = r#"{"metrics":{"gpus_total":8},"phases":[],"schema":"lightloom.plan/v2"}"#;
    assert_eq!(of(""), provenance::sha256(canonical.as_bytes()));
}

#[test]
fn recognises_a_plan_by_its_schema_prefix() {
    assert!(is_plan(b"{\"schema\": \"lightloom.plan/v2\", \"version\": "));
    assert!(is_plan(b"{\"name\": {\"schema\": 1}, \"schema\": \"lightloom.plan/v1\"}"));
    assert!(!is_plan(b"{\"name\": {\"schema\": \"lightloom.plan/v2\"}}"));
    assert!(
        !is_plan(b"kind: fabric\n") && !is_plan(b"[\"schema\"]") && !is_plan(b"{\"schema\": 2}")
    );
}

#[test]
fn incremental_plan_has_the_same_digest() {
    let before = formatted();
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
