// SPDX-License-Identifier: Apache-2.0
//! Published figures compared with ours, labelled with their certainty.

use lightloom_study::reproduce::{Claim, Label, Published, Unit, Verdict};

use super::super::document::{Cell, FigureTable, PageBlock, PageDocument, PageSection};
use super::super::quantity::{ShownQuantity, ShownUnit as Shown};

/// Number of expanded sections; the others are collapsed.
const OPEN: usize = 1;

/// Adds the section on published figures, if there are any.
pub(in super::super) fn add(report: &mut PageDocument, claims: &[Claim]) {
    let claims: Vec<Claim> = claims.iter().filter(|claim| is_shown(claim)).cloned().collect();
    if claims.is_empty() {
        return;
    }
    let agree = claims.iter().filter(|claim| claim.verdict == Verdict::Reproduced).count();
    let conclusion = format!(
        "{agree} of {} published figures are reproduced, on the study's own cluster of 2,880 GPUs. Others, and those that rest \
         on files not given here: docs/validation.md.",
        claims.len()
    );
    let mut section = PageSection::new("published", "Published figures and ours", conclusion);
    for (index, claims) in claims.chunk_by(|a, b| a.section == b.section).enumerate() {
        let table = table(index, claims);
        let reproduced = claims.iter().filter(|claim| claim.verdict == Verdict::Reproduced).count();
        if index < OPEN {
            section.blocks.push(PageBlock::Table(table));
        } else {
            let summary =
                format!("{} ({reproduced} of {} reproduced)", claims[0].section, claims.len());
            // The summary already names the table.
            let table = FigureTable { title: String::new(), ..table };
            section.blocks.push(PageBlock::Folded { summary, tables: vec![table] });
        }
    }
    for label in Label::ALL.into_iter().filter(|label| claims.iter().any(|one| one.label == *label))
    {
        if let Some(meaning) = meaning(label) {
            section.blocks.push(PageBlock::Note(format!("{}: {meaning}", label.name())));
        }
    }
    report.sections.push(section);
}

/// Only figures that were read or derive from public sources, and that were computed here.
fn is_shown(claim: &Claim) -> bool {
    meaning(claim.label).is_some() && claim.ours.is_some()
}

/// Returns the meaning of a label. `None` for figures that are unpublished or recalled from memory.
const fn meaning(label: Label) -> Option<&'static str> {
    match label {
        Label::Read => Some("read in a public source (abstract, data sheet)"),
        Label::ReadBandOurs => {
            Some("a statement read in a public source; the range that agrees is ours")
        }
        Label::Trace => Some("computed from the authors' public fault trace by another program"),
        Label::RecalledReproduced | Label::Derived => None,
    }
}

fn table(index: usize, claims: &[Claim]) -> FigureTable {
    let mut table = FigureTable::new(format!("published_{index}"), claims[0].section)
        .words("figure")
        .words("label")
        .numbers("published")
        .numbers("ours")
        .numbers("difference")
        .words("verdict");
    for claim in claims {
        let value = match claim.published {
            Published::Near { value, .. }
            | Published::AtMost { value }
            | Published::AtLeast { value } => value,
        };
        let shown =
            |value: Option<f64>, text: String| Cell::Shown { value, unit: unit(claim.unit), text };
        let ours = claim.ours.map_or("–".to_owned(), |ours| claim.unit.show(ours));
        table.row([
            Cell::text(&claim.claim),
            Cell::text(claim.label.name()),
            shown(Some(value), claim.published.show(claim.unit)),
            shown(claim.ours, ours),
            difference(claim),
            Cell::text(claim.verdict.to_string()),
        ]);
    }
    table
}

/// Returns our value minus the published one; `None` for a bound.
fn difference(claim: &Claim) -> Cell {
    let (Published::Near { value, .. }, Some(ours)) = (claim.published, claim.ours) else {
        return Cell::Missing;
    };
    let difference = ours - value;
    let sign = if difference < 0.0 { "−" } else { "+" };
    let text = match claim.unit {
        Unit::Ratio => ShownQuantity::new(difference, Shown::Points).show(),
        unit => format!("{sign}{}", unit.show(difference.abs())),
    };
    Cell::Shown { value: Some(difference), unit: unit(claim.unit), text }
}

const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Ratio => "fraction",
        Unit::Count => "count",
        Unit::ServerDays => "server-days",
        Unit::Gpus => "GPUs",
        Unit::UsdPerGpu => "USD per GPU",
        Unit::UsdPerGbytesPerS => "USD per GB/s",
        Unit::WattsPerGpu => "W per GPU",
        Unit::Times => "ratio",
        Unit::Days => "d",
    }
}
