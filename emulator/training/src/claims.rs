// SPDX-License-Identifier: Apache-2.0
//! Recomputes the training results of the InfiniteHBD study (arXiv 2502.03885, SIGCOMM 2025).
//!
//! Only the abstract's "MFU up to 3.37 times that of DGX with 8 GPUs per node" was available, not the table
//! behind it. The comparison is therefore limited to trends: the growth of the gain over TP ≤ 8 with the number
//! of GPUs at a fixed batch, and the best TP. Each claim states whether its published value was read or recalled.

use serde::Serialize;

use super::architecture::architecture;
use super::calibration::{Calibration, Precision};
use super::cards;
use super::mapping::Batch;
use super::mfu::Convention;
use super::search::{Found, Limits, Search};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    Reproduced,
    ShapeOnly,
    NotReproduced,
    Case,
    Added,
}

impl ClaimVerdict {
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::ShapeOnly => "shape only",
            Self::NotReproduced => "not reproduced",
            Self::Case => "one case",
            Self::Added => "ours alone",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    pub claim: String,
    /// Published value and its provenance: read, recalled or inferred.
    pub published: String,
    pub ours: String,
    pub verdict: ClaimVerdict,
}

/// The study's simulator was not available, so both extremes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hiding {
    /// As in the fitted constants of NeMo, in groups of up to eight GPUs.
    Fitted,
    Nothing,
}

impl Hiding {
    fn constants(self, mut fitted: Calibration) -> Calibration {
        if self == Self::Nothing {
            (fitted.tensor_exposed, fitted.expert_exposed) = (1.0, 1.0);
        }
        fitted
    }

    fn label(self) -> &'static str {
        match self {
            Self::Fitted => "",
            Self::Nothing => ", without overlap",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    pub gpus: u64,
    pub ring: Found,
    pub ring_mfu: f64,
    pub dgx: Found,
    pub dgx_mfu: f64,
}

impl Point {
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.ring_mfu / self.dgx_mfu
    }
}

const GPUS: [u64; 8] = [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072];
/// The recalled batch of the study: 2,048 sequences of 8,192 tokens for any number of GPUs.
pub const BATCH: Batch = Batch { sequences: 2048, tokens: 8192 };

const NO_CONTEXT: [u32; 1] = [1];
const TENSOR_OF_DGX: [u32; 4] = [1, 2, 4, 8];

fn best(
    model: &str,
    arch: &str,
    gpus: u64,
    batch: Batch,
    expert_imbalance: f64,
    (limits, hiding): (Limits, Hiding),
) -> Option<(Found, f64)> {
    let model = cards::model(model).expect("the model is shipped");
    let card = cards::accelerator("h100").expect("h100 is shipped");
    let network = architecture(arch).expect("the architecture exists");
    let search = Search {
        model: &model,
        batch,
        gpus,
        compute: &card.compute(),
        network: &network,
        calibration: &hiding.constants(card.calibration()),
        precision: Precision::Bf16,
        expert_imbalance,
        limits,
    };
    let found = search.run().found.first().copied()?;
    let mfu = Convention::MfuFull.utilisation(
        &model,
        batch,
        found.mapping.recompute,
        gpus,
        card.compute().peak_flops,
        found.step.step_seconds,
    );
    Some((found, mfu))
}

/// Compares Llama-3.1-405B on the ring with DGX at TP ≤ 8. `context`: CP sizes (empty: all).
#[must_use]
pub fn sweep(batch: Batch, context: &[u32], hiding: Hiding) -> Vec<Point> {
    GPUS.into_iter()
        .filter_map(|gpus| {
            let reach = |arch, tensor: &[u32]| {
                let (tensor, context) = (tensor.to_vec(), context.to_vec());
                let limits = Limits { tensor, context, ..Limits::default() };
                best("llama-3.1-405b", arch, gpus, batch, 0.0, (limits, hiding))
            };
            let (ring, ring_mfu) = reach("khop:3", &[])?;
            let (dgx, dgx_mfu) = reach("dgx", &TENSOR_OF_DGX)?;
            Some(Point { gpus, ring, ring_mfu, dgx, dgx_mfu })
        })
        .collect()
}

/// A stand-in model of 1.1 trillion weights on the ring, without and with EP, at 20 % imbalance.
fn experts(gpus: u64, hiding: Hiding) -> Option<(f64, f64)> {
    let limits = |expert: &[u32]| Limits {
        expert: expert.to_vec(),
        context: NO_CONTEXT.to_vec(),
        ..Limits::default()
    };
    let mfu = |expert| best("gpt-moe-1.1t", "khop:3", gpus, BATCH, 0.2, (limits(expert), hiding));
    Some((mfu(&[1])?.1, mfu(&[2, 4, 8])?.1))
}

#[must_use]
pub fn claims() -> Vec<Claim> {
    let mut claims = Vec::new();
    for hiding in [Hiding::Fitted, Hiding::Nothing] {
        let points = sweep(BATCH, &NO_CONTEXT, hiding);
        let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
        let of_hiding = |claim: Claim| {
            let text = format!("{}{}", claim.claim, hiding.label());
            Claim { claim: text, ..claim }
        };
        let all = [largest_gain(last), small_gain(first), growth(&points), best_tensor(&points)];
        claims.extend(all.into_iter().chain(imbalance(hiding)).map(of_hiding));
    }
    claims.extend(context());
    claims.extend(larger_batch());
    claims
}

