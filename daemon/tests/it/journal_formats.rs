// SPDX-License-Identifier: Apache-2.0
//! A stored journal of each earlier format must always produce the same ledger (S14).

use std::collections::BTreeMap;

use lightloom_control::ledger::Ledger;
use lightloom_control::messages::Answer;
use lightloom_control::record::Record;
use lightloom_control::state::Txn;
use lightloom_daemon::journal::read_all;

/// Version 0.1.0 wrote this journal with 65 emulated devices: adopt, a plan with a confirmation,
/// two circuits on a switch, another plan that a kill interrupted, and the next start.
#[test]
fn reads_a_journal_of_version_0_1_0() {
    let bytes = include_bytes!("../data/journal-0.1.0.log");
    let (records, good_bytes, damage) = read_all::<Record>(bytes);
    assert!(damage.is_none(), "{damage:?}");
    assert_eq!((records.len(), good_bytes), (13, bytes.len()));
    let ledger = Ledger::fold(&records);
    assert_eq!((ledger.version, ledger.last_txn), (4, Txn(3)));
    assert!(ledger.open.is_none() && ledger.pending.is_none() && ledger.attention.is_empty());
    assert!(ledger.plan_sha256.starts_with("9bfe526554a2"));
    assert_eq!(ledger.owned.len(), 65);
    assert_eq!(ledger.owned.values().map(BTreeMap::len).sum::<usize>(), 66);
    assert_eq!((ledger.history.len(), ledger.requests.len()), (3, 5));
}

/// Fields whose names in the code have changed keep the words of stored journals and of answers.
#[test]
fn renamed_fields_keep_their_stored_words() {
    let bytes = include_bytes!("../data/journal-0.1.0.log");
    let (records, ..) = read_all::<Record>(bytes);
    let intent = records.iter().find_map(|record| match record {
        Record::Intent(intent) => Some(intent.clone()),
        _ => None,
    });
    let mut intent = intent.expect("the journal has a transaction");
    intent.resolves = ["n5".to_owned()].into();
    let stored = serde_json::to_value(Record::Intent(intent.clone())).unwrap();
    assert!(stored.to_string().contains(r#""settles":["n5"]"#), "{stored}");
    assert_eq!(serde_json::from_value::<Record>(stored).unwrap(), Record::Intent(intent));
    let turn = Record::Turn { txn: Txn(1), ends: BTreeMap::new(), wall_ms: 0 };
    assert!(serde_json::to_string(&turn).unwrap().contains(r#""parts":{}"#));
    let adopted = Answer::Adopted { devices: 2, slots: 3, unreachable: 1 };
    assert!(serde_json::to_string(&adopted).unwrap().contains(r#""silent":1"#));
}
