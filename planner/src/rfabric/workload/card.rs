// SPDX-License-Identifier: Apache-2.0
//! Model properties that determine traffic.

use lightloom_fabric::model::{Model, shipped_model};
use lightloom_units::Bytes;

/// The dimensions of a language model that determine its traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCard {
    /// Name of the model.
    pub name: String,
    /// Number of weights.
    pub parameters: u64,
    /// Transformer layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Elements per token in one layer's key-value cache.
    pub cache_elements_per_layer: u32,
    /// Bytes per element, 2 for BF16.
    pub element_bytes: u32,
    /// Routed experts, if any.
    pub experts: Option<Experts>,
}

/// The routed experts of a mixture-of-experts model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Number of experts.
    pub count: u32,
    /// Number of experts per token.
    pub top_k: u32,
    /// Layers with routed experts.
    pub layers: u32,
    /// Number of weights of one expert in one layer.
    pub parameters_each: u64,
}

/// The assumed format of transferred weights, activations and caches.
const BF16: u32 = 2;

impl From<&Model> for ModelCard {
    fn from(model: &Model) -> Self {
        Self {
            name: model.name.clone(),
            parameters: model.parameters() as u64,
            layers: model.layers,
            hidden: model.hidden,
            cache_elements_per_layer: model.attention.cache_elements(),
            element_bytes: BF16,
            experts: model.feed_forward.experts.as_ref().map(|experts| Experts {
                count: experts.count,
                top_k: experts.top_k,
                layers: model.expert_layers(),
                parameters_each: model.expert_parameters() as u64,
            }),
        }
    }
}

impl ModelCard {
    /// Returns a shipped model, such as `qwen2.5-72b`, `llama-3.1-405b` or `deepseek-v3`.
    pub fn named(name: &str) -> Option<Self> {
        shipped_model(name).as_ref().map(Self::from)
    }

    /// Returns the size of all weights.
    pub fn weight_bytes(&self) -> Bytes {
        Bytes(self.parameters * u64::from(self.element_bytes))
    }

    /// Returns the size of the routed experts' weights.
    pub fn expert_bytes(&self) -> Bytes {
        Bytes(self.experts.map_or(0, |experts| {
            u64::from(experts.count)
                * u64::from(experts.layers)
                * experts.parameters_each
                * u64::from(self.element_bytes)
        }))
    }

    /// Returns the size of a token in the residual stream.
    pub fn token_bytes(&self) -> Bytes {
        Bytes(u64::from(self.hidden) * u64::from(self.element_bytes))
    }

    /// Returns the cache size of a token over all layers.
    pub fn cache_bytes_per_token(&self) -> Bytes {
        let elements = u64::from(self.layers) * u64::from(self.cache_elements_per_layer);
        Bytes(elements * u64::from(self.element_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_their_known_sizes() {
        let qwen = ModelCard::named("qwen2.5-72b").unwrap();
        assert_eq!(qwen.weight_bytes().0.div_ceil(1_000_000_000), 146, "145 GB in BF16");
        assert_eq!(qwen.cache_bytes_per_token(), Bytes(320 << 10), "320 KiB a token");
        let mixture = ModelCard::named("deepseek-v3").unwrap();
        assert_eq!(mixture.cache_elements_per_layer, 512 + 64, "a latent cache");
        assert_eq!(
            mixture.experts,
            Some(Experts { count: 256, top_k: 8, layers: 58, parameters_each: 44_040_192 })
        );
        assert_eq!(ModelCard::named("gpt-2"), None);
    }
}
