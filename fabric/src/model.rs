// SPDX-License-Identifier: Apache-2.0
//! Transformer dimensions, parameter counts and model files.

use serde::{Deserialize, Serialize};

use crate::document::{self, Check, Diagnostic, codes};

/// A transformer to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Name, for example `llama-3.1-405b`.
    pub name: String,
    /// Source of the dimensions and how certain they are.
    pub source: String,
    /// Transformer layers, without multi-token-prediction layers. With `state_space`, each
    /// attention, Mamba-2 and feed-forward block is a layer.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Vocabulary size.
    pub vocabulary: u32,
    /// Attention of every layer.
    pub attention: Attention,
    /// Feed-forward block of every layer.
    pub feed_forward: FeedForward,
    /// Mamba-2 layers of a hybrid model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_space: Option<StateSpace>,
    /// Layers whose tokens attend only to the tokens just before them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Multi-token-prediction depth. A level adds a layer, a `2h×h` projection and an output layer.
    #[serde(default)]
    pub prediction_depths: u32,
}

/// Sliding-window attention.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Number of tokens that a token attends to, including itself.
    pub tokens: u32,
    /// Number of layers with the window.
    pub layers: u32,
}

/// The attention mechanism of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Attention {
    /// Multi-head, grouped-query or multi-query attention. With `query_rank`, also multi-matrix
    /// factorisation attention, which factors the query projection through a low rank.
    Grouped {
        /// Number of query heads.
        query_heads: u32,
        /// Number of key and value heads.
        key_value_heads: u32,
        /// Width of a head.
        head_size: u32,
        /// Rank of the factored query projection, if it is factored.
        #[serde(default)]
        query_rank: Option<u32>,
    },
    /// Multi-head latent attention in its training form.
    Latent {
        /// Number of heads.
        heads: u32,
        /// Rank of the compressed query.
        query_rank: u32,
        /// Rank of the compressed key and value.
        key_value_rank: u32,
        /// Width of a head's part without position encoding.
        plain_size: u32,
        /// Width of a head's part with rotary position encoding.
        rotary_size: u32,
        /// Width of a value head.
        value_size: u32,
    },
}

/// The feed-forward block of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeedForward {
    /// Inner width of the dense layers.
    pub width: u32,
    /// Activation function. `gelu` and `squared-relu` use two matrices, and `swiglu` uses three.
    pub activation: Activation,
    /// Mixture of experts, if the model has one.
    #[serde(default)]
    pub experts: Option<Experts>,
}

/// Activation function, which determines the matrices and memory traffic of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// Two matrices (up, down), in models from when dropout was common.
    Gelu,
    /// Two matrices (up, down).
    SquaredRelu,
    /// Three matrices (gate, up, down).
    Swiglu,
    /// SwiGLU with biases and clamping, as in gpt-oss; assumes no fused kernel.
    SwigluClamped,
}

impl Activation {
    /// Returns the number of matrices in a feed-forward block.
    pub fn matrices(self) -> f64 {
        match self {
            Self::Gelu | Self::SquaredRelu => 2.0,
            Self::Swiglu | Self::SwigluClamped => 3.0,
        }
    }
}

/// The Mamba-2 layers of a hybrid model. Layers that are neither Mamba-2 nor attention layers are
/// feed-forward layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateSpace {
    /// Number of Mamba-2 layers.
    pub layers: u32,
    /// Number of attention layers.
    pub attention_layers: u32,
    /// Heads of a Mamba-2 layer.
    pub heads: u32,
    /// Width of a head.
    pub head_size: u32,
    /// State values per channel of a head.
    pub state_size: u32,
    /// Groups of heads that share the input and output projections of the state (B and C).
    pub groups: u32,
    /// Kernel size of the convolution, in tokens.
    #[serde(default = "four")]
    pub convolution: u32,
    /// Tokens that the scan processes per chunk.
    #[serde(default = "chunk")]
    pub chunk: u32,
}

const fn four() -> u32 {
    4
}

const fn chunk() -> u32 {
    128
}

