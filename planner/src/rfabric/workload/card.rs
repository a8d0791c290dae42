//! What of a language model decides its traffic.

use lightloom_fabric::units::Bytes;

/// The dimensions that traffic follows from.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCard {
    /// Its name.
    pub name: String,
    /// All weights, in number.
    pub parameters: u64,
    /// Transformer layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Elements that one token leaves in the key-value cache of one layer.
    pub cache_elements_per_layer: u32,
    /// Bytes of one element. BF16 has 2.
    pub element_bytes: u32,
    /// Routed experts, where there are any.
    pub experts: Option<Experts>,
}

/// The routed experts of a mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Number of experts.
    pub count: u32,
    /// Experts that each token visits.
    pub top_k: u32,
    /// Layers that have them.
    pub layers: u32,
}

impl ModelCard {
    /// Qwen2.5-72B (arXiv 2412.15115 and published configuration): 80 layers, 8 key-value heads of 128.
    #[must_use]
    pub fn qwen2_5_72b() -> Self {
        Self {
            name: "qwen2.5-72b".into(),
            parameters: 72_700_000_000,
            layers: 80,
            hidden: 8192,
            cache_elements_per_layer: 2 * 8 * 128,
            element_bytes: 2,
            experts: None,
        }
    }

    /// Llama-3.1-405B (arXiv 2407.21783, table 3).
    #[must_use]
    pub fn llama_3_1_405b() -> Self {
        Self {
            name: "llama-3.1-405b".into(),
            parameters: 405_000_000_000,
            layers: 126,
            hidden: 16384,
            cache_elements_per_layer: 2 * 8 * 128,
            element_bytes: 2,
            experts: None,
        }
    }

    /// A mixture of experts like DeepSeek-V3 (arXiv 2412.19437): 671 billion weights, 58 of 61 layers
    /// with 256 experts of which a token visits 8, a latent cache of 512 + 64 elements.
    #[must_use]
    pub fn deepseek_v3_like() -> Self {
        Self {
            name: "deepseek-v3-like".into(),
            parameters: 671_000_000_000,
            layers: 61,
            hidden: 7168,
            cache_elements_per_layer: 512 + 64,
            element_bytes: 2,
            experts: Some(Experts { count: 256, top_k: 8, layers: 58 }),
        }
    }

    /// A card by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::qwen2_5_72b(), Self::llama_3_1_405b(), Self::deepseek_v3_like()]
            .into_iter()
            .find(|card| card.name == name)
    }

    /// One copy of the weights.
    #[must_use]
    pub fn weight_bytes(&self) -> Bytes {
        Bytes(self.parameters * u64::from(self.element_bytes))
    }

    /// What one token's residual stream weighs.
    #[must_use]
    pub fn token_bytes(&self) -> Bytes {
        Bytes(u64::from(self.hidden) * u64::from(self.element_bytes))
    }

    /// What one token leaves in the caches of all layers.
    #[must_use]
    pub fn cache_bytes_per_token(&self) -> Bytes {
        let elements = u64::from(self.layers) * u64::from(self.cache_elements_per_layer);
        Bytes(elements * u64::from(self.element_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sizes_come_out() {
        let qwen = ModelCard::qwen2_5_72b();
        assert_eq!(qwen.weight_bytes(), Bytes(145_400_000_000), "145 GB in BF16");
        assert_eq!(qwen.cache_bytes_per_token(), Bytes(320 << 10), "320 KiB a token");
        assert_eq!(ModelCard::named("llama-3.1-405b"), Some(ModelCard::llama_3_1_405b()));
        assert_eq!(ModelCard::named("gpt-2"), None);
    }
}
