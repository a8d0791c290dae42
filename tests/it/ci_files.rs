// SPDX-License-Identifier: Apache-2.0
//! Runs the shipped CI files as their services do: GitHub and GitLab steps in their shells, Slurm
//! array tasks, and Kubernetes pods. Validates them with the services' schemas if a validator is
//! installed.

use crate::consumers;
use crate::small;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use consumers::consumer;
use serde_json::Value;
use small::{lightloom, read, small, text};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn yaml(name: &str) -> Value {
    let (value, mistakes) =
        lightloom_fabric::document::read::<Value>(name, read(&root(), name).as_bytes());
    value.unwrap_or_else(|| panic!("{name}: {mistakes:?}"))
}

fn checkout() -> tempfile::TempDir {
    let folder = small("restored within 178us");
    let put = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("topologies/scenarios/any-node.yaml", read(folder.path(), "run.yaml"));
    put("topologies/scenarios/fabric.yaml", read(folder.path(), "fabric.yaml"));
    put("bin/cargo", "#!/bin/sh\necho \"$*\" >> cargo-calls\n".to_owned());
    let chmod = Command::new("chmod").arg("+x").arg(folder.path().join("bin/cargo")).status();
    assert!(chmod.unwrap().success());
    folder
}

fn on_runner(folder: &Path, command: &[&str], variables: &[(&str, &str)]) -> Output {
    let program = PathBuf::from(crate::programs::lightloom());
    let rest = std::env::var("PATH").unwrap_or_default();
    let path =
        format!("{}:{}:{rest}", folder.join("bin").display(), program.parent().unwrap().display());
    let mut runner = Command::new(command[0]);
    runner.args(&command[1..]).current_dir(folder).env("PATH", path);
    runner.env_remove("GITHUB_STEP_SUMMARY").envs(variables.iter().copied());
    runner.output().unwrap()
}

fn verdict(merged: &Output) {
    assert_eq!(merged.status.code(), Some(1), "{}", text(&merged.stderr));
    let shown = text(&merged.stdout);
    assert!(shown.contains("seeds 0..99: 100 runs") && !shown.contains("MISSING"), "{shown}");
    assert!(!shown.contains("100 passed") && !shown.contains(" 0 passed"), "{shown}");
}

fn commands(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let mut commands = Vec::new();
    for part in joined.split("lightloom ").skip(1) {
        let words = part.split_whitespace().map(|word| word.trim_matches(['"', '\'']).to_owned());
        let command: Vec<String> = words.take_while(|word| !word.starts_with(['>', '#'])).collect();
        if command.first().is_some_and(|verb| verb == "emulate" || verb == "merge") {
            commands.push(command);
        }
    }
    commands
}

#[test]
fn shipped_ci_files_are_yaml_with_existing_flags_and_files() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut checked = 0;
    for name in [
        "action.yml",
        "ci/github-workflow.yaml",
        "ci/gitlab-ci.yml",
        "ci/slurm-array.sh",
        "ci/kubernetes-indexed-job.yaml",
    ] {
        let file = read(&root, name);
        if !name.ends_with(".sh") {
            let (value, mistakes) =
                lightloom_fabric::document::read::<Value>(name, file.as_bytes());
            assert!(value.is_some_and(|value| value.is_object()), "{name}: {mistakes:?}");
        }
        for command in commands(&file) {
            let help = lightloom(&root, &[&command[0], "--help"]);
            let help = text(&help.stdout);
            for word in &command {
                let flag = word.trim_start_matches("${SEED:+").trim_start_matches("${SHARD:+");
                if flag.starts_with("--") {
                    assert!(help.contains(&format!("{flag} ")), "{name}: {flag}");
                    checked += 1;
                }
                if word.starts_with("topologies/") {
                    assert!(root.join(word).exists(), "{name}: {word}");
                }
            }
        }
    }
    assert!(checked >= 12, "{checked} flags were found");
}

fn expanded(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut parts = template.split("${{");
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").expect("an expression ends");
        text.push_str(&value(name.trim()));
        text.push_str(rest);
    }
    text
}

