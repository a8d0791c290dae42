//! The dimensions of a transformer, and the numbers that follow from them alone.

use serde::{Deserialize, Serialize};

/// A transformer to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Name as users write it: `llama-3.1-405b`.
    pub name: String,
    /// Where the dimensions come from, and how sure they are.
    pub source: String,
    /// Transformer layers, without multi-token-prediction layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Entries of the vocabulary.
    pub vocabulary: u32,
    /// The attention of every layer.
    pub attention: Attention,
    /// The feed-forward part of every layer.
    pub feed_forward: FeedForward,
    /// Multi-token-prediction depths: each adds a layer, a `2h×h` projection and a further output layer.
    #[serde(default)]
    pub prediction_depths: u32,
}

/// How a layer attends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Attention {
    /// Multi-head, grouped-query and multi-query attention; with `query_rank` also multi-matrix
    /// factorisation attention, whose query projection goes through a low rank.
    Grouped {
        /// Query heads.
        query_heads: u32,
        /// Key and value heads.
        key_value_heads: u32,
        /// Width of a head.
        head_size: u32,
        /// Width between the two factors of the query projection, if it is factored.
        #[serde(default)]
        query_rank: Option<u32>,
    },
    /// Multi-head latent attention in its training form.
    Latent {
        /// Heads.
        heads: u32,
        /// Width of the compressed query.
        query_rank: u32,
        /// Width of the compressed key and value.
        key_value_rank: u32,
        /// Head width without position.
        plain_size: u32,
        /// Head width with rotary position.
        rotary_size: u32,
        /// Width of a value head.
        value_size: u32,
    },
}

/// What follows attention in a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeedForward {
    /// Width of the dense layers.
    pub width: u32,
    /// `gelu` has two matrices, `swiglu` three.
    pub activation: Activation,
    /// Experts, where layers have them.
    #[serde(default)]
    pub experts: Option<Experts>,
}

/// The non-linearity, which decides how many matrices a feed-forward part has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// Up and down.
    Gelu,
    /// Gate, up and down.
    Swiglu,
}

impl Activation {
    /// Matrices of a feed-forward part.
    #[must_use]
    pub fn matrices(self) -> f64 {
        match self {
            Self::Gelu => 2.0,
            Self::Swiglu => 3.0,
        }
    }
}

/// A mixture of experts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Routed experts of a layer.
    pub count: u32,
    /// Experts a token visits.
    pub top_k: u32,
    /// Width of an expert.
    pub width: u32,
    /// Width of the expert that every token visits, summed; 0 for none.
    #[serde(default)]
    pub shared_width: u32,
    /// Layers that keep the dense width instead.
    #[serde(default)]
    pub dense_layers: u32,
}

impl Attention {
    /// Weights of one layer's projections.
    #[must_use]
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

    /// Width of all query heads plus width of all value heads: the attention core does
    /// `2·s` floating-point operations per token for each unit of it over a full mask.
    #[must_use]
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

    /// Query heads.
    #[must_use]
    pub fn heads(&self) -> u32 {
        match *self {
            Self::Grouped { query_heads, .. } => query_heads,
            Self::Latent { heads, .. } => heads,
        }
    }

    /// Elements of keys and values per token, as they travel in context parallelism.
    #[must_use]
    pub fn key_value_width(&self) -> f64 {
        match *self {
            Self::Grouped { key_value_heads, head_size, .. } => {
                2.0 * f64::from(key_value_heads) * f64::from(head_size)
            }
            Self::Latent { heads, plain_size, rotary_size, value_size, .. } => {
                f64::from(heads)
                    * (f64::from(plain_size) + f64::from(rotary_size) + f64::from(value_size))
            }
        }
    }
}

impl Model {
    /// Layers whose feed-forward part is a mixture of experts.
    #[must_use]
    pub fn expert_layers(&self) -> u32 {
        self.feed_forward
            .experts
            .as_ref()
            .map_or(0, |experts| self.layers.saturating_sub(experts.dense_layers))
    }

    /// Layers whose feed-forward part is dense.
    #[must_use]
    pub fn dense_layers(&self) -> u32 {
        self.layers - self.expert_layers()
    }

    /// Weights of one dense feed-forward part.
    #[must_use]
    pub fn dense_parameters(&self) -> f64 {
        self.feed_forward.activation.matrices()
            * f64::from(self.hidden)
            * f64::from(self.feed_forward.width)
    }

    /// Weights of one expert.
    #[must_use]
    pub fn expert_parameters(&self) -> f64 {
        self.feed_forward.experts.as_ref().map_or(0.0, |experts| {
            self.feed_forward.activation.matrices()
                * f64::from(self.hidden)
                * f64::from(experts.width)
        })
    }

    /// Weights of one layer's shared expert and router.
    #[must_use]
    pub fn shared_parameters(&self) -> f64 {
        let h = f64::from(self.hidden);
        self.feed_forward.experts.as_ref().map_or(0.0, |experts| {
            self.feed_forward.activation.matrices() * h * f64::from(experts.shared_width)
                + h * f64::from(experts.count)
        })
    }

    /// Weights of one attention part with the two norms of its layer.
    #[must_use]
    pub fn attention_parameters(&self) -> f64 {
        self.attention.parameters(self.hidden) + 2.0 * f64::from(self.hidden)
    }

    /// Weights of the embedding; the output layer has as many.
    #[must_use]
    pub fn embedding_parameters(&self) -> f64 {
        f64::from(self.hidden) * f64::from(self.vocabulary)
    }

    /// All weights, with separate embedding and output layer, without multi-token prediction.
    #[must_use]
    pub fn parameters(&self) -> f64 {
        let experts = self.feed_forward.experts.as_ref().map_or(0.0, |e| f64::from(e.count));
        f64::from(self.layers) * self.attention_parameters()
            + f64::from(self.dense_layers()) * self.dense_parameters()
            + f64::from(self.expert_layers())
                * (experts * self.expert_parameters() + self.shared_parameters())
            + 2.0 * self.embedding_parameters()
    }

    /// Weights a token meets, with separate embedding and output layer.
    #[must_use]
    pub fn active_parameters(&self) -> f64 {
        let idle = self
            .feed_forward
            .experts
            .as_ref()
            .map_or(0.0, |e| f64::from(e.count) - f64::from(e.top_k));
        self.parameters() - f64::from(self.expert_layers()) * idle * self.expert_parameters()
    }
}
