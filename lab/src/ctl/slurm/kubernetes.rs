// SPDX-License-Identifier: Apache-2.0
//! The interface to Kubernetes. It sets labels, reason and cordon of nodes by server-side apply as one field manager.
//! Conflicts with other managers are reported, not resolved. A cordon by another manager remains when ours is removed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use self::api::ApiServer;
use super::agree::{Desired, NodeState, OURS, Observed, SchedulerCommand};
use super::{Follow, Scheduler};
use crate::ctl::CtlSession;
use crate::export::HostNames;
use lightloom::output::{self, VerbOutcome};

mod api;

const MANAGER: &str = "lightloom";
const REASON: &str = "lightloom.github.io/reason";
const PAGE: usize = 500;

const RBAC: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: lightloom
rules:
- apiGroups: [\"\"]
  resources: [nodes]
  verbs: [get, list, patch]
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: lightloom
  namespace: default
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: lightloom
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: lightloom
subjects:
- kind: ServiceAccount
  name: lightloom
  namespace: default
";

#[derive(Debug, Args)]
pub(crate) struct KubernetesArguments {
    /// Fabric file that the daemon uses.
    #[arg(required_unless_present = "rbac")]
    fabric: Option<PathBuf>,
    /// API server, such as `https://HOST:6443` or, through `kubectl proxy`,
    /// `http://127.0.0.1:8001` [default: the pod's].
    #[arg(long, value_name = "URL")]
    api: Option<String>,
    /// File with the account's token, which is reread for each request [default: the pod's].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// CA certificate (PEM) of the API server [default: the pod's].
    #[arg(long, value_name = "FILE")]
    api_ca: Option<PathBuf>,
    #[command(flatten)]
    names: HostNames,
    /// Take over fields that another manager has set to a different value.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    follow: Follow,
    /// Print the role, the account and the binding that the command needs.
    #[arg(long)]
    rbac: bool,
}

struct Kubernetes {
    api: ApiServer,
    force: bool,
    nodes: BTreeMap<String, KubernetesNode>,
}

struct KubernetesNode {
    state: NodeState,
    labels: Value,
    owned: Value,
}

impl KubernetesNode {
    fn of(item: &Value) -> Option<(String, Self)> {
        let metadata = &item["metadata"];
        let managed = metadata["managedFields"].as_array().into_iter().flatten();
        let mut ours =
            managed.filter(|entry| entry["manager"] == MANAGER && entry["operation"] == "Apply");
        let owned = ours.next().map_or(Value::Null, |entry| entry["fieldsV1"].clone());
        let is_cordoned = item["spec"]["unschedulable"] == true;
        let reason = match &metadata["annotations"][REASON] {
            Value::String(reason) if !owned["f:spec"]["f:unschedulable"].is_null() => reason,
            _ if is_cordoned => "cordoned by another",
            _ => "",
        };
        let mut conditions = item["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let state =
            NodeState { is_drained: is_cordoned, is_down: !is_ready, reason: reason.to_owned() };
        let name = metadata["name"].as_str()?.to_owned();
        Some((name, Self { state, labels: metadata["labels"].clone(), owned }))
    }

    fn has(&self, labels: &BTreeMap<String, String>) -> bool {
        let owned = self.owned["f:metadata"]["f:labels"].as_object();
        let owned = owned.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("f:"));
        owned.eq(labels.keys().map(String::as_str))
            && labels.iter().all(|(key, value)| self.labels[key] == **value)
    }
}

impl Kubernetes {
    /// Server-side apply requires all fields of this manager in one request, including a cordon.
    fn apply(&self, host: &str, reason: Option<&str>, desired: &Desired) -> anyhow::Result<()> {
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": host, "labels": desired.labels.get(host) },
        });
        if let Some(reason) = reason {
            node["metadata"]["annotations"] = json!({ REASON: reason });
            node["spec"] = json!({ "unschedulable": true });
        }
        let force = if self.force { "&force=true" } else { "" };
        let path =
            format!("/api/v1/nodes/{host}?fieldManager={MANAGER}&fieldValidation=Strict{force}");
        let (code, answer) = self.api.ask(&path, Some(&node))?;
        let why = answer["message"].as_str().unwrap_or("no reason given");
        match code {
            200 => Ok(()),
            409 => bail!("{host} was not changed; use --force to take over its fields: {why}"),
            _ => bail!("the API server refuses to change {host} ({code}): {why}"),
        }
    }

    fn apply_all<'a>(
        &self,
        nodes: impl IntoIterator<Item = (&'a String, Option<&'a str>)>,
        desired: &Desired,
    ) -> anyhow::Result<()> {
        let refused =
            nodes.into_iter().filter_map(|(host, why)| self.apply(host, why, desired).err());
        let refused: Vec<String> = refused.map(|error| format!("{error:#}")).collect();
        ensure!(refused.is_empty(), refused.join("; "));
        Ok(())
    }
}

