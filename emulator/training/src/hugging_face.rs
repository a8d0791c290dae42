// SPDX-License-Identifier: Apache-2.0
//! Converts a model's `config.json` of Hugging Face to a model file.
//!
//! Source: the configuration classes of huggingface/transformers: Llama, Mixtral, Qwen, DeepSeek,
//! Gemma, GPT-2 and those that share their keys.

use serde_json::{Map, Value, json};

/// Returns a configuration as the text of a model file, or `None` for any other file. A dimension
/// that the configuration lacks is absent from the text.
pub(super) fn model_file(bytes: &[u8]) -> Option<String> {
    let whole: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
    let of_text = whole.get("text_config").and_then(Value::as_object);
    let config = Config(of_text.unwrap_or(&whole));
    let hidden = config.number(&["hidden_size", "n_embd"])?;
    let layers = config.number(&["num_hidden_layers", "n_layer"]);
    let heads = config.number(&["num_attention_heads", "n_head"]);
    let kind = config.text("model_type").unwrap_or("model");
    let width = config.number(&["intermediate_size", "ffn_hidden_size", "n_inner"]);
    let mut file = json!({
        "name": kind,
        "source": "a config.json of Hugging Face",
        "attention": config.attention(hidden, heads),
        "feed_forward": { "activation": config.activation(kind) },
        "prediction_depths": config.number(&["num_nextn_predict_layers"]).unwrap_or(0),
    });
    let experts = config.experts(layers.unwrap_or(0), width);
    let dense = if config.has("n_inner") || config.has("n_embd") { Some(4 * hidden) } else { None };
    for (key, value) in [
        ("layers", layers),
        ("hidden", Some(hidden)),
        ("vocabulary", config.number(&["vocab_size"])),
    ] {
        if let Some(value) = value {
            file[key] = value.into();
        }
    }
    if let Some(width) = width.or(dense) {
        file["feed_forward"]["width"] = width.into();
    }
    if let Some(experts) = experts {
        file["feed_forward"]["experts"] = experts;
    }
    Some(file.to_string())
}

struct Config<'c>(&'c Map<String, Value>);

impl Config<'_> {
    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    fn number(&self, keys: &[&str]) -> Option<u64> {
        keys.iter().find_map(|key| self.0.get(*key)?.as_u64())
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    fn attention(&self, hidden: u64, heads: Option<u64>) -> Value {
        let heads = heads.unwrap_or(0);
        if let Some(rank) = self.number(&["kv_lora_rank"]) {
            let size = |key| self.number(&[key]).unwrap_or(0);
            return json!({ "latent": {
                "heads": heads,
                "query_rank": size("q_lora_rank"),
                "key_value_rank": rank,
                "plain_size": size("qk_nope_head_dim"),
                "rotary_size": size("qk_rope_head_dim"),
                "value_size": size("v_head_dim"),
            } });
        }
        let is_multi_query = self.0.get("multi_query") == Some(&Value::Bool(true));
        let shared = self.number(&["num_key_value_heads", "num_kv_heads"]);
        json!({ "grouped": {
            "query_heads": heads,
            "key_value_heads": shared.unwrap_or(if is_multi_query { 1 } else { heads }),
            "head_size": self.number(&["head_dim"]).unwrap_or(hidden / heads.max(1)),
        } })
    }

    fn activation(&self, kind: &str) -> &'static str {
        let named = ["hidden_act", "hidden_activation", "activation_function"];
        let named = named.iter().find_map(|key| self.text(key)).unwrap_or("silu");
        match named {
            // Gemma gates its GELU, which is three matrices, too.
            _ if kind.starts_with("gemma") => "swiglu",
            "relu2" => "squared-relu",
            "silu" if kind == "gpt_oss" => "swiglu-clamped",
            "silu" | "swish" | "swiglu" => "swiglu",
            _ => "gelu",
        }
    }

    fn experts(&self, layers: u64, width: Option<u64>) -> Option<Value> {
        let names = ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"];
        let count = self.number(&names).filter(|count| *count > 1)?;
        let own = self.number(&["moe_intermediate_size", "expert_ffn_hidden_size"]).or(width)?;
        let shared = self.number(&["shared_expert_intermediate_size"]);
        let shared = shared.or(self.number(&["n_shared_experts"]).map(|experts| experts * own));
        // Every n-th layer has experts, except the first and those listed.
        let every = self.number(&["decoder_sparse_step", "moe_layer_freq"]).unwrap_or(1).max(1);
        let listed = self.0.get("mlp_only_layers").and_then(Value::as_array);
        let listed = listed.map_or(0, |list| list.len() as u64);
        let first = self.number(&["first_k_dense_replace"]).unwrap_or(0);
        let dense = (layers - layers / every).max(first) + listed;
        let top_k =
            self.number(&["num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k"]);
        Some(json!({
            "count": count,
            "top_k": top_k.unwrap_or(1),
            "width": own,
            "shared_width": shared.unwrap_or(0),
            "dense_layers": dense,
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::cards::{model, read_model};

    /// The dimensions of two shipped models, in the keys of their configuration classes.
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

    #[test]
    fn configuration_without_a_dimension_is_a_mistake() {
        let config = br#"{"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9, "intermediate_size": 128}"#;
        let (read, mistakes) = read_model("config.json", config);
        assert!(read.is_none() && format!("{mistakes:?}").contains("layers"), "{mistakes:?}");
    }
}
