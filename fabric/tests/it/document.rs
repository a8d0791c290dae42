// SPDX-License-Identifier: Apache-2.0
//! Tests of the document reader: it reports every error in one pass, and no input crashes it.

use std::collections::BTreeMap;

use lightloom_fabric::document::{self, Diagnostic, Style, codes};
use lightloom_units::{Picoseconds, Text};
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;

/// A house.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "read for its mistakes")]
struct House {
    /// What it is called.
    name: String,
    /// How many floors it has.
    #[schemars(range(min = 1, max = 200))]
    floors: u32,
    /// How long the lift takes.
    #[serde(default)]
    lift: Option<Text<Picoseconds>>,
    /// How it is heated.
    #[serde(default)]
    heating: Option<Heating>,
    /// Its rooms, by name.
    #[serde(default)]
    rooms: BTreeMap<String, Room>,
    /// Its doors.
    #[serde(default)]
    doors: Vec<Door>,
    /// Whether it has a garden.
    #[serde(default)]
    garden: bool,
    /// What it costs.
    #[serde(default)]
    price: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(dead_code, reason = "read for its mistakes")]
enum Heating {
    /// None at all.
    Nothing,
    /// A stove.
    Stove { fuel: Fuel },
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Fuel {
    Wood,
    Coal,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "read for its mistakes")]
struct Room {
    /// Its area in square metres.
    area: u8,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "read for its mistakes")]
struct Door {
    /// The two rooms it joins.
    between: [String; 2],
}

fn mistakes(bytes: &[u8]) -> Vec<Diagnostic> {
    let (house, mistakes) = document::read::<House>("house.yaml", bytes);
    assert_eq!(house.is_none(), !mistakes.is_empty());
    mistakes
}

fn shown(text: &str) -> String {
    document::render(&mistakes(text.as_bytes()), Style::Plain)
}

#[test]
fn valid_file_has_no_mistakes() {
    let text = "name: \"12\"\nfloors: 2\nlift: 3s\nheating: {stove: {fuel: wood}}\nrooms:\n  hall: &small {area: 4}\n  bath: *small\ndoors:\n  - between: [hall, bath]\ngarden: true\nprice: 5\n";
    assert_eq!(shown(text), "");
    assert_eq!(shown("{name: x, floors: 1, heating: nothing, lift: }"), "");
}

#[test]
fn shows_every_mistake_with_location_and_fix() {
    let text = "\
nam: 12
floors: 500
lift: 60
heating:
  stove: {fuel: petrol}
rooms:
  hall: {area: 4}
  bath: {area: big, colour: blue}
  hall: {area: 1_0}
doors:
  - between: [hall]
  - {}
garden: yes
price: lots
";
    insta::assert_snapshot!(shown(text));
}

#[test]
fn requires_exactly_one_choice() {
    let text = |heating: &str| format!("name: x\nfloors: 1\nheating: {heating}\n");
    insta::assert_snapshot!(
        [
            shown(&text("{stove: {fuel: wood}, nothing: }")),
            shown(&text("{}")),
            shown(&text("[stove]")),
            shown(&text("{stov: {fuel: wod}}")),
            shown(&text("17")),
        ]
        .concat()
    );
}

#[test]
fn locates_and_explains_invalid_yaml() {
    insta::assert_snapshot!(
        [
            shown("name: [1, 2\nfloors: 3\n"),
            shown("name: 'x\n"),
            shown("name: x\n\tfloors: 1\n"),
            shown("name: x\n floors: 1\n"),
            shown("name: *nobody\n"),
            shown("name: &a [*a]\n"),
            shown("name: !!str x\n"),
            shown("name: x\nfloors: 1\n---\nname: y\n"),
            shown("name: @x\n"),
            shown("%YAML 1.1\n---\nname: x\n"),
            shown("? [a]\n: b\n"),
            shown("- a\n"),
            shown("# nothing\n"),
            shown(""),
        ]
        .concat()
    );
}

/// Malicious inputs, each with the code that must reject it and a word that its message must
/// contain.
fn nasty() -> Vec<(&'static str, Vec<u8>, document::Code, &'static str)> {
    let deep = |open: &str| open.repeat(100_000).into_bytes();
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [before.as_str(); 9].join(", ")));
    }
    let good = b"name: x\nfloors: 1\n".to_vec();
    let with = |position: usize, bytes: &[u8]| {
        let mut text = good.clone();
        text.splice(position..position, bytes.iter().copied());
        text
    };
    vec![
        ("flow nesting", deep("["), codes::TOO_DEEP, "64"),
        ("flow mappings", deep("{a: "), codes::TOO_DEEP, "64"),
        ("block nesting", deep("- "), codes::TOO_DEEP, "64"),
        (
            "block mappings",
            (0..3000).flat_map(|depth| format!("{}a:\n", " ".repeat(depth)).into_bytes()).collect(),
            codes::TOO_DEEP,
            "64",
        ),
        ("alias bomb", bomb.into_bytes(), codes::ALIAS_EXPANSION, "100000"),
        (
            "many anchors",
            (0..20_000).flat_map(|anchor| format!("- &a{anchor} x\n").into_bytes()).collect(),
            codes::ALIAS_EXPANSION,
            "10000",
        ),
        ("NUL", with(3, b"\0"), codes::CONTROL_CHARACTER, "U+0000"),
        ("escape", with(3, b"\x1b[31m"), codes::CONTROL_CHARACTER, "U+001B"),
        ("BOM", with(0, b"\xef\xbb\xbf"), codes::BYTE_ORDER_MARK, "byte-order mark"),
        ("UTF-16", with(0, b"\xff\xfe"), codes::NOT_UTF8, "UTF-16"),
        ("invalid UTF-8", with(6, b"\xc3\x28"), codes::NOT_UTF8, "0xc3"),
        ("duplicate key", with(0, b"name: y\n"), codes::DUPLICATE_KEY, "`name`"),
        (
            "huge integer",
            with(0, format!("price: {}\n", "9".repeat(1 << 20)).as_bytes()),
            codes::WRONG_TYPE,
            "99",
        ),
        (
            "huge count",
            b"name: x\nfloors: 99999999999999999999\n".to_vec(),
            codes::OUT_OF_RANGE,
            "9999",
        ),
        (
            "2 million values",
            "- a\n".repeat(2_000_000).into_bytes(),
            codes::TOO_MANY_VALUES,
            "1000000",
        ),
        (
            "2 million keys",
            format!("{{{}}}", "a: ,".repeat(2_000_000)).into_bytes(),
            codes::TOO_MANY_VALUES,
            "1000000",
        ),
        ("17 MiB", vec![b'#'; 17 << 20], codes::TOO_LARGE, "16 MiB"),
    ]
}

