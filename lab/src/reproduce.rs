// SPDX-License-Identifier: Apache-2.0

mod measured;
mod seeds;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_fabric::trace::{FaultTrace, Observation};
use lightloom_planner::joint;
use lightloom_planner::rfabric::phases::Phase;
use lightloom_study::reproduce::{
    Claim, Inputs as ClaimInputs, MFU, Outcome as Departures, PublishedRange, PublishedStep,
    SentenceVerdict, Verdict, Why, assumption, explain, infinitehbd, opus, rfabric,
    seeds as seed_claims, sentences, summary, why_infinitehbd, why_rfabric,
};
use lightloom_study::results::{REPRODUCE_SCHEMA, ReproduceResult};
use lightloom_training::gain::{BATCH, Hiding, sweep};
use lightloom_training::mapping::Batch;
use lightloom_units::seed::Seed;

use crate::cards::read_runs;
use crate::designs::prices;
use lightloom::output::{self, VerbOutcome};
use lightloom::result::ResultFormat;
use lightloom::shipped;
use lightloom::table::TextTable;
use lightloom::trace;
use seeds::why_seeds;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom reproduce infinitehbd --faults fault_trace.json
  lightloom reproduce infinitehbd --faults fault_trace.json --format markdown > docs/validation.md
  lightloom reproduce infinitehbd --faults fault_trace.json --format csv > docs/validation.csv
  lightloom reproduce opus --runs opus_perlmutter_64.csv
  lightloom reproduce seeds --why
  lightloom reproduce mfu

A published sentence is reproduced, in part, contradicted, undetermined or not computed, as docs/validation.md
defines them. Exit status 1 if one is contradicted or another figure differs by more than its tolerance.")]
pub(crate) struct Arguments {
    study: PublishedStudy,
    /// The public fault trace of InfiniteHBD (docs/traces.md says where it is).
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Tables of published runs (CSV) for `mfu` and `opus` (steps) and `collectives`. For `mfu`,
    /// markdown and csv are docs/validation-mfu.md and docs/validation-mfu.csv.
    #[arg(long, value_delimiter = ',', value_name = "FILE")]
    runs: Vec<PathBuf>,
    /// Price file (YAML) [default: the shipped topologies/prices.yaml].
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Show which choices that the papers leave open reach the published ranges.
    #[arg(long)]
    why: bool,
    /// Number of random assignments of trace servers to nodes.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = lightloom::number::whole::<u64>(2..=100_000))]
    samples: u64,
    /// Random seed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = lightloom::number::whole::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Output format; `markdown` is a page with the essentials, `csv` has every row.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ResultFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PublishedStudy {
    /// InfiniteHBD (arXiv 2502.03885): fault trace, GPU waste, cross-ToR traffic, cost and power.
    Infinitehbd,
    /// RFabric and similar: circuits that follow phases, delays, performance per cost.
    Rfabric,
    /// Photonic rails (arXiv 2602.12521): a training step by switching time, and when switching pays.
    Opus,
    /// Systems for reinforcement learning and serving: OrchestrRL (arXiv 2601.01209), StreamRL
    /// (arXiv 2504.15930) and others.
    Seeds,
    /// The training part of InfiniteHBD: MFU by number of GPUs.
    Mfu,
    /// Measured collectives and their closed forms; needs `--runs`.
    Collectives,
}

