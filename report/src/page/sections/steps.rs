// SPDX-License-Identifier: Apache-2.0
//! Shows step times of the training model and of a live demonstration.

use super::super::document::{
    Bar, FirstScreen, Headline, PageDocument, PageSection, Picture, Tone,
};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::{LiveRun, TrainingResult};
use super::super::tables;

const MOST_ROWS: usize = 20;

const PARTS: [(&str, Tone, &str); 9] = [
    ("compute", Tone::Own, "compute_seconds"),
    ("TP exposed", Tone::Lost, "tp_exposed_seconds"),
    ("CP exposed", Tone::Lost, "cp_exposed_seconds"),
    ("EP exposed", Tone::Lost, "ep_exposed_seconds"),
    ("DP exposed", Tone::Lost, "dp_exposed_seconds"),
    ("PP bubble", Tone::Lost, "pp_bubble_seconds"),
    ("PP transfer", Tone::Lost, "pp_transfer_seconds"),
    ("optimizer", Tone::Other, "optimizer_seconds"),
    ("jitter", Tone::Other, "jitter_seconds"),
];

fn bar(name: &str, tone: Tone, seconds: f64) -> Bar {
    Bar::new(name, tone, ShownQuantity::new(seconds, ShownUnit::Seconds))
}

pub(in super::super) fn add_training(report: &mut PageDocument, training: &TrainingResult) {
    let title = format!("Training {} on {}", training.model, training.accelerator);
    let mut section = PageSection::new("training", title);
    section.table(tables::table("training", training.rows.iter().take(MOST_ROWS)));
    section.note(format!(
        "A step processes {} sequences of {} tokens; {} mappings were tried.",
        fixed(training.batch_sequences as f64, 0),
        fixed(training.sequence_tokens as f64, 0),
        fixed(training.mappings_tried as f64, 0)
    ));
    let mut first =
        FirstScreen { verdict: "No mapping fits.".to_owned(), ..FirstScreen::default() };
    if let Some(best) = training.rows.first() {
        let number = |key: &str| best[key].as_f64().unwrap_or_default();
        let word = |key: &str| best[key].as_str().unwrap_or_default();
        let step = ShownQuantity::new(number("step_seconds"), ShownUnit::Seconds);
        let mfu = ShownQuantity::share(number("mfu"));
        let mapping = format!("TP {}, PP {}, DP {}", best["tp"], best["pp"], best["dp"]);
        first.verdict = format!(
            "{} on {} {} GPUs ({}) reaches {} MFU: {} per step with {mapping}.",
            training.model,
            fixed(number("gpus"), 0),
            training.accelerator,
            word("arch"),
            mfu.show(),
            step.show(),
        );
        let memory = ShownQuantity::new(number("memory_bytes"), ShownUnit::Bytes);
        first.figures = vec![
            Headline::new("MFU", mfu, word("mfu_convention"), None),
            Headline::new("step time", step, mapping, None),
            Headline::new("memory", memory, "per GPU", None),
        ];
        let parts = PARTS.map(|(name, tone, key)| bar(name, tone, number(key)));
        let parts = parts.into_iter().filter(|bar| bar.length > 0.0);
        let caption = "Parts of the best mapping's step. Exposed communication, in orange, does not overlap with compute.";
        first.picture =
            Picture::bars("training-step", "where the time of a step goes", parts, caption);
    }
    report.add(first, section);
}

const LEADING: [(&str, &str); 3] = [
    ("light moves", "from the node's failure"),
    ("drained in Slurm", "from the node's failure"),
    ("emulated run", "the same fault, packet by packet"),
];

pub(in super::super) fn add_live(report: &mut PageDocument, live: &LiveRun) {
    let mut section = PageSection::new("live", "Step by step");
    section.note(
        "Measured times with emulated devices, the shipped daemon and, if installed, a real scheduler on this machine.",
    );
    if let Some(lacks) = &live.lacks {
        section.note(format!("No scheduler was used: {lacks}."));
    }
    section.table(tables::table("live", &live.steps));
    section.table(tables::table("digests", &live.digests));
    let leading = LEADING.iter().filter_map(|(label, beside)| {
        let step = live.steps.iter().find(|step| step.name == *label)?;
        let took = ShownQuantity::new(step.took_ms / 1e3, ShownUnit::Seconds);
        Some(Headline::new(label, took, *beside, None))
    });
    let bars = live.steps.iter().map(|step| bar(&step.name, Tone::Own, step.took_ms / 1e3));
    let caption = "Light, drain and topology are timed from the node's failure, every other step from its own start.";
    let picture = Picture::bars("live-bars", "time of each step", bars, caption);
    let first = FirstScreen { verdict: live.answer.clone(), figures: leading.collect(), picture };
    report.add(first, section);
}
