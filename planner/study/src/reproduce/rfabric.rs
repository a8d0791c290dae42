// SPDX-License-Identifier: Apache-2.0
//! What papers on reconfigurable data-centre fabrics claim, from the planner's acceptance list.

use super::claims::{Claim, Label, Published, Section, Unit, near};
use crate::cost::PriceList;
use crate::rfabric::claims::{RfabricClaim, Source, rfabric as acceptance_list};
use lightloom_planner::rfabric::file::RfabricInput;

/// The acceptance list on the fabric and step of `input`.
#[must_use]
pub fn rfabric(input: &RfabricInput, prices: &PriceList) -> Vec<Claim> {
    let mut read = Section::new("Reconfigurable fabrics, as papers report them", Label::Read);
    let mut bands =
        Section::new("Reconfigurable fabrics, what papers say in words", Label::ReadBandOurs);
    let mut ours = Section::new("Reconfigurable fabrics, derived before", Label::Derived);
    for claim in acceptance_list(&input.fabric, &input.phases, prices) {
        let section = match claim.source {
            Source::Read => &mut read,
            Source::BandOurs => &mut bands,
            Source::Derived => &mut ours,
        };
        add(section, claim);
    }
    [read.claims, bands.claims, ours.claims].concat()
}

fn add(section: &mut Section, claim: RfabricClaim) {
    let RfabricClaim { claim, low, high, ours, note, .. } = claim;
    let published = match high {
        Some(high) if low > 0.0 => near(f64::midpoint(low, high), (high - low) / 2.0),
        Some(high) => Published::AtMost { value: high },
        None => Published::AtLeast { value: low },
    };
    let is_ratio = claim.contains('÷') || claim.contains("per cost") || claim.contains("the same");
    let unit = if is_ratio { Unit::Times } else { Unit::Count };
    section.stands_for(sentence_of(&claim));
    section.add(claim, unit, published, ours).note = Some(note);
}

/// What a paper says in the words of its abstract. RFabric compares itself with fat-trees alone, MixNet in one setting.
fn sentence_of(claim: &str) -> Option<&'static str> {
    const SENTENCES: [(&str, &str, &str); 4] = [
        (
            "RFabric: ",
            "fat-tree",
            "RFabric: 2.2 to 3.1 times the performance per cost of fat-trees",
        ),
        (
            "MixNet: ",
            "",
            "MixNet: circuits that follow each layer are 1.3 to 1.5 times as fast as one topology a job",
        ),
        ("MixNet's ", "", "MixNet: a step is hardly longer with a delay of 25 ms"),
        ("ACTINA: ", "", "ACTINA: changes inside a collective pay below 100 µs"),
    ];
    let is =
        |(begins, has, _): &&(&str, &str, &str)| claim.starts_with(begins) && claim.contains(has);
    SENTENCES.iter().find(is).map(|(.., sentence)| *sentence)
}