impl PublishedStudy {
    fn reads_runs(self) -> bool {
        matches!(self, Self::Mfu | Self::Opus | Self::Collectives)
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    anyhow::ensure!(
        arguments.runs.is_empty() || arguments.study.reads_runs(),
        "--runs applies only to `lightloom reproduce` with `mfu`, `opus` and `collectives`: omit it"
    );
    anyhow::ensure!(
        !arguments.why
            || arguments.study == PublishedStudy::Mfu && arguments.runs.is_empty()
            || !arguments.study.reads_runs(),
        "--why applies only to studies with published sentences: omit it"
    );
    let mut inputs = Inputs::new();
    let prices = prices(arguments.prices.as_deref(), &mut inputs)?;
    // Before the computation, which takes seconds.
    let trace = arguments.faults.as_ref();
    let trace: Option<FaultTrace> =
        trace.map(|path| trace::read(path, Observation::default(), &mut inputs)).transpose()?;
    let (claims, why) = match arguments.study {
        PublishedStudy::Infinitehbd => {
            let mut why = why_infinitehbd(&prices, Seed(arguments.seed));
            why.push(why_mfu());
            let (samples, seed) = (arguments.samples, Seed(arguments.seed));
            let inputs = ClaimInputs { trace: trace.as_ref(), prices: &prices, samples, seed };
            (infinitehbd(&inputs)?, why)
        }
        PublishedStudy::Rfabric => {
            let (network, phases) = shipped_rfabric()?;
            let why = why_rfabric(&network, &phases, &prices);
            let why = why.context("the price file lacks a part")?;
            (rfabric(&network, &phases, &prices), why)
        }
        PublishedStudy::Opus => (opus(&published_steps(&arguments.runs, &mut inputs)?), Vec::new()),
        PublishedStudy::Seeds => {
            let why = why_seeds();
            (seed_claims(&why), why)
        }
        PublishedStudy::Collectives => {
            return measured::collectives(&arguments.runs, arguments.format);
        }
        PublishedStudy::Mfu if arguments.runs.is_empty() => (Vec::new(), vec![why_mfu()]),
        PublishedStudy::Mfu => return measured::published(&arguments.runs, arguments.format),
    };
    let sentences = sentences(&claims, &why);
    let is_bad =
        claims.iter().any(|claim| claim.sentence.is_none() && claim.verdict == Verdict::Differs)
            || sentences.iter().any(|one| one.verdict == SentenceVerdict::Contradicted);
    let study = arguments.study.to_possible_value();
    let document = ReproduceResult {
        made: Provenance::of(REPRODUCE_SCHEMA, inputs),
        study: study.map(|value| value.get_name().to_owned()).unwrap_or_default(),
        seed: arguments.seed,
        samples: arguments.samples,
        sentences,
        why: if arguments.why { why } else { Vec::new() },
        claims,
    };
    match arguments.format {
        ResultFormat::Markdown => {
            output::print(&markdown(&document, arguments.faults.as_deref()))?;
        }
        format => format.print(&document, "claims", || text(&document))?,
    }
    Ok(if is_bad { VerbOutcome::Bad } else { VerbOutcome::Good })
}

fn published_steps(tables: &[PathBuf], inputs: &mut Inputs) -> anyhow::Result<Vec<PublishedStep>> {
    let mut steps = Vec::new();
    for (place, path) in tables.iter().enumerate() {
        let table = read_runs(path, place, inputs)?;
        let mut reader =
            csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(table.as_bytes());
        let rows: Result<Vec<PublishedStep>, _> = reader.deserialize().collect();
        let help = "help: the columns are switching_ms, provision_s and baseline_s";
        steps.extend(rows.with_context(|| format!("{}: {help}", path.display()))?);
    }
    Ok(steps)
}

pub(crate) fn why_mfu() -> Why {
    let hiding = [(Hiding::Fitted, "as measured with NeMo"), (Hiding::Nothing, "none")];
    let batch = [(1, "2,048 sequences"), (2, "4,096 sequences")];
    let context: [(&[u32], &str); 2] = [(&[1], "none"), (&[], "as best for each")];
    explain(
        "InfiniteHBD: MFU ÷ that of DGX with TP ≤ 8, at most",
        Some(MFU),
        PublishedRange::times(3.27, 3.47),
        vec![
            assumption("exchange hidden", &hiding),
            assumption("batch", &batch),
            assumption("context parallelism", &context),
        ],
        |choice| {
            let sequences = BATCH.sequences * batch[choice[1]].0;
            let points =
                sweep(Batch { sequences, ..BATCH }, context[choice[2]].0, hiding[choice[0]].0);
            points.iter().map(|point| point.gain).fold(f64::NAN, f64::max)
        },
    )
}

fn shipped_rfabric() -> anyhow::Result<(ReconfigurableFatTree, Vec<Phase>)> {
    let (fabric, mistakes) = lightloom_planner::load(
        "rfabric-2048.yaml",
        shipped::RFABRIC_2048.as_bytes(),
        &mut |name: &str| Err(format!("the shipped file contains no {name}")),
    );
    output::diagnostics(&mistakes);
    let fabric = fabric.ok_or(output::InputRefused)?;
    let network = fabric.dcn.circuits().context("the shipped file has optical switches")?;
    Ok((network.clone(), joint::phases(&fabric, &[])?))
}

fn sections(claims: &[Claim]) -> impl Iterator<Item = &[Claim]> {
    claims.chunk_by(|a, b| a.section == b.section)
}

fn cells(claim: &Claim) -> [String; 4] {
    let ours = claim.ours.map_or("-".to_owned(), |ours| claim.unit.show(ours));
    let published = claim.published.show(claim.unit);
    [published, claim.published.show_tolerance(claim.unit), ours, claim.verdict.to_string()]
}

fn text(document: &ReproduceResult) -> String {
    let mut text = String::new();
    if !document.sentences.is_empty() {
        let sentences: String = document.sentences.iter().map(|one| format!("{one}\n")).collect();
        let _ = writeln!(text, "{}\n\n{sentences}", summary(&document.sentences));
    }
    for section in sections(&document.claims) {
        let mut table =
            TextTable::new(["claim", "published", "tolerance", "ours", "verdict", "label"]);
        for claim in section {
            let label = claim.label.name().to_owned();
            let cells = cells(claim).into_iter().chain([label]);
            table.row(std::iter::once(claim.claim.clone()).chain(cells));
        }
        let _ = write!(text, "{}\n\n{table}", section[0].section);
        for (index, (claim, note)) in notes(section).enumerate() {
            let same = notes(section).filter(|(_, other)| *other == note).count();
            let first = notes(section).position(|(_, other)| other == note) == Some(index);
            let _ = match (same, first) {
                (1, _) => writeln!(text, "  {claim}: {note}"),
                (_, true) => writeln!(text, "  {same} of these: {note}"),
                (_, false) => Ok(()),
            };
        }
        text.push('\n');
    }
    document.why.iter().for_each(|why| text += &explained(why));
    if !matches!(document.study.as_str(), "opus" | "seeds") {
        let _ = writeln!(text, "{} samples, seed {}", document.samples, document.seed);
    }
    text
}

const MOST_SETS: usize = 8;

fn explained(why: &Why) -> String {
    let PublishedRange { low, high, unit, .. } = why.published;
    let [ours, least, most] =
        [why.ours, why.least, why.most].map(|figure| format!("{figure:.2}{unit}"));
    let mut text = format!(
        "Why: {} (published {low}{unit} to {high}{unit}, ours {ours})\n\n\
         {} of {} combinations {} are within this range; \
         all combinations range from {least} to {most}. We use the first option of each choice:\n",
        why.claim,
        why.within,
        why.combinations,
        match why.sentence {
            Some(_) => "of the choices that the paper leaves open",
            None => "of these assumptions, some of which differ from the paper's",
        },
    );
    for one in &why.assumptions {
        let _ = writeln!(text, "  {}: {}", one.about, one.choices.join(", "));
    }
    let mut alone = TextTable::new(["one departure", "figure"]);
    for outcome in &why.alone {
        alone.row([together(outcome), format!("{:.2}{unit}", outcome.figure)]);
    }
    let mut sets = TextTable::new(["smallest set of departures that reaches the range", "figure"]);
    for same in why.minimal.chunk_by(|a, b| a.departures.len() == b.departures.len()) {
        for outcome in same.iter().take(MOST_SETS) {
            sets.row([together(outcome), format!("{:.2}{unit}", outcome.figure)]);
        }
        if same.len() > MOST_SETS {
            let more = same.len() - MOST_SETS;
            let count = same[0].departures.len();
            sets.row([format!("and {more} more of {count}"), String::new()]);
        }
    }
    let _ = write!(text, "\n{alone}\n{sets}\n");
    if !why.never.is_empty() {
        let never: Vec<String> =
            why.never.iter().map(|one| format!("{} {}", one.about, one.choice)).collect();
        let _ = writeln!(text, "Outside the range for every other choice: {}\n", never.join("; "));
    }
    text
}

fn together(outcome: &Departures) -> String {
    if outcome.departures.is_empty() {
        return "none".to_owned();
    }
    let each = outcome.departures.iter().map(|one| format!("{} {}", one.about, one.choice));
    each.collect::<Vec<_>>().join(", ")
}

fn notes(claims: &[Claim]) -> impl Iterator<Item = (&str, &str)> {
    claims.iter().filter_map(|claim| Some((claim.claim.as_str(), claim.note.as_deref()?)))
}

/// Shows claims in full only if they differ or quote published sentences.
fn markdown(document: &ReproduceResult, faults: Option<&Path>) -> String {
    let study = &document.study;
    // Omit the folder, because the page must not depend on this machine.
    let name = faults.and_then(Path::file_name).map(|name| name.to_string_lossy());
    let trace = name.map_or(String::new(), |name| format!(" --faults {name}"));
    let mut text = format!(
        "# Published claims and our results: {study}\n\n\
         This page is generated by `lightloom reproduce {study}{trace} --samples {} --seed {} --format markdown`. \
         Do not edit it. `--format csv` writes every row; [validation.csv](validation.csv) lists the rows of `infinitehbd`. \
         [validation-not-computed.csv](validation-not-computed.csv) lists claims that lightloom cannot check.\n\n\
         Other pages compare training steps with measurements ([validation-mfu](validation-mfu.md)) \
         and the packet engine with closed forms, a second engine and ns-3 ([validation-engine](validation-engine.md)).\n\n{}.\n\n{}\n{}\n{LABELS}",
        document.samples,
        document.seed,
        summary(&document.sentences),
        document.sentences.iter().map(|one| format!("- {one}\n")).collect::<String>(),
        verdicts()
    );
    let mut in_full: Vec<&Claim> = document.claims.iter().collect();
    in_full.retain(|claim| claim.sentence.is_some() || claim.verdict == Verdict::Differs);
    text.push_str(
        "\n## Claims from published sentences, and claims that differ\n\n\
         | claim | label | published | tolerance | ours | verdict |\n\
         | --- | --- | ---: | ---: | ---: | --- |\n",
    );
    for claim in &in_full {
        let [published, tolerance, ours, verdict] = cells(claim);
        let (label, claim) = (claim.label.name(), &claim.claim);
        let _ = writeln!(
            text,
            "| {claim} | {label} | {published} | {tolerance} | {ours} | {verdict} |"
        );
    }
    let noted = in_full.iter().filter_map(|claim| Some((&claim.claim, claim.note.as_ref()?)));
    for (index, (claim, note)) in noted.enumerate() {
        let lead = if index == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{lead}- {claim}: {note}");
    }
    text.push_str(
        "\n## Other rows by section\n\n\
         | section | label | rows | agree | largest deviation, % of tolerance |\n\
         | --- | --- | ---: | ---: | ---: |\n",
    );
    let others: Vec<&Claim> = document.claims.iter().filter(|one| one.sentence.is_none()).collect();
    for same in others.chunk_by(|a, b| (a.section, a.label) == (b.section, b.label)) {
        let agree = same.iter().filter(|claim| claim.verdict == Verdict::Reproduced).count();
        let furthest = same.iter().filter_map(|claim| claim.share_of_tolerance());
        let furthest = furthest.reduce(f64::max);
        let furthest = furthest.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        let (section, label) = (same[0].section, same[0].label.name());
        let _ = writeln!(text, "| {section} | {label} | {} | {agree} | {furthest} |", same.len());
    }
    text
}

fn verdicts() -> String {
    let rows = SentenceVerdict::ALL.map(|one| format!("| {one} | {} |\n", one.meaning())).concat();
    format!("| of a sentence | meaning |\n| --- | --- |\n{rows}")
}

const LABELS: &str = "\
| label | meaning |
| --- | --- |
| read | read in a public source (abstract, data sheet) |
| verbal statement, our range | a statement read in a public source; the range that counts as agreeing is ours |
| from the public trace | computed from the authors' public fault trace by another program |
";
