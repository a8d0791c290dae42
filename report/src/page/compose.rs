// SPDX-License-Identifier: Apache-2.0

use super::definitions;
use super::document::{PageDocument, PageSection};
use super::quantity::fixed;
use super::results::{Results, Subject};
use super::sections::{bill, buy, cost, fabric, run, steps, waste};
use super::tables;

pub(super) fn compose(results: &Results<'_>) -> PageDocument {
    let mut report =
        PageDocument { title: title(results), lead: lead(results), ..PageDocument::default() };
    if let Some(bought) = &results.bought {
        buy::add(&mut report, bought);
    }
    if let Some(live) = &results.live {
        steps::add_live(&mut report, live);
    }
    fabric::add(&mut report, &results.subject, results.comparison.as_ref());
    results.bills.iter().for_each(|billed| bill::add(&mut report, billed));
    results.sweeps.iter().for_each(|swept| run::add_sweep(&mut report, swept));
    results.runs.iter().for_each(|emulated| run::add(&mut report, emulated));
    if let Some(comparison) = &results.comparison {
        waste::add(&mut report, comparison);
    }
    if let Some(costs) = &results.cost {
        cost::add(&mut report, costs);
    }
    results.training.iter().for_each(|training| steps::add_training(&mut report, training));
    let definitions = definitions::table(&report);
    if !definitions.rows.is_empty() {
        let mut section = PageSection::new("formulas", "Definitions");
        section.table(definitions);
        report.sections.push(section);
    }
    report.sections.push(sources(results));
    report.footer = match results.is_of_runs_alone() {
        true => format!("lightloom {}", results.version),
        false => format!("lightloom {}, seed {}", results.version, results.seed),
    };
    report
}

fn title(results: &Results<'_>) -> String {
    let run = results.runs.first().map(|run| &run.scenario);
    let swept = results.sweeps.first().map(|swept| &swept.subject.scenario);
    match &results.subject {
        Subject::Fabric { fabric, .. } => fabric.name.clone(),
        Subject::PlanAlone { .. } => "Plan".to_owned(),
        Subject::None if results.bought.is_some() => "What to buy".to_owned(),
        Subject::None if !results.bills.is_empty() => {
            format!("What failures cost: {}", results.bills[0].scenario)
        }
        Subject::None if results.is_of_runs_alone() => {
            run.or(swept).map_or_else(|| "Training".to_owned(), String::clone)
        }
        Subject::None => "Designs compared".to_owned(),
    }
}

fn lead(results: &Results<'_>) -> String {
    match &results.subject {
        Subject::Fabric { fabric, .. } => fabric::lead(fabric),
        Subject::PlanAlone { plan } => format!(
            "A plan for {} GPUs, without its fabric file.",
            fixed(plan.metrics.gpus_total as f64, 0)
        ),
        Subject::None if results.bought.is_some() => {
            "Designs for the cluster size in the buy file, with the same jobs and faults."
                .to_owned()
        }
        Subject::None if !results.bills.is_empty() => {
            "GPU-hours lost to failures, by cause; each loss is simulated packet by packet."
                .to_owned()
        }
        Subject::None if !results.runs.is_empty() || !results.sweeps.is_empty() => {
            "Emulated packet by packet.".to_owned()
        }
        Subject::None if results.is_of_runs_alone() => {
            "The best mapping of the training model.".to_owned()
        }
        Subject::None => "Designs compared with each other, without a fabric file.".to_owned(),
    }
}

fn sources(results: &Results<'_>) -> PageSection {
    let mut section = PageSection::new("sources", "Sources");
    let seed = match results.is_of_runs_alone() {
        true => String::new(),
        false => format!(" with seed {}", results.seed),
    };
    section.verdict = format!(
        "Made by lightloom {}{seed}. The same command and files reproduce this page byte for byte.",
        results.version
    );
    section.table(tables::table("sources", &results.sources));
    for source in &results.sources {
        if let Some(plan) = &source.plan {
            section.note(format!("{} is plan {plan}.", source.name));
        }
    }
    section.note(format!("Command: {}", results.command));
    results.would_add.iter().for_each(|missing| section.note(missing));
    section
}
