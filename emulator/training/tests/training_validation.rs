//! The training step against published measurements. Recomputes every row, holds the mean error of each
//! source against its target, and holds the page in docs/ against what the code says.

#![expect(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test of data outside the project says when it is skipped, and reads it"
)]

use lightloom_training::calibrated::{
    A100_MEGATRON_DEEPSPEED, A100_MEGATRON_LM_2022, H100_LLAMA_3, H100_NEMO_25_02,
};
use lightloom_training::cards;
use lightloom_training::validation::{Case, Source, cases};
use lightloom_training::validation_page::{errors, page};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/mfu_measured.csv");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/validation-mfu.md");

fn published() -> Option<Vec<Case>> {
    let table = std::fs::read_to_string(TABLE).ok();
    if table.is_none() {
        eprintln!("skipped: no ../shared/data");
    }
    table.map(|table| cases(&table))
}

#[test]
fn the_mean_error_of_every_source_is_within_its_target() {
    let Some(cases) = published() else { return };
    for (source, count) in Source::ALL.into_iter().zip([55, 8, 34, 18, 3]) {
        let [_, judge, all] = errors(source, &cases);
        assert_eq!(all.count, count, "{source:?}");
        assert!(all.mean <= source.target(), "{source:?}: {:.4}", all.mean);
        assert!(judge.mean <= source.target(), "{source:?}, unseen half: {:.4}", judge.mean);
    }
}

#[test]
fn the_page_of_validation_tables_is_what_the_code_computes() {
    let Some(cases) = published() else { return };
    let ours = page(&cases);
    if std::env::var_os("LIGHTLOOM_BLESS").is_some() {
        std::fs::write(PAGE, &ours).expect("docs/ is writable");
    }
    let kept = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(kept == ours, "docs/validation-mfu.md is out of date: run with LIGHTLOOM_BLESS=1");
}

#[test]
fn no_constant_exceeds_what_the_chip_was_measured_at() {
    for (card, set) in [
        ("a100", A100_MEGATRON_DEEPSPEED),
        ("a100", A100_MEGATRON_LM_2022),
        ("h100", H100_NEMO_25_02),
        ("h100", H100_LLAMA_3),
    ] {
        let best = cards::accelerator(card).unwrap().best_gemm_efficiency;
        let best: Vec<f64> = best.values().copied().collect();
        assert!(set.gemm_efficiency <= best[0], "{}", set.name);
        assert!(best.len() < 2 || set.gemm_efficiency_fp8 <= best[1], "{}", set.name);
        for share in [set.memory_efficiency, set.tensor_exposed, set.network.domain] {
            assert!((0.0..=1.0).contains(&share), "{}", set.name);
        }
    }
}

/// The cells of a row of a table in Markdown.
fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// Operations of a step from what stands on the page alone; shares no code with the model.
fn operations(dimensions: &[&str], layers: f64, sequences: f64, tokens: f64) -> f64 {
    let number = |cell: &str| cell.parse::<f64>().expect("a number");
    let [h, a, k, d, f] = [1, 2, 3, 4, 5].map(|cell| number(dimensions[cell]));
    let top_k = dimensions[7].split(", ").nth(1).map_or(1.0, number);
    let matrices = if dimensions[6] == "GELU" { 4.0 } else { 6.0 };
    let layer = 2.0 * h * d * (a + 2.0 * k)
        + 2.0 * a * d * h
        + 4.0 * tokens * a * d
        + top_k * matrices * h * f;
    3.0 * (layers * layer + 2.0 * h * number(dimensions[8])) * sequences * tokens
}

#[test]
fn a_reader_can_recompute_every_utilisation_from_the_page() {
    let page = std::fs::read_to_string(PAGE).expect("the page is part of the project");
    let is_row = |line: &&str| line.starts_with("| m0");
    let models: Vec<Vec<&str>> = page
        .lines()
        .skip_while(|line| !line.starts_with("## Dimensions"))
        .filter(|line| line.starts_with('|'))
        .map(cells)
        .take_while(|cells| cells.len() == 9)
        .collect();
    let mut rows = 0;
    for line in page.lines().filter(is_row) {
        let row = cells(line);
        let number = |cell: usize| row[cell].parse::<f64>().expect("a number");
        let (sequences, tokens) = row[7].split_once(" × ").expect("sequences and tokens");
        let [sequences, tokens] =
            [sequences, tokens].map(|text| text.parse::<f64>().expect("a number"));
        let stated = number(10);
        let known = models.iter().filter(|model| model[0] == row[1]).any(|model| {
            (operations(model, number(2), sequences, tokens) / stated - 1.0).abs() < 1e-4
        });
        assert!(known, "{line}");
        for (seconds, share) in [(12, 15), (13, 16)] {
            let ours = 100.0 * stated / (number(seconds) * number(3) * number(11) * 1e12);
            let printed: f64 =
                row[share].trim_end_matches(" %").parse().expect("a share in per cent");
            assert!((ours - printed).abs() < 0.06, "{line}: {ours}");
        }
        rows += 1;
    }
    assert_eq!(rows, 118);
}
