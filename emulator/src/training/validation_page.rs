//! The page of validation tables, written from the cases so that it cannot drift from the code.

use std::fmt::Write;

use super::claims::{BATCH, Claim, Hiding, claims, sweep};
use super::mapping::Recompute;
use super::mfu::Convention;
use super::search::Found;
use super::validation::{Case, Errors, Source};

const HEAD: &str = "\
# How far the training step is from published measurements

Written by a test (`cargo test -p lightloom-emulator --test training_validation`, `LIGHTLOOM_BLESS=1` to write it anew); not by hand.

A row is `ours` seconds for a step against `measured` seconds. Constants belong to one accelerator and one software
generation ([mfu.md](mfu.md) lists them); half of the rows of a source, drawn by a fixed seed, fit them (marked
`fit`), the other half only judges (marked `judge`). MFU is given as *MFU, full attention*: `3 × forward operations, attention over the
full mask, without recomputation ÷ (seconds × GPUs × peak)`. To recompute one by hand: MFU = operations of a step ÷ (seconds × GPUs × peak), all of which stand in the row.
Where a source prints only TFLOP/s (Llama 3, table 4), its seconds follow from the causal-attention operations of the step.
";

/// The whole page.
#[must_use]
pub fn page(cases: &[Case]) -> String {
    let mut page = String::from(HEAD);
    summary(&mut page, cases);
    study(&mut page);
    for source in Source::ALL {
        rows(&mut page, source, cases);
    }
    page
}

/// Errors of the cases of `source`: fitted, judging, all.
#[must_use]
pub fn errors(source: Source, cases: &[Case]) -> [Errors; 3] {
    let of = |want: Option<bool>| {
        Errors::of(
            cases
                .iter()
                .filter(|case| case.source == source && want.is_none_or(|w| w == case.is_fitted))
                .map(|case| case.error(source.calibration())),
        )
    };
    [of(Some(true)), of(Some(false)), of(None)]
}

fn summary(page: &mut String, cases: &[Case]) {
    page.push_str(
        "\n| source | constants | rows | target | mean error | fit half | judge half | largest | bias |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for source in Source::ALL {
        let [fit, judge, all] = errors(source, cases);
        let signed: Vec<f64> = cases
            .iter()
            .filter(|case| case.source == source)
            .map(|case| case.error(source.calibration()))
            .collect();
        let bias = signed.iter().sum::<f64>() / signed.len().max(1) as f64;
        let percent = |share: f64| format!("{:.2} %", 100.0 * share);
        writeln!(
            page,
            "| {} | `{}` | {} | ≤ {:.0} % | {} | {} | {} | {} | {:+.2} % |",
            source.label(),
            source.calibration().name,
            all.count,
            100.0 * source.target(),
            percent(all.mean),
            percent(fit.mean),
            percent(judge.mean),
            percent(all.max),
            100.0 * bias,
        )
        .expect("a string takes every line");
    }
}

/// The training part of the InfiniteHBD study: its claims, and the sweep behind them.
fn study(page: &mut String) {
    page.push_str(
        "\n## The InfiniteHBD study, training part\n\n\
         Llama-3.1-405B, H100, 2,048 sequences of 8,192 tokens a step at every size; ring of any size at 800 GB/s against DGX with TP of at most 8 at 450 GB/s, \
         both on 50 GB/s a GPU beyond; no context parallelism unless said. Constants `h100/nemo-25.02`. *Read* stands in the paper's abstract; its table could not \
         be read, so what is *recalled* or *inferred* is not the paper's word. How much exchange its simulator hid behind computing could not be read either: \
         the claims stand here twice, with the shares that NeMo hides (82 % of TP's exchange and 79 % of EP's, fitted in groups of up to eight GPUs), and \
         with nothing of them hidden.\n\n\
         | claim | published | ours | verdict |\n| --- | --- | --- | --- |\n",
    );
    for claim in claims() {
        let Claim { claim, published, ours, verdict } = claim;
        writeln!(page, "| {claim} | {published} | {ours} | {} |", verdict.label())
            .expect("a string takes every line");
    }
    page.push_str(
        "\n| GPUs | ring: TP·PP·DP | virtual | MFU, full attention | DGX: TP·PP·DP | virtual | MFU, full attention | gain |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for point in sweep(BATCH, &[1], Hiding::Fitted) {
        let cut = |found: &Found| {
            let m = &found.mapping;
            format!("{}·{}·{} | {}", m.tensor, m.pipeline, m.data, m.virtual_stages)
        };
        writeln!(
            page,
            "| {} | {} | {:.1} % | {} | {:.1} % | {:.2} |",
            point.gpus,
            cut(&point.ring),
            100.0 * point.ring_mfu,
            cut(&point.dgx),
            100.0 * point.dgx_mfu,
            point.gain(),
        )
        .expect("a string takes every line");
    }
}

fn rows(page: &mut String, source: Source, cases: &[Case]) {
    write!(
        page,
        "\n## {}\n\n\
         | row | model | layers | GPUs | TP·CP·PP·DP·EP | virtual | micro | sequences × tokens | recompute | format | operations of a step | peak TFLOP/s | measured s | ours s | error | measured MFU | ours | used to |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        source.label()
    )
    .expect("a string takes every line");
    for case in cases.iter().filter(|case| case.source == source) {
        let ours = case.predict(source.calibration()).step_seconds;
        let flops = Convention::MfuFull.step_flops(&case.model, case.batch, Recompute::None);
        let peak = case.peak_flops();
        let mfu = |seconds: f64| 100.0 * flops / (seconds * case.mapping.gpus() as f64 * peak);
        let m = &case.mapping;
        writeln!(
            page,
            "| {} | {} | {} | {} | {}·{}·{}·{}·{} | {} | {} | {} × {} | {:?} | {:?} | {:.4e} | {:.0} | {:.3} | {:.3} | {:+.1} % | {:.1} % | {:.1} % | {} |",
            case.id, case.model.name, case.model.layers, m.gpus(), m.tensor, m.context, m.pipeline, m.data,
            m.expert, m.virtual_stages, m.micro_batch, case.batch.sequences, case.batch.tokens, m.recompute,
            case.precision, flops, peak / 1e12, case.measured_seconds, ours,
            100.0 * case.error(source.calibration()), mfu(case.measured_seconds), mfu(ours),
            if case.is_fitted { "fit" } else { "judge" },
        )
        .expect("a string takes every line");
    }
}
