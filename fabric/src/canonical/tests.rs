// SPDX-License-Identifier: Apache-2.0
use serde_json::{Value, json};

use super::*;

fn canonical(text: &str) -> String {
    let document: Value = serde_json::from_str(text).unwrap();
    String::from_utf8(bytes(&document, &[]).unwrap()).unwrap()
}

/// RFC 8785, sections 3.2.2 and 3.2.4.
#[test]
fn formats_the_sample_of_rfc_8785() {
    let sample = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    assert_eq!(
        canonical(sample),
        concat!(
            r#"{"literals":[null,true,false],"#,
            r#""numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
            r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
        )
    );
}

/// RFC 8785, section 3.2.3: in UTF-16 code units, an emoji sorts before U+FB33.
#[test]
fn orders_members_like_rfc_8785() {
    let sample = r#"{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"}"#;
    let canonical: String = canonical(sample);
    let order = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"];
    let places = order.map(|word| canonical.find(word).unwrap());
    assert!(places.is_sorted(), "{canonical}");
}

#[test]
fn orders_members_of_nested_objects_separately() {
    let text = r#"{"b":{"z":[{"y":1,"x":{}},[]],"a":2},"a":{"aa":1,"a":2},"":0}"#;
    assert_eq!(canonical(text), r#"{"":0,"a":{"a":2,"aa":1},"b":{"a":2,"z":[{"x":{},"y":1},[]]}}"#);
}

#[test]
fn keeps_all_integer_digits_and_prints_whole_floats_as_integers() {
    assert_eq!(canonical("[18446744073709551615, -9007199254740993, 1.0, -0.0, 64.0]").as_str(), {
        "[18446744073709551615,-9007199254740993,1,0,64]"
    });
}

#[test]
fn omits_members_only_at_the_given_path() {
    let document = json!({
        "digest": 1, "a": {"digest": 2, "seconds": 3}, "b": {"seconds": 4}, "c": [{"seconds": 5}], "z": 6,
    });
    let left = |without: &[&[&str]]| String::from_utf8(bytes(&document, without).unwrap()).unwrap();
    let a = r#""a":{"digest":2},"b":{"seconds":4},"c":[{"seconds":5}]"#;
    assert_eq!(left(&[&["digest"], &["a", "seconds"]]), format!(r#"{{{a},"z":6}}"#));
    assert_eq!(left(&[&["digest"], &["a", "seconds"], &["z"]]), format!("{{{a}}}"));
    let all: Vec<&[&str]> = vec![&["a"], &["b"], &["c"], &["digest"], &["z"]];
    assert_eq!(left(&all), "{}");
}