impl StateSpace {
    /// Returns the combined width of all heads.
    pub fn inner(&self) -> f64 {
        f64::from(self.heads) * f64::from(self.head_size)
    }
    /// Returns the width of the convolution's input.
    pub fn convolved(&self) -> f64 {
        self.inner() + 2.0 * f64::from(self.groups) * f64::from(self.state_size)
    }
    /// Returns the width of the input projection: the gate, the convolution input and a step size per head.
    pub fn projected(&self) -> f64 {
        self.inner() + self.convolved() + f64::from(self.heads)
    }
    /// Returns the number of parameters in one layer.
    pub fn parameters(&self, hidden: u32) -> f64 {
        let h = f64::from(hidden);
        h * (self.projected() + self.inner())
            + self.convolved() * f64::from(self.convolution)
            + 3.0 * f64::from(self.heads)
            + self.inner()
    }
    /// Returns the forward operations per token in the scan (Megatron-LM, `mamba_layer_flops`).
    pub fn scan_operations(&self) -> f64 {
        7.0 * self.inner() * f64::from(self.state_size)
    }
    /// Returns the bytes per token that convolution, scan and gate move in the forward pass. Chunk
    /// states are written and read twice, with four bytes per element.
    pub fn moved_bytes(&self) -> f64 {
        4.0 * self.convolved()
            + 12.0 * self.inner()
            + 16.0 * self.inner() * f64::from(self.state_size) / f64::from(self.chunk)
    }
}

/// Mean numbers of attention, Mamba-2 and feed-forward blocks per layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerShares {
    /// Attention blocks.
    pub attention: f64,
    /// Mamba-2 blocks.
    pub state_space: f64,
    /// Feed-forward or expert blocks.
    pub feed_forward: f64,
}

impl LayerShares {
    /// Returns the blocks with a norm and a residual addition, relative to a transformer's two.
    pub fn parts(&self) -> f64 {
        (self.attention + self.state_space + self.feed_forward) / 2.0
    }
}

/// A mixture of experts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Routed experts per layer.
    pub count: u32,
    /// Routed experts per token.
    pub top_k: u32,
    /// Inner width of one expert.
    pub width: u32,
    /// Combined width of the shared experts, which process every token; 0 if the model has none.
    #[serde(default)]
    pub shared_width: u32,
    /// Layers with a dense feed-forward block instead of experts.
    #[serde(default)]
    pub dense_layers: u32,
}

impl Attention {
    /// Returns the number of parameters in one layer's projections.
    pub fn parameters(&self, hidden: u32) -> f64 {
        let h = f64::from(hidden);
        match *self {
            Self::Grouped { query_heads, key_value_heads, head_size, query_rank } => {
                let (a, k, d) =
                    (f64::from(query_heads), f64::from(key_value_heads), f64::from(head_size));
                let query = query_rank.map_or(h * a * d, |rank| f64::from(rank) * (h + a * d));
                query + 2.0 * h * k * d + a * d * h
            }
            Self::Latent {
                heads,
                query_rank,
                key_value_rank,
                plain_size,
                rotary_size,
                value_size,
            } => {
                let (a, q, kv) =
                    (f64::from(heads), f64::from(query_rank), f64::from(key_value_rank));
                let (n, r, v) =
                    (f64::from(plain_size), f64::from(rotary_size), f64::from(value_size));
                q * (h + a * (n + r)) + h * (kv + r) + kv * a * (n + v) + a * v * h
            }
        }
    }

    /// Returns the width of all query heads plus that of all value heads. Under a full mask, the
    /// attention core takes `2·s` operations per token and unit of this width.
    pub fn core_width(&self) -> f64 {
        match *self {
            Self::Grouped { query_heads, head_size, .. } => {
                2.0 * f64::from(query_heads) * f64::from(head_size)
            }
            Self::Latent { heads, plain_size, rotary_size, value_size, .. } => {
                f64::from(heads)
                    * (f64::from(plain_size) + f64::from(rotary_size) + f64::from(value_size))
            }
        }
    }

    /// Returns the number of query heads.
    pub fn heads(&self) -> u32 {
        match *self {
            Self::Grouped { query_heads, .. } => query_heads,
            Self::Latent { heads, .. } => heads,
        }
    }

    /// Returns the number of elements per token in one layer's key-value cache.
    pub fn cache_elements(&self) -> u32 {
        match *self {
            Self::Grouped { key_value_heads, head_size, .. } => {
                key_value_heads.saturating_mul(head_size).saturating_mul(2)
            }
            Self::Latent { key_value_rank, rotary_size, .. } => {
                key_value_rank.saturating_add(rotary_size)
            }
        }
    }

