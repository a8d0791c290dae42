// SPDX-License-Identifier: Apache-2.0
//! Converts a `config.json` of Hugging Face to a model file.
//!
//! Source: configuration classes of huggingface/transformers (Llama, Mixtral, Qwen, DeepSeek,
//! Gemma, GPT-2 and those with the same keys).

use serde_json::{Value, json};

/// `None` for other files. Missing dimensions are absent from the text. Fails with the key of layers that a model file
/// cannot describe.
pub(super) fn model_file(bytes: &[u8]) -> Option<Result<String, String>> {
    let whole: Value = serde_json::from_slice(bytes).ok()?;
    let config = Config(whole.get("text_config").unwrap_or(&whole));
    let hidden = config.number(&["hidden_size", "n_embd"])?;
    if let Some(key) = config.not_understood() {
        return Some(Err(key));
    }
    let layers = config.number(&["num_hidden_layers", "n_layer"]);
    let state_space = config.state_space(layers.unwrap_or(0));
    // The layers of a hybrid model are single blocks.
    let layers = if state_space.is_some() { layers.map(|layers| 2 * layers) } else { layers };
    let widths = ["intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner"];
    let width = config.number(&widths).or(config.number(&["n_embd"]).map(|hidden| 4 * hidden));
    // Without dense layers, the file may lack their width.
    let width = width.or(config.number(&["moe_intermediate_size"]));
    let kind = config.0["model_type"].as_str().unwrap_or("model");
    let mut file = json!({
        "name": kind,
        "source": "a config.json of Hugging Face",
        "layers": layers,
        "hidden": hidden,
        "vocabulary": config.number(&["vocab_size"]),
        "attention": config.attention(hidden),
        "feed_forward": {
            "activation": config.activation(kind),
            "width": width,
            "experts": config.experts(kind, layers.unwrap_or(0), width),
        },
        "window": config.window(layers.unwrap_or(0)),
        "state_space": state_space,
        "prediction_depths": config.number(&["num_nextn_predict_layers", "mtp_num_hidden_layers"]).unwrap_or(0),
    });
    file["feed_forward"].as_object_mut()?.retain(|_, value| !value.is_null());
    file.as_object_mut()?.retain(|_, value| !value.is_null());
    Some(Ok(file.to_string()))
}

/// Parts of keys of layers with other heads or states than a model file can describe.
const NOT_UNDERSTOOD: &str = "global_head_dim override_pattern linear_attn attn_type attn_layer block_type \
    block_pattern block_list mamba ssm recurrent rwkv retention lru hyena";

struct Config<'c>(&'c Value);