impl Scheduler for Kubernetes {
    const NAME: &'static str = "Kubernetes";
    const UNCHANGED: &'static str =
        "the API server accepted the labels but shows others: another program is changing them";

    fn observe(&mut self, desired: &Desired) -> anyhow::Result<Observed> {
        self.nodes.clear();
        let mut after = String::new();
        loop {
            let path = format!("/api/v1/nodes?limit={PAGE}{after}");
            let (code, list) = self.api.ask(&path, None)?;
            let why = list["message"].as_str().unwrap_or_default();
            ensure!(code == 200, "the API server does not list nodes ({code}): {why}");
            let items = list["items"].as_array().context("the API server lists no nodes")?;
            self.nodes.extend(items.iter().filter_map(KubernetesNode::of));
            match list["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => after = format!("&continue={next}"),
                _ => break,
            }
        }
        let nodes = self.nodes.iter().map(|(name, node)| (name.clone(), node.state.clone()));
        let nodes: BTreeMap<String, NodeState> = nodes.collect();
        let labelled = desired
            .labels
            .iter()
            .all(|(host, labels)| self.nodes.get(host).is_none_or(|node| node.has(labels)));
        let rings = if labelled { desired.rings.clone() } else { BTreeMap::new() };
        Ok(Observed { nodes, rings })
    }

    fn change(&mut self, command: &SchedulerCommand, desired: &Desired) -> anyhow::Result<()> {
        match command {
            SchedulerCommand::Drain { nodes, reason }
            | SchedulerCommand::Explain { nodes, reason } => {
                self.apply_all(nodes.iter().map(|node| (node, Some(reason.as_str()))), desired)
            }
            SchedulerCommand::Resume { nodes } => {
                self.apply_all(nodes.iter().map(|node| (node, None)), desired)
            }
            SchedulerCommand::Load { .. } => {
                let other = self.nodes.iter().filter(|(host, node)| {
                    desired.labels.get(*host).is_some_and(|labels| !node.has(labels))
                });
                // Nodes are resumed only after all labels match, so keep the reasons.
                let all = other.map(|(host, node)| {
                    let NodeState { is_drained, reason, .. } = &node.state;
                    let is_ours = *is_drained && reason.starts_with(OURS);
                    (host, is_ours.then(|| desired.drained.get(host).unwrap_or(reason).clone()))
                });
                let all: Vec<_> = all.collect();
                self.apply_all(all.iter().map(|(host, why)| (*host, why.as_deref())), desired)
            }
        }
    }
}

impl CtlSession {
    pub(crate) fn kubernetes(
        &self,
        arguments: &KubernetesArguments,
    ) -> anyhow::Result<VerbOutcome> {
        if arguments.rbac {
            output::print(RBAC)?;
            return Ok(VerbOutcome::Good);
        }
        let fabric = arguments.fabric.as_deref().context("the fabric file is missing")?;
        let fabric = lightloom::fabric::read(fabric)?;
        let names = arguments.names.read("n", fabric.hbd.nodes())?;
        let KubernetesArguments { api, token_file, api_ca, force, .. } = arguments;
        let api = ApiServer::new(api.as_deref(), token_file.as_deref(), api_ca.as_deref())?;
        let mut kubernetes = Kubernetes { api, force: *force, nodes: BTreeMap::new() };
        self.follow(&mut kubernetes, &arguments.follow, &fabric, &names)
    }
}
