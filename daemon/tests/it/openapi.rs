// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use lightloom_control::controller::Answer;
use lightloom_control::state::Txn;
use serde_json::Value;

#[test]
fn committed_openapi_document_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let now = lightloom_daemon::api::openapi();
    if std::env::var_os("LIGHTLOOM_BLESS").is_some() {
        std::fs::write(file, &now).expect("the document can be written");
    }
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        committed == now,
        "daemon/openapi.json is not what the API says: run this test with LIGHTLOOM_BLESS=1"
    );
}

#[test]
fn every_response_has_a_description_and_a_schema() {
    let document: Value = serde_json::from_str(&lightloom_daemon::api::openapi()).unwrap();
    let mut seen = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in item.as_object().unwrap().values() {
            for (code, response) in operation["responses"].as_object().unwrap() {
                seen += 1;
                let meaning = response["description"].as_str().unwrap_or_default();
                assert!(!meaning.is_empty(), "{path} {code}");
                let body = &response["content"]["application/json"]["schema"];
                assert!(body.is_object(), "{path} {code}");
            }
        }
    }
    assert!(seen > 60, "{seen}");
    let tags: BTreeSet<&str> = document["components"]["schemas"]["Answer"]["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["properties"]["answer"]["enum"][0].as_str().unwrap())
        .collect();
    let answers = [
        Answer::Accepted { txn: Txn(1) },
        Answer::Done,
        Answer::Adopted { devices: 1, slots: 2, unreachable: 0 },
        Answer::NothingToDo { reasons: vec![] },
        Answer::Conflict { reason: String::new() },
        Answer::Refused { reasons: vec![] },
        Answer::Booked { request_id: String::new(), paced: true },
        Answer::PhaseRefused {
            conflict: true,
            code: String::new(),
            reason: String::new(),
            fix: String::new(),
        },
    ];
    let written = answers.map(|answer| {
        let sent = serde_json::to_value(answer).unwrap();
        let read: lightloom_daemon_api::answer::Answer =
            serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), sent, "clients read what the daemon sends");
        sent["answer"].to_string()
    });
    let written: BTreeSet<&str> = written.iter().map(|tag| tag.trim_matches('"')).collect();
    assert_eq!(tags, written);
}

#[test]
fn openapi_validator_accepts_the_document() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    match std::process::Command::new("openapi-spec-validator").arg(file).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{said}");
        }
        Err(_) => println!("skipped: no openapi-spec-validator"),
    }
}