    /// Returns the number of key and value elements per token that context parallelism exchanges.
    pub fn key_value_width(&self) -> f64 {
        match *self {
            Self::Grouped { key_value_heads, head_size, .. } => {
                2.0 * f64::from(key_value_heads) * f64::from(head_size)
            }
            Self::Latent { .. } => self.core_width(),
        }
    }
}

impl Model {
    /// Returns the number of layers with a mixture of experts.
    pub fn expert_layers(&self) -> u32 {
        self.feed_forward
            .experts
            .as_ref()
            .map_or(0, |experts| self.layers.saturating_sub(experts.dense_layers))
    }

    /// Returns the number of layers with a dense feed-forward block.
    pub fn dense_layers(&self) -> u32 {
        self.layers - self.expert_layers()
    }

    /// Returns the mean numbers of blocks per layer, one attention and one feed-forward block except in hybrids.
    pub fn shares(&self) -> LayerShares {
        let Some(state_space) = &self.state_space else {
            return LayerShares { attention: 1.0, state_space: 0.0, feed_forward: 1.0 };
        };
        let mixing = state_space.layers.saturating_add(state_space.attention_layers);
        let layers = f64::from(self.layers.max(1));
        LayerShares {
            attention: f64::from(state_space.attention_layers) / layers,
            state_space: f64::from(state_space.layers) / layers,
            feed_forward: f64::from(self.layers.saturating_sub(mixing)) / layers,
        }
    }

    /// Returns the mean number of tokens to which a token of a sequence attends, over layers and without a causal mask.
    pub fn attended(&self, sequence: u64) -> f64 {
        let sequence = sequence as f64;
        self.window.map_or(sequence, |window| {
            let tokens = f64::from(window.tokens).min(sequence);
            let share = f64::from(window.layers) / f64::from(self.layers.max(1));
            (1.0 - share) * sequence + share * (2.0 * tokens - tokens.powi(2) / sequence)
        })
    }

    /// Returns the parameters in a dense feed-forward block; all counts are means over layers.
    pub fn dense_parameters(&self) -> f64 {
        self.shares().feed_forward
            * self.feed_forward.activation.matrices()
            * f64::from(self.hidden)
            * f64::from(self.feed_forward.width)
    }

    /// Returns the number of parameters in one expert.
    pub fn expert_parameters(&self) -> f64 {
        self.feed_forward.experts.as_ref().map_or(0.0, |experts| {
            self.shares().feed_forward
                * self.feed_forward.activation.matrices()
                * f64::from(self.hidden)
                * f64::from(experts.width)
        })
    }

    /// Returns the number of parameters in one layer's shared experts and router.
    pub fn shared_parameters(&self) -> f64 {
        let h = f64::from(self.hidden);
        self.feed_forward.experts.as_ref().map_or(0.0, |experts| {
            self.shares().feed_forward
                * (self.feed_forward.activation.matrices() * h * f64::from(experts.shared_width)
                    + h * f64::from(experts.count))
        })
    }

    /// Returns the number of parameters in one layer's attention (and Mamba-2) blocks and norms.
    pub fn attention_parameters(&self) -> f64 {
        let shares = self.shares();
        let mamba = self.state_space.as_ref().map_or(0.0, |mamba| mamba.parameters(self.hidden));
        shares.attention * self.attention.parameters(self.hidden)
            + shares.state_space * mamba
            + 2.0 * shares.parts() * f64::from(self.hidden)
    }

    /// Returns the number of parameters in the embedding, the same as in the output layer.
    pub fn embedding_parameters(&self) -> f64 {
        f64::from(self.hidden) * f64::from(self.vocabulary)
    }

    /// Returns the total number of parameters with separate embeddings and without multi-token prediction.
    pub fn parameters(&self) -> f64 {
        let experts = self.feed_forward.experts.as_ref().map_or(0.0, |e| f64::from(e.count));
        f64::from(self.layers) * self.attention_parameters()
            + f64::from(self.dense_layers()) * self.dense_parameters()
            + f64::from(self.expert_layers())
                * (experts * self.expert_parameters() + self.shared_parameters())
            + 2.0 * self.embedding_parameters()
    }
}

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../models/", $name, ".yaml")))),+]
    };
}

