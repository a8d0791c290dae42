//! The page of validation tables, written from the cases so that it cannot drift from the code.

use std::fmt::Write;

use super::claims::{BATCH, Claim, Hiding, claims, sweep};
use super::flops::{self, Mask};
use super::mapping::Recompute;
use super::mfu::Convention;
use super::model::{Activation, Attention};
use super::search::Found;
use super::validation::{Case, Errors, Source};

/// The row that is computed by hand on the page: GPT-3 175B with selective recomputation, where all four conventions differ.
const EXAMPLE: &str = "m0026";

const HEAD: &str = "\
# How far the training step is from published measurements

Written by a test (`cargo test -p lightloom-training --test training_validation`, `LIGHTLOOM_BLESS=1` to write it anew); not by hand.

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
    by_hand(&mut page, cases);
    models(&mut page, cases);
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

/// One row with every step of the calculation, in each convention.
fn by_hand(page: &mut String, cases: &[Case]) {
    let Some(case) = cases.iter().find(|case| case.id == EXAMPLE) else { return };
    let (model, batch) = (&case.model, case.batch);
    let Attention::Grouped { query_heads, key_value_heads, head_size, .. } = model.attention else {
        return;
    };
    let (l, h, s) = (model.layers, model.hidden, batch.tokens);
    let (a, k, d) = (query_heads, key_value_heads, head_size);
    let (f, v) = (model.feed_forward.width, model.vocabulary);
    let products = flops::attention_projections(model) + flops::dense_feed_forward(model);
    let output = flops::output_layer(model);
    let core = |mask| flops::attention_core(model, s, mask);
    let (gpus, peak) = (case.mapping.gpus(), case.peak_flops() / 1e12);
    write!(
        page,
        "\n## One row by hand\n\n\
         Row {EXAMPLE}: {}, L = {l} layers, h = {h}, a = {a} heads, k = {k} key-value heads of d = {d}, f = {f} (GELU), V = {v}; {} sequences of s = {s} tokens \
         in {:.3} s on {gpus} GPUs of {peak:.0} TFLOP/s; recomputed: {:?} (the attention core again).\n\n\
         * projections and feed-forward, forward, a token and layer: 2·h·d·(a + 2k) + 2·a·d·h + 4·h·f = {products:.6e}\n\
         * attention core: full 4·s·a·d = {:.6e}; causal, half of it, {:.6e}\n\
         * output layer: 2·h·V = {output:.6e}\n\
         * forward, a token: L·(products + core) + output; a step is three forward passes, and the core of every layer once more where recomputation counts, for {} · {s} tokens\n\n\
         | convention | forward, a token | recomputed, a token | operations of the step | ÷ (seconds · GPUs · peak) |\n| --- | --- | --- | --- | --- |\n",
        model.name,
        batch.sequences,
        case.measured_seconds,
        case.mapping.recompute,
        core(Mask::Full),
        core(Mask::Causal),
        batch.sequences,
    )
    .expect("a string takes every line");
    for convention in Convention::ALL {
        let mask = match convention {
            Convention::MfuFull | Convention::HfuFull => Mask::Full,
            Convention::MfuCausal | Convention::HfuCausal => Mask::Causal,
        };
        let forward = flops::forward_per_token(model, s, mask);
        let all = convention.step_flops(model, batch, case.mapping.recompute);
        let again = all / batch.total_tokens() - 3.0 * forward;
        let share = all / (case.measured_seconds * gpus as f64 * peak * 1e12);
        writeln!(
            page,
            "| {} | {forward:.6e} | {again:.6e} | {all:.6e} | {:.2} % |",
            convention.label(),
            100.0 * share
        )
        .expect("a string takes every line");
    }
}

/// The dimensions behind the operations of every row.
fn models(page: &mut String, cases: &[Case]) {
    page.push_str(
        "\n## Dimensions of the models\n\n\
         Layers stand in the row. Operations of a step = 3 · (layers · (2·h·d·(a + 2k) + 2·a·d·h + 4·s·a·d + feed-forward) + 2·h·V) · sequences · s, with feed-forward 4·h·f (GELU), \
         6·h·f (SwiGLU), or top_k·6·h·f of the experts.\n\n\
         | model | h | a | k | d | f | activation | experts, top_k | V |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let mut seen = std::collections::BTreeSet::new();
    for case in cases {
        let model = &case.model;
        let Attention::Grouped { query_heads, key_value_heads, head_size, .. } = model.attention
        else {
            continue;
        };
        let (width, experts) = match &model.feed_forward.experts {
            Some(experts) => (experts.width, format!("{}, {}", experts.count, experts.top_k)),
            None => (model.feed_forward.width, "-".to_owned()),
        };
        let activation = match model.feed_forward.activation {
            Activation::Gelu => "GELU",
            Activation::Swiglu => "SwiGLU",
        };
        let line = format!(
            "| {} | {} | {query_heads} | {key_value_heads} | {head_size} | {width} | {activation} | {experts} | {} |\n",
            model.name, model.hidden, model.vocabulary
        );
        if seen.insert(line.clone()) {
            page.push_str(&line);
        }
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
