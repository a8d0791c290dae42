//! The training step against published measurements. Recomputes every row, holds the mean error of each
//! source against its target, and holds the page in docs/ against what the code says.

#![expect(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test of data outside the project says when it is skipped, and reads it"
)]

use lightloom_emulator::training::calibrated::{
    A100_MEGATRON_DEEPSPEED, A100_MEGATRON_LM_2022, H100_LLAMA_3, H100_NEMO_25_02,
};
use lightloom_emulator::training::cards;
use lightloom_emulator::training::validation::{Case, Source, cases};
use lightloom_emulator::training::validation_page::{errors, page};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/mfu_measured.csv");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/validation-mfu.md");

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