/// Name and text of each model file shipped with lightloom.
pub const MODEL_FILES: &[(&str, &str)] = files!(
    "deepseek-v3",
    "gpt-3-175b",
    "gpt-moe-1.1t",
    "gpt-oss-120b",
    "gpt-oss-20b",
    "grok-1",
    "kimi-k2",
    "llama-2-70b",
    "llama-3.1-405b",
    "llama-3.1-70b",
    "llama-3.1-8b",
    "mixtral-8x22b",
    "mixtral-8x7b",
    "mpt-13b",
    "mpt-30b",
    "mpt-3b",
    "mpt-70b",
    "mpt-7b",
    "nemotron-3-nano",
    "nemotron-340b",
    "nemotron-h-56b",
    "qwen2.5-14b",
    "qwen2.5-32b",
    "qwen2.5-72b",
    "qwen3-235b-a22b",
    "qwen3-30b-a3b",
    "qwen3-32b",
    "step-3",
);

/// Returns the shipped model with this name.
pub fn shipped_model(name: &str) -> Option<Model> {
    let (file, text) = MODEL_FILES.iter().find(|(known, _)| *known == name)?;
    Some(document::read(file, text.as_bytes()).0.expect("every shipped model is valid"))
}

/// Reads a user's model file and reports all errors in it.
pub fn read_model(file: &str, bytes: &[u8]) -> (Option<Model>, Vec<Diagnostic>) {
    document::load(file, bytes, check_model)
}

fn check_model(model: Model, check: &mut Check<'_>) -> Option<Model> {
    let mut positive = vec![
        ("/layers", model.layers),
        ("/hidden", model.hidden),
        ("/vocabulary", model.vocabulary),
        ("/feed_forward/width", model.feed_forward.width),
    ];
    match model.attention {
        Attention::Grouped { query_heads, key_value_heads, head_size, .. } => {
            positive.push(("/attention/grouped/query_heads", query_heads));
            positive.push(("/attention/grouped/key_value_heads", key_value_heads));
            positive.push(("/attention/grouped/head_size", head_size));
            check_heads(query_heads, key_value_heads, check);
        }
        Attention::Latent { heads, query_rank, key_value_rank, plain_size, value_size, .. } => {
            positive.push(("/attention/latent/heads", heads));
            positive.push(("/attention/latent/query_rank", query_rank));
            positive.push(("/attention/latent/key_value_rank", key_value_rank));
            positive.push(("/attention/latent/plain_size", plain_size));
            positive.push(("/attention/latent/value_size", value_size));
        }
    }
    if let Some(mamba) = &model.state_space {
        positive.push(("/state_space/heads", mamba.heads));
        positive.push(("/state_space/head_size", mamba.head_size));
        positive.push(("/state_space/state_size", mamba.state_size));
        positive.push(("/state_space/groups", mamba.groups));
        positive.push(("/state_space/chunk", mamba.chunk));
        if mamba.layers.saturating_add(mamba.attention_layers) > model.layers {
            let message = format!("there are only {} layers", model.layers);
            check.error(codes::BAD_VALUE, "/state_space/layers", message);
        }
    }
    if let Some(experts) = &model.feed_forward.experts {
        positive.push(("/feed_forward/experts/count", experts.count));
        positive.push(("/feed_forward/experts/top_k", experts.top_k));
        positive.push(("/feed_forward/experts/width", experts.width));
        check_experts(experts, model.layers, check);
    }
    for (path, value) in positive {
        if value == 0 {
            check
                .error(codes::BAD_VALUE, path, "a model dimension cannot be 0")
                .help("use at least 1");
        }
    }
    Some(model)
}

fn check_heads(query_heads: u32, key_value_heads: u32, check: &mut Check<'_>) {
    if key_value_heads > 0 && !query_heads.is_multiple_of(key_value_heads) {
        let message = format!(
            "{query_heads} query heads cannot be divided evenly among {key_value_heads} key-value heads"
        );
        check
            .error(codes::BAD_VALUE, "/attention/grouped/key_value_heads", message)
            .help("use a divisor of the query heads");
    }
}

fn check_experts(experts: &Experts, layers: u32, check: &mut Check<'_>) {
    if experts.top_k > experts.count {
        let message = format!("a token cannot use {} of {} experts", experts.top_k, experts.count);
        check
            .error(codes::BAD_VALUE, "/feed_forward/experts/top_k", message)
            .help(format!("use at most {}", experts.count));
    }
    if experts.dense_layers > layers {
        let message = format!("there are only {layers} layers");
        check.error(codes::BAD_VALUE, "/feed_forward/experts/dense_layers", message);
    }
}

#[cfg(test)]
mod tests;
