// SPDX-License-Identifier: Apache-2.0
//! Duration of DeepEP's exchange of tokens with experts.
//!
//! ```text
//!   normal:       start + step × log2 nodes + max(copies ÷ (SMs × rate), NVLink or NICs)
//!   low latency:  start + step × log2 nodes + bytes ÷ (experts × rate) + max(NVLink, NICs)
//! ```
//! Normal kernels send a token once to each GPU or node with a chosen expert, low-latency kernels once to each expert.
//! Dispatch sends eight bits per value, combine sixteen. `expert.csv` is fitted to 3,000 rows of H200 and GB200 without
//! the normal kernels on eight nodes, which reach only 43 % of their NICs' rate; its later rows are fitted without one
//! generation. A kernel's start is proportional to the square root of the latency that collectives have.

use std::sync::LazyLock;

use serde::Deserialize;

use super::library::{DomainFit, Generation, rows};

/// Share of the NIC rate that the kernels achieve.
const CARD_SHARE: f64 = 0.92;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpertKernel {
    Dispatch,
    Combine,
    LowLatencyDispatch,
    LowLatencyCombine,
}

#[derive(Clone, Copy, Debug)]
pub struct ExpertExchange {
    pub kernel: ExpertKernel,
    /// Tokens of a rank, each sent to `top_k` of `experts`.
    pub tokens: f64,
    pub hidden: f64,
    pub top_k: f64,
    pub experts: f64,
    pub nodes: f64,
    pub gpus_per_node: f64,
    /// SMs that run a normal kernel.
    pub sms: f64,
    pub generation: Generation,
    /// Data-sheet rates of a GPU in bytes per second and direction: inside a node, and of its NIC.
    pub domain_rate: f64,
    pub card_rate: f64,
    pub left_out: Option<Generation>,
}

#[derive(Debug, Deserialize)]
struct KernelFit {
    kernel: ExpertKernel,
    left_out: Option<Generation>,
    start_us: f64,
    expert_us: f64,
    /// Per doubling of the nodes.
    step_us: f64,
    token_us: f64,
    /// Rate of an SM, or of an expert's warps in low-latency kernels.
    gigabytes: f64,
    /// Share of the lane rate.
    share: f64,
}

static FITS: LazyLock<Vec<KernelFit>> = LazyLock::new(|| rows(include_str!("expert.csv")));

impl ExpertExchange {
    pub fn seconds(&self) -> f64 {
        let mut of_kernel = FITS.iter().filter(|fit| fit.kernel == self.kernel);
        let own = of_kernel.clone().find(|fit| fit.left_out == self.left_out);
        // Without another generation to fit to, the constants of all rows are used.
        let fit = own.or(of_kernel.next()).expect("one row per kernel");
        let latency = self.generation.latency(DomainFit::without(None).two_dies).sqrt();
        let ranks = self.nodes * self.gpus_per_node;
        let start = latency * (fit.start_us + fit.expert_us * self.experts / ranks)
            + fit.step_us * self.nodes.log2();
        1e-6 * start + self.sending(fit)
    }

    fn sending(&self, fit: &KernelFit) -> f64 {
        use ExpertKernel::{Dispatch, LowLatencyDispatch};
        let bits_8 = matches!(self.kernel, Dispatch | LowLatencyDispatch);
        let bytes = self.tokens * self.hidden * if bits_8 { 1.0 } else { 2.0 };
        let (gpus, nodes) = (self.gpus_per_node, self.nodes);
        let domain = fit.share * self.generation.lanes() * self.domain_rate;
        let card = CARD_SHARE * self.card_rate;
        let rate = 1e9 * fit.gigabytes;
        if matches!(self.kernel, Dispatch | ExpertKernel::Combine) {
            // Between nodes, half of the SMs forward what the others send.
            let sms = if nodes > 1.0 { self.sms / 2.0 } else { self.sms };
            let copies = bytes * self.reached(nodes * gpus) / (rate * sms);
            let link = if nodes > 1.0 {
                bytes * self.reached(nodes) * (1.0 - 1.0 / nodes) / card
            } else {
                bytes * self.reached(gpus) * (1.0 - 1.0 / gpus) / domain
            };
            return link.max(copies + 1e-6 * fit.token_us * self.tokens / sms);
        }
        let bytes = bytes * self.top_k;
        let inside = bytes / nodes * (1.0 - 1.0 / gpus) / domain;
        let across = if nodes > 1.0 { bytes * (1.0 - 1.0 / nodes) / card } else { 0.0 };
        bytes / (rate * self.experts) + inside.max(across)
    }

    /// Returns the mean number of `places` with at least one of a token's experts.
    fn reached(&self, places: f64) -> f64 {
        places * (1.0 - (1.0 - 1.0 / places).powf(self.top_k))
    }
}