fn largest_gain(last: &Point) -> Claim {
    let gain = last.gain();
    Claim {
        claim: "highest MFU relative to DGX with 8 GPUs per node (TP ≤ 8)".into(),
        published: "3.37 times (read: abstract)".into(),
        ours: format!(
            "{gain:.2} times at {} GPUs: {:.1} % against {:.1} %",
            last.gpus,
            100.0 * last.ring_mfu,
            100.0 * last.dgx_mfu
        ),
        verdict: ClaimVerdict::Case,
    }
}

fn small_gain(first: &Point) -> Claim {
    Claim {
        claim: "at 1,024 GPUs TP ≤ 8 is nearly as good".into(),
        published: "near 1 (not read, but inferred from a sweep with another model)".into(),
        ours: format!("{:.2} times", first.gain()),
        verdict: if first.gain() < 1.1 {
            ClaimVerdict::Reproduced
        } else {
            ClaimVerdict::NotReproduced
        },
    }
}

fn growth(points: &[Point]) -> Claim {
    let gains: Vec<f64> = points.iter().map(Point::gain).collect();
    // Mappings are discrete, so differences up to 0.01 are noise.
    let grows = gains.windows(2).all(|pair| pair[1] > pair[0] - 0.01);
    let shown: Vec<String> = gains.iter().map(|gain| format!("{gain:.2}")).collect();
    Claim {
        claim: "with a fixed batch the gain grows with the number of GPUs".into(),
        published: "not read; recalled, unconfirmed".into(),
        ours: format!("1,024 to 131,072 GPUs: {}", shown.join(", ")),
        verdict: if grows { ClaimVerdict::Reproduced } else { ClaimVerdict::NotReproduced },
    }
}

fn best_tensor(points: &[Point]) -> Claim {
    let tensor: Vec<u32> = points.iter().map(|point| point.ring.mapping.tensor).collect();
    let grows = tensor.is_sorted() && tensor.contains(&16) && tensor.last() == Some(&64);
    let shown: Vec<String> = tensor.iter().map(ToString::to_string).collect();
    Claim {
        claim: "the best TP grows from 16 to 32 to 64".into(),
        published: "not read; recalled, unconfirmed: 16 to 64".into(),
        ours: format!("1,024 to 131,072 GPUs: {}", shown.join(", ")),
        verdict: match (grows, tensor.first()) {
            (true, Some(16)) => ClaimVerdict::Reproduced,
            (true, _) => ClaimVerdict::ShapeOnly,
            _ => ClaimVerdict::NotReproduced,
        },
    }
}

fn imbalance(hiding: Hiding) -> impl Iterator<Item = Claim> {
    [8192, 131_072].into_iter().filter_map(move |gpus| {
        let (tensor, expert) = experts(gpus, hiding)?;
        Some(Claim {
            claim: format!(
                "at 20 % expert imbalance TP alone is at least as good as EP ({gpus} GPUs)"
            ),
            published: "not read; recalled, unconfirmed; our model is a stand-in".into(),
            ours: format!(
                "TP alone {:.1} %, with EP {:.1} %: {:+.1} %",
                100.0 * tensor,
                100.0 * expert,
                100.0 * (tensor / expert - 1.0)
            ),
            verdict: match tensor / expert {
                ratio if ratio >= 1.0 => ClaimVerdict::Reproduced,
                ratio if ratio >= 0.98 => ClaimVerdict::ShapeOnly,
                _ => ClaimVerdict::NotReproduced,
            },
        })
    })
}

/// The study apparently did not allow context parallelism for DGX.
fn context() -> Option<Claim> {
    let points = sweep(BATCH, &[], Hiding::Fitted);
    let last = points.last()?;
    Some(Claim {
        claim: "the same gain when both sides may use context parallelism".into(),
        published: "nothing".into(),
        ours: format!(
            "{:.2} times at {} GPUs: TP {} CP {} {:.1} % against TP {} CP {} {:.1} %",
            last.gain(),
            last.gpus,
            last.ring.mapping.tensor,
            last.ring.mapping.context,
            100.0 * last.ring_mfu,
            last.dgx.mapping.tensor,
            last.dgx.mapping.context,
            100.0 * last.dgx_mfu
        ),
        verdict: ClaimVerdict::Added,
    })
}

fn larger_batch() -> Option<Claim> {
    let batch = Batch { sequences: 4096, ..BATCH };
    let points = sweep(batch, &NO_CONTEXT, Hiding::Fitted);
    let last = points.last()?;
    Some(Claim {
        claim: "the same gain with twice the batch, 4,096 sequences".into(),
        published: "nothing".into(),
        ours: format!("{:.2} times at {} GPUs", last.gain(), last.gpus),
        verdict: ClaimVerdict::Added,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_reproduces_the_shape_of_the_study() {
        let points = sweep(BATCH, &NO_CONTEXT, Hiding::Fitted);
        assert_eq!(points.len(), GPUS.len());
        assert!(points[0].gain() < 1.1, "{}", points[0].gain());
        let last = points[points.len() - 1];
        assert!(last.gain() > 3.0, "{}", last.gain());
        assert_eq!(last.ring.mapping.tensor, 64);
        for point in &points {
            assert!(point.dgx.mapping.tensor <= 8);
            assert!(point.gain() > 1.0);
        }
    }
}