/// Runs the steps as GitHub documents them: `bash --noprofile --norc -eo pipefail FILE`.
fn github(folder: &Path, inputs: &[(&str, &str)]) -> Output {
    let action = yaml("action.yml");
    let declared = action["inputs"].as_object().unwrap();
    let given = |name: &str| inputs.iter().find(|(key, _)| *key == name).map(|(_, text)| *text);
    let value = |name: &str| match name.strip_prefix("inputs.") {
        None => {
            assert_eq!(name, "github.action_path");
            root().display().to_string()
        }
        Some(name) => {
            let input = declared.get(name).unwrap_or_else(|| panic!("no input `{name}`"));
            assert!(given(name).is_some() || input["required"] != true, "`{name}` is required");
            given(name).or(input["default"].as_str()).unwrap().to_owned()
        }
    };
    let mut last = None;
    for step in action["runs"]["steps"].as_array().unwrap() {
        if step["uses"] == "actions/cache@v4" {
            continue;
        }
        assert_eq!(step["shell"], "bash");
        std::fs::write(folder.join("step.sh"), expanded(step["run"].as_str().unwrap(), value))
            .unwrap();
        let of_step = step["env"].as_object().into_iter().flatten();
        let mut variables: Vec<(String, String)> = of_step
            .map(|(key, text)| (key.clone(), expanded(text.as_str().unwrap(), value)))
            .collect();
        variables.push(("GITHUB_STEP_SUMMARY".to_owned(), "page.md".to_owned()));
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect();
        let bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "step.sh"];
        let output = on_runner(folder, &bash, &variables);
        let failed = !output.status.success();
        last = Some(output);
        if failed {
            break;
        }
    }
    last.unwrap()
}

#[test]
fn github_action_reports_success_and_failure() {
    let folder = checkout();
    let failed = github(folder.path(), &[("scenario", "run.yaml"), ("seed", "0..11")]);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed.stderr));
    let build = format!("install --locked --quiet --path {}\n", root().display());
    assert_eq!(read(folder.path(), "cargo-calls"), build);
    let page = read(folder.path(), "page.md");
    assert!(page.contains("❌ failed: small") && page.contains("Most failures: seed"), "{page}");
    assert!(read(folder.path(), "lightloom-junit.xml").contains("<failure"));
    let result: Value =
        serde_json::from_str(&read(folder.path(), "lightloom-result.json")).unwrap();
    assert_eq!(result["runs"].as_array().unwrap().len(), 12);

    // A passing seed, a shard, and names with spaces, which the shell must not split.
    let passing = result["runs"].as_array().unwrap().iter().find(|run| run["passed"] == true);
    let seed = passing.unwrap()["seed"].to_string();
    std::fs::copy(folder.path().join("run.yaml"), folder.path().join("my run.yaml")).unwrap();
    let inputs = [
        ("scenario", "my run.yaml"),
        ("seed", &seed),
        ("shard", "0/1"),
        ("threads", "1"),
        ("junit", "my junit.xml"),
        ("result", "my result.json"),
    ];
    let passed = github(folder.path(), &inputs);
    assert_eq!(passed.status.code(), Some(0), "{}", text(&passed.stderr));
    let result: Value = serde_json::from_str(&read(folder.path(), "my result.json")).unwrap();
    assert_eq!(result["shard"]["count"], 1);
    assert!(read(folder.path(), "my junit.xml").contains("failures=\"0\""));
    let page = read(folder.path(), "page.md");
    assert!(page.contains("❌ failed: small") && page.contains("✅ passed: small"), "{page}");
}

fn gitlab(folder: &Path, job: &Value, variables: &[(&str, &str)]) -> Output {
    let lines = ["before_script", "script"].into_iter().filter_map(|key| job[key].as_array());
    let lines: Vec<String> =
        lines.flatten().map(|line| line.as_str().unwrap().to_owned()).collect();
    on_runner(folder, &["bash", "-eo", "pipefail", "-c", &lines.join("\n")], variables)
}

#[test]
fn gitlab_jobs_run_every_shard_and_give_one_verdict() {
    let folder = checkout();
    let file = yaml("ci/gitlab-ci.yml");
    let jobs = file["lightloom"]["parallel"].as_u64().unwrap();
    let variables: Vec<(&str, &str)> = file["variables"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap()))
        .collect();
    let built = gitlab(folder.path(), &file["program"], &variables);
    assert!(built.status.success(), "{}", text(&built.stderr));
    for job in 1..=jobs {
        let (index, total) = (job.to_string(), jobs.to_string());
        let given = [("CI_NODE_INDEX", index.as_str()), ("CI_NODE_TOTAL", total.as_str())];
        let variables = [&given[..], &variables].concat();
        let part = gitlab(folder.path(), &file["lightloom"], &variables);
        assert_eq!(part.status.code(), Some(1), "{}", text(&part.stderr));
        assert!(read(folder.path(), "junit.xml").contains("<failure"), "a report of each job");
    }
    assert_eq!(file["lightloom"]["artifacts"]["when"], "always");
    assert_eq!(file["verdict"]["when"], "always");
    verdict(&gitlab(folder.path(), &file["verdict"], &variables));
    // The including repository must not be built, and lightloom must be built only once for all
    // jobs.
    let calls = read(folder.path(), "cargo-calls");
    let source = file["variables"]["LIGHTLOOM_SOURCE"].as_str().unwrap();
    let build = format!("install --locked --quiet --root .lightloom --git {source} lightloom\n");
    assert_eq!(calls, build);
    assert!(read(folder.path(), "summary.md").contains("of 100 seeds"));
}