impl Config<'_> {
    fn number(&self, keys: &[&str]) -> Option<u64> {
        keys.iter().find_map(|key| self.0[*key].as_u64())
    }

    fn layers_of(&self, kind: &str) -> Option<u64> {
        let types = self.0["layer_types"].as_array()?;
        Some(types.iter().filter(|one| *one == kind).count() as u64)
    }

    /// Gated DeltaNet has the projections and states of Mamba-2, and as many operations per state.
    fn state_space(&self, layers: u64) -> Option<Value> {
        let heads = self.number(&["linear_num_value_heads"])?;
        let every = self.number(&["full_attention_interval"]).unwrap_or(layers).max(1);
        let linear = self.layers_of("linear_attention").unwrap_or(layers - layers / every);
        Some(json!({
            "layers": linear,
            "attention_layers": layers - linear,
            "heads": heads,
            "head_size": self.0["linear_value_head_dim"],
            "state_size": self.0["linear_key_head_dim"],
            "groups": self.0["linear_num_key_heads"],
            "convolution": self.number(&["linear_conv_kernel_dim"]).unwrap_or(4),
        }))
    }

    fn not_understood(&self) -> Option<String> {
        let nothing = [Value::Null, Value::Bool(false), json!(0), json!([]), json!({})];
        let mut keys = self.0.as_object()?.iter().filter(|(_, value)| !nothing.contains(value));
        let key = keys.find(|(key, _)| {
            let mut parts = NOT_UNDERSTOOD.split_whitespace();
            parts.any(|part| key.contains(part)) && !key.ends_with("dtype")
        });
        if let Some((key, _)) = key {
            return Some(key.clone());
        }
        let mut types = self.0["layer_types"].as_array().into_iter().flatten();
        let has_linear = !self.0["linear_num_value_heads"].is_null();
        let other = types.find(|one| match one.as_str().unwrap_or_default() {
            "linear_attention" => !has_linear,
            one => !one.ends_with("attention"),
        })?;
        Some(format!("layer_types: {other}"))
    }

    fn attention(&self, hidden: u64) -> Value {
        let heads = self.number(&["num_attention_heads", "n_head"]).unwrap_or(0);
        if let Some(rank) = self.number(&["kv_lora_rank"]) {
            return json!({ "latent": {
                "heads": heads,
                "query_rank": self.0["q_lora_rank"].as_u64().unwrap_or(0),
                "key_value_rank": rank,
                "plain_size": self.0["qk_nope_head_dim"],
                "rotary_size": self.0["qk_rope_head_dim"],
                "value_size": self.0["v_head_dim"],
            } });
        }
        let shared = self.number(&["num_key_value_heads", "num_kv_heads"]);
        json!({ "grouped": {
            "query_heads": heads,
            "key_value_heads": shared.unwrap_or(if self.0["multi_query"] == true { 1 } else { heads }),
            "head_size": self.number(&["head_dim"]).unwrap_or(hidden / heads.max(1)),
        } })
    }

    fn window(&self, layers: u64) -> Option<Value> {
        let tokens = self.number(&["sliding_window"])?;
        if self.0["use_sliding_window"] == false {
            return None;
        }
        let every = self.number(&["sliding_window_pattern"]).unwrap_or(layers + 1).max(1);
        let layers = self.layers_of("sliding_attention").unwrap_or(layers - layers / every);
        Some(json!({ "tokens": tokens, "layers": layers }))
    }

    fn activation(&self, kind: &str) -> &'static str {
        let named = ["hidden_act", "hidden_activation", "activation_function"];
        match named.iter().find_map(|key| self.0[*key].as_str()).unwrap_or("silu") {
            // Gemma's gated GELU also has three matrices.
            _ if kind.starts_with("gemma") => "swiglu",
            "relu2" => "squared-relu",
            "silu" if kind == "gpt_oss" => "swiglu-clamped",
            "silu" | "swish" | "swiglu" => "swiglu",
            _ => "gelu",
        }
    }

    fn experts(&self, kind: &str, layers: u64, width: Option<u64>) -> Option<Value> {
        let names = ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"];
        let count = self.number(&names).filter(|count| *count > 1)?;
        let plain = self.number(&["intermediate_size"]);
        let own = self.number(&["moe_intermediate_size", "expert_ffn_hidden_size"]);
        let own = own.or(plain).or(width)?;
        let shared = self.number(&["shared_expert_intermediate_size", "shared_intermediate_size"]);
        let shared = shared.or(self.number(&["n_shared_experts"]).map(|experts| experts * own));
        // These have one shared expert or a dense part in each layer, without a key.
        let is_mixed = ["llama4", "gemma4"].iter().any(|mixed| kind.starts_with(mixed));
        let shared = shared.or(plain.filter(|_| is_mixed));
        // Every n-th layer has experts, except the first and the listed ones.
        let periods = ["decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"];
        let every = self.number(&periods).unwrap_or(1).max(1);
        let listed = self.0["mlp_only_layers"].as_array().map_or(0, Vec::len) as u64;
        let first = self.number(&["first_k_dense_replace"]).unwrap_or(0);
        let top_k = [
            "num_experts_per_tok",
            "num_experts_per_token",
            "moe_topk",
            "moe_top_k",
            "top_k_experts",
        ];
        let top_k = self.number(&top_k);
        Some(json!({
            "count": count,
            "top_k": top_k.unwrap_or(1),
            "width": own,
            "shared_width": shared.unwrap_or(0),
            "dense_layers": (layers - layers / every).max(first) + listed,
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::cards::{model, read_model};

    #[test]
    fn configuration_has_the_dimensions_of_the_shipped_model() {
        for (name, config) in [
            (
                "qwen3-30b-a3b",
                r#"{"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936, "head_dim": 128,
                    "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144, "hidden_act": "silu",
                    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": []}"#,
            ),
            (
                "mixtral-8x7b",
                r#"{"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000, "num_attention_heads": 32,
                    "num_key_value_heads": 8, "intermediate_size": 14336, "hidden_act": "silu", "num_local_experts": 8, "num_experts_per_tok": 2}"#,
            ),
        ] {
            let (read, mistakes) = read_model("config.json", config.as_bytes());
            let read = read.unwrap_or_else(|| panic!("{mistakes:?}"));
            let known = model(name).unwrap();
            assert_eq!((read.layers, read.hidden), (known.layers, known.hidden));
            assert_eq!(read.vocabulary, known.vocabulary);
            assert_eq!(read.attention, known.attention);
            assert_eq!(read.feed_forward, known.feed_forward, "{name}");
        }
    }

    const HYBRID: &str = r#"{"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936, "head_dim": 256,
        "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 5120, "hidden_act": "silu", "num_experts": 512,
        "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "full_attention_interval": 4,
        "linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128}"#;

    /// Qwen3-Next has 80 billion parameters, of which 3 billion are active.
    #[test]
    fn linear_attention_is_a_state_space() {
        let model = read_model("config.json", HYBRID.as_bytes()).0.unwrap();
        let states = model.state_space.as_ref().unwrap();
        assert_eq!((model.layers, states.layers, states.attention_layers), (96, 36, 12));
        assert!((model.parameters() / 80e9 - 1.0).abs() < 0.02, "{}", model.parameters());
        let experts = model.feed_forward.experts.as_ref().unwrap();
        let idle = f64::from(model.expert_layers() * (experts.count - experts.top_k));
        let idle = idle * model.expert_parameters();
        let active = model.parameters() - idle - model.embedding_parameters();
        assert!((active / 3.5e9 - 1.0).abs() < 0.1, "{active}");
    }

    #[test]
    fn layers_that_a_model_file_cannot_describe_are_named() {
        let kinds = r#""layer_types": ["full_attention", "conv"], "num_hidden_layers": 2"#;
        let linear = r#""layer_types": ["linear_attention"], "num_hidden_layers": 1"#;
        for (layers, expected) in [
            (kinds, "`layer_types: \"conv\"`"),
            (linear, "`layer_types: \"linear_attention\"`"),
            (r#""global_head_dim": 512, "num_hidden_layers": 1"#, "`global_head_dim`"),
            (r#""ssm_cfg": {"layer": "Mamba2"}, "num_hidden_layers": 1"#, "`ssm_cfg`"),
            (r#""rwkv_size": 64, "ssm_cfg": {}, "num_hidden_layers": 1"#, "`rwkv_size`"),
        ] {
            let config = format!("{{\"hidden_size\": 64, \"num_attention_heads\": 4, {layers}}}");
            let (model, mistakes) = read_model("config.json", config.as_bytes());
            assert!(
                model.is_none()
                    && format!("{mistakes:?}")
                        .contains(&format!("{expected:?}")[1..expected.len()]),
                "{mistakes:?}"
            );
        }
    }

    #[test]
    fn configuration_without_a_dimension_is_a_mistake() {
        let config = br#"{"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9, "intermediate_size": 128}"#;
        let (read, mistakes) = read_model("config.json", config);
        assert!(read.is_none() && format!("{mistakes:?}").contains("layers"), "{mistakes:?}");
    }
}
