// SPDX-License-Identifier: Apache-2.0

use lightloom_study::reproduce::{Claim, Label, Published, Unit, Verdict};

use serde_json::{Value, json};

use super::super::document::{PageDocument, PageSection};
use super::super::quantity::{ShownQuantity, ShownUnit as Shown};
use super::super::tables;

pub(in super::super) fn add(report: &mut PageDocument, claims: &[Claim]) {
    let claims: Vec<&Claim> = claims.iter().filter(|claim| claim.ours.is_some()).collect();
    if claims.is_empty() {
        return;
    }
    let agree = claims.iter().filter(|claim| claim.verdict == Verdict::Reproduced).count();
    let mut section = PageSection::new("published", "Published figures and ours");
    section.verdict = format!(
        "{agree} of {} published figures are reproduced on the study's own cluster of 2,880 GPUs. Others: docs/validation.md.",
        claims.len()
    );
    for (index, claims) in claims.chunk_by(|a, b| a.section == b.section).enumerate() {
        let mut table = tables::table("published", claims.iter().map(|claim| row(claim)));
        (table.id, table.title) = (format!("published_{index}"), claims[0].section.to_owned());
        section.table(table);
    }
    for label in Label::ALL.into_iter().filter(|label| claims.iter().any(|one| one.label == *label))
    {
        section.note(format!("{}: {}", label.name(), meaning(label)));
    }
    report.sections.push(section);
}

const fn meaning(label: Label) -> &'static str {
    match label {
        Label::Read => "read in a public source (abstract, data sheet)",
        Label::ReadBandOurs => "a statement in a public source; we chose the matching range",
        Label::Trace => "computed from the authors' public fault trace by another program",
    }
}

fn row(claim: &Claim) -> Value {
    let value = match claim.published {
        Published::Near { value, .. }
        | Published::AtMost { value }
        | Published::AtLeast { value } => value,
    };
    let difference = match claim.published {
        Published::Near { .. } => claim.ours.map(|ours| ours - value),
        Published::AtMost { .. } | Published::AtLeast { .. } => None,
    };
    let difference = difference.map(|difference| {
        let sign = if difference < 0.0 { "−" } else { "+" };
        let text = match claim.unit {
            Unit::Ratio => ShownQuantity::new(difference, Shown::Points).show(),
            unit => format!("{sign}{}", unit.show(difference.abs())),
        };
        json!([difference, unit(claim.unit), text])
    });
    let ours = claim.ours.map(|ours| json!([ours, unit(claim.unit), claim.unit.show(ours)]));
    json!({"claim": claim.claim, "label": claim.label.name(), "ours": ours, "difference": difference,
        "published": [value, unit(claim.unit), claim.published.show(claim.unit)], "verdict": claim.verdict.to_string()})
}

const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Ratio => "fraction",
        Unit::Count => "count",
        Unit::ServerDays => "server-days",
        Unit::Times => "ratio",
        Unit::Days => "d",
        Unit::Seconds => "s",
    }
}