#[test]
fn slurm_array_tasks_run_their_shards_and_a_later_job_merges() {
    let folder = checkout();
    let script = read(&root(), "ci/slurm-array.sh");
    let array = script.split("#SBATCH --array=0-").nth(1).unwrap().lines().next().unwrap();
    let tasks = array.parse::<u64>().unwrap() + 1;
    let path = root().join("ci/slurm-array.sh").display().to_string();
    for task in 0..tasks {
        let (task, count) = (task.to_string(), tasks.to_string());
        let variables =
            [("SLURM_ARRAY_TASK_ID", task.as_str()), ("SLURM_ARRAY_TASK_COUNT", count.as_str())];
        let part = on_runner(folder.path(), &["bash", &path], &variables);
        assert!(matches!(part.status.code(), Some(0 | 1)), "{}", text(&part.stderr));
    }
    let merge = script.split("--wrap '").nth(1).unwrap().split('\'').next().unwrap();
    verdict(&on_runner(folder.path(), &["sh", "-c", merge], &[]));

    let two = on_runner(
        folder.path(),
        &["bash", &path, "run.yaml", "0..3"],
        &[("SLURM_ARRAY_TASK_ID", "1"), ("SLURM_ARRAY_TASK_COUNT", "2")],
    );
    assert!(matches!(two.status.code(), Some(0 | 1)), "{}", text(&two.stderr));
    let part: Value = serde_json::from_str(&read(folder.path(), "part-1.json")).unwrap();
    assert_eq!(
        (part["seeds"]["last"].as_u64(), part["runs"].as_array().unwrap().len()),
        (Some(3), 2)
    );
}

#[test]
fn kubernetes_pods_run_their_shards() {
    let folder = checkout();
    let spec = yaml("ci/kubernetes-indexed-job.yaml")["spec"].clone();
    let container = &spec["template"]["spec"]["containers"][0];
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/results");
    let path = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
    assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"], path);
    let part = format!("$({})", container["env"][0]["name"].as_str().unwrap());
    let results = format!("{}/", folder.path().display());
    for pod in 0..spec["completions"].as_u64().unwrap() {
        // The service substitutes the variables.
        let words = container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        let words = words.map(|word| word.replace(&part, &pod.to_string()));
        let words: Vec<String> = words.map(|word| word.replace("/results/", &results)).collect();
        let command: Vec<&str> =
            std::iter::once("lightloom").chain(words.iter().map(String::as_str)).collect();
        let part = on_runner(folder.path(), &command, &[]);
        assert!(matches!(part.status.code(), Some(0 | 1)), "{}", text(&part.stderr));
    }
    verdict(&on_runner(folder.path(), &["sh", "-c", "lightloom merge part-*.json"], &[]));
}

#[test]
fn service_schemas_accept_the_ci_files_and_reject_broken_ones() {
    let folder = tempfile::tempdir().unwrap();
    let kubernetes = ["python3", "-m", "kubernetes_validate", "--strict"];
    let schema = |name| ["check-jsonschema", "--builtin-schema", name];
    for (name, key, check) in [
        ("ci/kubernetes-indexed-job.yaml", "completions:", kubernetes.to_vec()),
        ("action.yml", "description:", schema("vendor.github-actions").to_vec()),
        ("ci/github-workflow.yaml", "runs-on:", schema("vendor.github-workflows").to_vec()),
        ("ci/gitlab-ci.yml", "parallel:", schema("vendor.gitlab-ci").to_vec()),
    ] {
        let good = read(&root(), name);
        std::fs::write(folder.path().join("file.yaml"), &good).unwrap();
        let program = if check[0] == "python3" { &check[..3] } else { &check[..1] };
        let probe = [program, &["--version"]].concat();
        let command = [&check[..], &["file.yaml"]].concat();
        if consumer(&probe.join(" "), &probe, &command, folder.path()).is_none() {
            continue;
        }
        let broken = good.replacen(key, &format!("{}x:", key.trim_end_matches(':')), 1);
        std::fs::write(folder.path().join("file.yaml"), broken).unwrap();
        let refused =
            Command::new(command[0]).args(&command[1..]).current_dir(folder.path()).output();
        assert!(!refused.unwrap().status.success(), "{name} without `{key}` is refused");
    }
}