#[test]
fn rejects_hostile_files_naming_the_limit() {
    for (what, bytes, code, names) in nasty() {
        let mistakes = mistakes(&bytes);
        let found = mistakes.iter().find(|mistake| mistake.code == code);
        let found = found.unwrap_or_else(|| panic!("{what}: no {code} in {mistakes:?}"));
        assert!(found.message.contains(names), "{what}: {found}");
        assert!(document::render(&mistakes, Style::Plain).len() < 100_000, "{what}");
    }
}

#[test]
fn reader_stops_at_the_size_limit() {
    /// Counts the bytes read from an endless stream.
    struct Endless(u64);
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0 += buffer.len() as u64;
            buffer.fill(b'a');
            Ok(buffer.len())
        }
    }
    let limit = document::Limits::default().bytes as u64;
    let mut endless = Endless(0);
    let refused = document::take("stream", None, &mut endless).unwrap_err();
    assert_eq!(refused.code, codes::TOO_LARGE);
    assert!(endless.0 <= limit + 1, "{} bytes taken", endless.0);

    let mut untouched = Endless(0);
    let refused = document::take("file", Some(1 << 30), &mut untouched).unwrap_err();
    assert_eq!((refused.code, untouched.0), (codes::TOO_LARGE, 0));
}

#[test]
fn finds_top_level_keys_despite_unterminated_values() {
    let keys = |text: &str| document::top_keys(text.as_bytes());
    assert_eq!(
        keys("a: 1\nb: {c: [d, e], f: g}\nh:\n- i\nj: &x k\nl: *x\nm: n\n"),
        ["a", "b", "h", "j", "l", "m"]
    );
    assert_eq!(keys("a: 1\nb: [\n"), ["a", "b"]);
    assert_eq!(keys("- a\n- b: c\n"), ["a"; 0]);
    assert_eq!(keys("a: {}\n---\nb: 1\n"), ["a"]);
    assert_eq!(keys(""), ["a"; 0]);
}

#[test]
fn counts_excess_mistakes_without_listing_them() {
    let rooms: String = (0..5000).map(|room| format!("  r{room}: {{area: x}}\n")).collect();
    let mistakes = mistakes(format!("name: x\nfloors: 1\nrooms:\n{rooms}").as_bytes());
    assert_eq!(mistakes.len(), 101);
    assert_eq!(mistakes[100].code, codes::MORE_ERRORS);
    assert!(mistakes[100].message.contains("4900"), "{}", mistakes[100]);
}

#[test]
fn json_and_sarif_contain_location_code_and_fix() {
    let mistakes = mistakes(b"nam: x\nfloors: 1\nfloors: 2\n");
    insta::assert_snapshot!(serde_json::to_string_pretty(&mistakes).unwrap());
    let sarif = document::sarif(&mistakes, &codes::ALL[..1], "0.0.0");
    insta::assert_snapshot!(serde_json::to_string_pretty(&sarif).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn reader_survives_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(document::render(&mistakes(&bytes), Style::Coloured).len() < 1_000_000);
    }

    #[test]
    fn reader_survives_yaml_like_text(text in "([-?:,\\[\\]{}#&*!|>'\"%@`~ \n\t]|[a-c0-9]|é|name: |floors: |rooms:|\\.\\.\\.|---|<<|\r\n){0,60}") {
        prop_assert!(document::render(&mistakes(text.as_bytes()), Style::Plain).len() < 1_000_000);
    }

    #[test]
    fn reader_survives_edits_of_a_valid_file(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 1..6),
    ) {
        let good = "name: \"12\"\nfloors: 2\nlift: 3s\nheating: {stove: {fuel: wood}}\nrooms:\n  hall: &small {area: 4}\n  bath: *small\n";
        let mut text: Vec<char> = good.chars().collect();
        for (position, character) in cuts {
            let position = position.index(text.len());
            text[position] = character;
        }
        prop_assert!(document::render(&mistakes(text.iter().collect::<String>().as_bytes()), Style::Plain).len() < 1_000_000);
    }
}
