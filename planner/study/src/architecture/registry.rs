// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document;

use super::{
    Architecture, fat_tree, ironwood, khop, multi_plane, nvl, photonic_rails, plain, rfabric,
    torus, tpuv4,
};

pub(super) struct DesignKind {
    pub(super) forms: &'static [(&'static str, &'static str)],
    pub(super) parse: fn(&str) -> Option<Box<dyn Architecture>>,
}

const KINDS: [&DesignKind; 12] = [
    &khop::KIND,
    &plain::BIG_SWITCH,
    &nvl::KIND,
    &ironwood::KIND,
    &tpuv4::KIND,
    &plain::SIP_RING,
    &plain::DGX,
    &torus::KIND,
    &fat_tree::KIND,
    &multi_plane::KIND,
    &photonic_rails::KIND,
    &rfabric::KIND,
];

const NETWORKS: [&DesignKind; 4] =
    [&fat_tree::KIND, &multi_plane::KIND, &photonic_rails::KIND, &rfabric::KIND];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an architecture: {instead}")]
pub struct UnknownArchitecture {
    pub text: String,
    pub instead: String,
}

/// Whether a design is the name of a fabric file. No built-in design contains a dot.
pub fn is_fabric_file(design: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|ending| design.ends_with(ending))
}

pub fn parse(text: &str) -> Result<Box<dyn Architecture>, UnknownArchitecture> {
    parse_of(&KINDS, text)
}

pub fn parse_network(text: &str) -> Result<Box<dyn Architecture>, UnknownArchitecture> {
    parse_of(&NETWORKS, text)
}

fn parse_of(
    kinds: &[&DesignKind],
    text: &str,
) -> Result<Box<dyn Architecture>, UnknownArchitecture> {
    kinds.iter().find_map(|kind| (kind.parse)(text.trim())).ok_or_else(|| {
        let forms = || kinds.iter().flat_map(|kind| kind.forms).map(|(form, _)| *form);
        // Forms such as `khop:K` are not names.
        let is_name = |form: &&str| kinds.iter().any(|kind| (kind.parse)(form).is_some());
        // `nvl72` is `nvl:72` without its colon.
        let digit = text.find(|letter: char| letter.is_ascii_digit()).unwrap_or(0);
        let with_colon = format!("{}:{}", &text[..digit], &text[digit..]);
        let names = forms().filter(is_name);
        let near = Some(with_colon.as_str()).filter(is_name);
        let instead = match near.or_else(|| document::closest(text, names)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("use one of {}", forms().collect::<Vec<_>>().join(", ")),
        };
        UnknownArchitecture { text: text.to_owned(), instead }
    })
}

pub(super) fn number(text: &str, most: u32) -> Option<u32> {
    text.parse().ok().filter(|number| (1..=most).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn design_names_round_trip() {
        let names = [
            "khop:2",
            "khop:3:line",
            "big-switch",
            "nvl:72",
            "nvl:36x2",
            "nvl:144",
            "ironwood",
            "multi-plane:8",
            "photonic-rails",
            "tpuv4",
            "tpuv4:strict",
            "sip-ring",
            "dgx",
            "torus:8x8x8",
            "fat-tree:64",
            "fat-tree:64:3",
            "rfabric",
            "rfabric:thin",
            "rfabric:core",
        ];
        for name in names {
            assert_eq!(parse(name).unwrap().name(), name);
        }
        assert_eq!(parse("khop:2:ring").unwrap().name(), "khop:2");
    }

    #[test]
    fn unknown_design_error_lists_the_known_ones() {
        for text in [
            "",
            "khop",
            "khop:0",
            "khop:x",
            "khop:2:star",
            "nvl:",
            "nvl:-1",
            "torus:8x8",
            "fat-tree:63",
            "dgx:9",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("khop:K, khop:K:line, khop:K:spare, big-switch"), "{error}");
        }
        let near = ["nvl72", "khop3", "big-swich"].map(|text| parse(text).unwrap_err().instead);
        let named =
            ["nvl:72", "khop:3", "big-switch"].map(|name| format!("did you mean `{name}`?"));
        assert_eq!(near, named);
    }
}
