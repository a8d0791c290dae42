// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn shipped_models_pass_the_checks_of_user_files() {
    for (name, text) in MODEL_FILES {
        let (model, mistakes) = read_model(name, text.as_bytes());
        assert!(mistakes.is_empty(), "{name}: {mistakes:?}");
        assert_eq!(model, shipped_model(name));
        assert_eq!(model.unwrap().name, *name, "the model and its file have the same name");
    }
}

#[test]
fn model_file_shows_all_mistakes() {
    let text = MODEL_FILES.iter().find(|(name, _)| *name == "grok-1").unwrap().1;
    let text =
        text.replace("top_k: 2", "top_k: 9").replace("key_value_heads: 8", "key_value_heads: 7");
    let (model, mistakes) = read_model("grok.yaml", text.as_bytes());
    assert!(model.is_none());
    let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("a token cannot use 9 of 8")), "{lines:?}");
}

#[test]
fn models_have_their_published_parameter_counts() {
    for (name, billions, active) in [
        ("gpt-3-175b", 175.0, 175.0),
        ("llama-3.1-8b", 8.03, 8.03),
        ("llama-3.1-70b", 70.6, 70.6),
        ("llama-3.1-405b", 405.8, 405.8),
        ("nemotron-340b", 340.0, 340.0),
        ("nemotron-3-nano", 31.6, 3.6),
        ("nemotron-h-56b", 56.0, 56.0),
        ("mixtral-8x7b", 46.7, 12.9),
        ("mixtral-8x22b", 141.0, 39.1),
        ("deepseek-v3", 671.0, 37.5),
        ("grok-1", 314.0, 86.0),
        ("qwen2.5-14b", 14.8, 14.8),
        ("qwen2.5-32b", 32.8, 32.8),
        ("qwen2.5-72b", 72.7, 72.7),
        ("gpt-moe-1.1t", 1103.0, 320.0),
        ("step-3", 316.0, 38.8),
        ("gpt-oss-120b", 117.0, 5.7),
        ("gpt-oss-20b", 21.0, 4.2),
        ("kimi-k2", 1026.0, 32.9),
        ("llama-2-70b", 69.0, 69.0),
        ("mpt-3b", 2.78, 2.78),
        ("mpt-7b", 6.86, 6.86),
        ("mpt-13b", 13.1, 13.1),
        ("mpt-30b", 30.3, 30.3),
        ("mpt-70b", 65.3, 65.3),
        ("qwen3-235b-a22b", 235.0, 22.2),
        ("qwen3-30b-a3b", 30.5, 3.35),
        ("qwen3-32b", 32.8, 32.8),
    ] {
        let model = shipped_model(name).unwrap();
        let idle = model.feed_forward.experts.as_ref().map_or(0, |e| e.count - e.top_k);
        let idle = f64::from(model.expert_layers() * idle) * model.expert_parameters();
        let all = model.parameters();
        for (ours, known) in [(all / 1e9, billions), ((all - idle) / 1e9, active)] {
            assert!((ours / known - 1.0).abs() < 0.02, "{name}: {ours} against {known}");
        }
    }
}
