// SPDX-License-Identifier: Apache-2.0
//! Published figures beside ours, labelled as sure as they are.

use lightloom_study::reproduce::{Claim, Label, Published, Unit, Verdict, summary};

use super::super::document::{Cell, FigureTable, PageBlock, PageDocument, PageSection};
use super::super::quantity::{ShownQuantity, ShownUnit as Shown};

/// Sections that are shown open; the others are folded away.
const OPEN: usize = 1;

/// Adds the section on published figures, where there are any.
pub(in super::super) fn add(report: &mut PageDocument, claims: &[Claim]) {
    if claims.is_empty() {
        return;
    }
    let conclusion = format!("{}. On the study's own cluster of 2,880 GPUs.", summary(claims));
    let mut section = PageSection::new("published", "Published figures and ours", conclusion);
    for (index, claims) in claims.chunk_by(|a, b| a.section == b.section).enumerate() {
        let table = table(index, claims);
        let reproduced = claims.iter().filter(|claim| claim.verdict == Verdict::Reproduced).count();
        if index < OPEN {
            section.blocks.push(PageBlock::Table(table));
        } else {
            let summary =
                format!("{} ({reproduced} of {} reproduced)", claims[0].section, claims.len());
            // The summary names the table.
            let table = FigureTable { title: String::new(), ..table };
            section.blocks.push(PageBlock::Folded { summary, tables: vec![table] });
        }
    }
    for label in [Label::Read, Label::Trace, Label::RecalledReproduced, Label::Derived] {
        section.blocks.push(PageBlock::Note(format!("{}: {}", label.name(), meaning(label))));
    }
    report.sections.push(section);
}

const fn meaning(label: Label) -> &'static str {
    match label {
        Label::Read => "read in a public source (abstract, data sheet)",
        Label::Trace => "computed from the authors' public fault trace by another program",
        Label::RecalledReproduced => {
            "recalled from the paper, whose full text was not available, and reproduced by an independent calculation \
             before it became a target here"
        }
        Label::ReadBandOurs => "a statement read in a public source; the range that agrees is ours",
        Label::Derived => "an earlier derivation or simulation of our own, by another program",
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

/// Ours less the published value; a bound has none.
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
