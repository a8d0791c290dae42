//! `lightloom reproduce mfu`: the training part of the InfiniteHBD study, recomputed.

use std::fmt::Write;

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_training::claims::{Claim, Verdict, claims};
use serde::Serialize;

use crate::output::{self, Outcome};
use crate::table::Table;

/// How the result is shown.
#[derive(Clone, Copy)]
pub(crate) enum Shown {
    Text,
    Json,
    Markdown,
}

#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    made: Provenance,
    study: &'static str,
    claims: Vec<Claim>,
}

/// Prints every claim with its verdict; good if all that were published come out.
pub(crate) fn reproduce(shown: Shown) -> anyhow::Result<Outcome> {
    let made = Provenance::of("lightloom.reproduce-mfu/v1", Inputs::new());
    let document = Document { made, study: "mfu", claims: claims() };
    match shown {
        Shown::Json => output::print_json(&document)?,
        Shown::Text => output::print(&text(&document.claims))?,
        Shown::Markdown => output::print(&markdown(&document.claims))?,
    }
    let agree = |claim: &Claim| matches!(claim.verdict, Verdict::Reproduced | Verdict::Added);
    Ok(if document.claims.iter().all(agree) { Outcome::Good } else { Outcome::Bad })
}

fn cells(claim: &Claim) -> [String; 4] {
    let verdict = claim.verdict.label().to_owned();
    [claim.claim.clone(), claim.published.clone(), claim.ours.clone(), verdict]
}

fn text(claims: &[Claim]) -> String {
    let mut table = Table::new(["claim", "published", "ours", "verdict"]);
    claims.iter().for_each(|claim| table.row(cells(claim)));
    format!("MFU, full attention; constants and conventions: docs/mfu.md\n\n{table}")
}

fn markdown(claims: &[Claim]) -> String {
    let mut text = "| claim | published | ours | verdict |\n| --- | --- | --- | --- |\n".to_owned();
    for claim in claims {
        let _ = writeln!(text, "| {} |", cells(claim).join(" | "));
    }
    text
}
