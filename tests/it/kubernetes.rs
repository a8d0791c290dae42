// SPDX-License-Identifier: Apache-2.0
//! Tests `lightloom ctl kubernetes` with the daemon, emulated modules, and a simulated API server
//! whose server-side apply follows the Kubernetes documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::consumers::consumer;
use crate::scheduler::Cluster;

const TOKEN: &str = "of the test";
const LABEL: &str = "accelerator.topograph.run/domain";
const PAGE: usize = 5;

type Fields = BTreeMap<String, (Value, BTreeSet<String>)>;

#[derive(Default)]
struct Store {
    nodes: BTreeMap<String, Fields>,
    applied: Vec<Value>,
}

fn fields(node: &Value) -> Result<BTreeMap<String, Value>, String> {
    let mut found = BTreeMap::new();
    let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
    for (key, value) in object(node) {
        match key.as_str() {
            "apiVersion" if value == "v1" => {}
            "kind" if value == "Node" => {}
            "metadata" => {
                for (key, value) in object(&value) {
                    match key.as_str() {
                        "name" => {}
                        "labels" | "annotations" => {
                            let all = object(&value).into_iter();
                            found.extend(
                                all.map(|(name, value)| (format!("metadata {key} {name}"), value)),
                            );
                        }
                        _ => return Err(format!("unknown field metadata.{key}")),
                    }
                }
            }
            "spec" => found.extend(
                object(&value).into_iter().map(|(key, value)| (format!("spec {key}"), value)),
            ),
            _ => return Err(format!("unknown field {key}")),
        }
    }
    Ok(found)
}

impl Store {
    fn apply(&mut self, name: &str, manager: &str, force: bool, body: &Value) -> (u16, Value) {
        let refusal =
            |code: u16, message: String| (code, json!({"kind": "Status", "message": message}));
        let Some(node) = self.nodes.get_mut(name) else {
            return refusal(403, "nodes is forbidden: cannot create".into());
        };
        let wanted = match fields(body) {
            Ok(wanted) if body["metadata"]["name"] == name => wanted,
            Ok(_) => return refusal(400, "the name is another".into()),
            Err(why) => return refusal(400, why),
        };
        let is_held = |path: &str, value: &Value| {
            node.get(path).is_some_and(|(now, owners)| {
                now != value && owners.iter().any(|owner| owner != manager)
            })
        };
        if let Some((path, _)) =
            wanted.iter().find(|(path, value)| is_held(path, value)).filter(|_| !force)
        {
            return refusal(409, format!("conflict with another manager: {path}"));
        }
        node.retain(|path, (_, owners)| {
            wanted.contains_key(path) || !owners.remove(manager) || !owners.is_empty()
        });
        for (path, value) in wanted {
            let field = node.entry(path).or_default();
            if field.0 != value {
                *field = (value, BTreeSet::new());
            }
            field.1.insert(manager.to_owned());
        }
        self.applied.push(body.clone());
        (200, self.node(name))
    }

    fn node(&self, name: &str) -> Value {
        let mut node = json!({"metadata": {"name": name, "labels": {}, "annotations": {}}, "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let mut managers: BTreeMap<&String, Value> = BTreeMap::new();
        for (path, (value, owners)) in &self.nodes[name] {
            let words: Vec<&str> = path.split(' ').collect();
            let mut place = &mut node;
            for word in &words {
                place = &mut place[*word];
            }
            *place = value.clone();
            for owner in owners {
                let mut place = managers.entry(owner).or_insert_with(|| json!({}));
                for word in &words {
                    place = &mut place[format!("f:{word}")];
                }
                *place = json!({});
            }
        }
        let managed = managers.into_iter().map(|(manager, fields)| {
            let operation = if manager == "lightloom" { "Apply" } else { "Update" };
            json!({"manager": manager, "operation": operation, "fieldsV1": fields})
        });
        node["metadata"]["managedFields"] = managed.collect();
        node
    }

    fn answer(&mut self, method: &str, target: &str, body: &[u8]) -> (u16, Value) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query: BTreeMap<&str, &str> =
            query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        match (method, path.strip_prefix("/api/v1/nodes")) {
            ("GET", Some("")) => {
                let from: usize = query.get("continue").map_or(0, |from| from.parse().unwrap());
                let items: Vec<Value> =
                    self.nodes.keys().skip(from).take(PAGE).map(|name| self.node(name)).collect();
                let next = from + items.len();
                let next = if next < self.nodes.len() { next.to_string() } else { String::new() };
                (200, json!({"kind": "NodeList", "metadata": {"continue": next}, "items": items}))
            }
            ("PATCH", Some(name)) => {
                assert_eq!(query["fieldValidation"], "Strict");
                let body = serde_json::from_slice(body).unwrap();
                self.apply(
                    &name[1..],
                    query["fieldManager"],
                    query.get("force") == Some(&"true"),
                    &body,
                )
            }
            _ => (403, json!({"message": format!("{method} {target} is forbidden")})),
        }
    }
}

fn serve(store: Arc<Mutex<Store>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = talk(&store, &stream.unwrap());
        }
    });
    address
}

fn talk(store: &Mutex<Store>, mut stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length, mut is_known, mut is_apply) = (String::new(), 0, false, false);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            None => break,
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(("content-type", value)) => is_apply = value == "application/apply-patch+yaml",
            Some(("authorization", value)) => is_known = value == format!("Bearer {TOKEN}"),
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let (code, answer) = match is_known {
        false => (401, json!({"message": "Unauthorized"})),
        true if method == "PATCH" && !is_apply => (415, json!({"message": "media type"})),
        true => store.lock().unwrap().answer(method, target, &body),
    };
    let answer = answer.to_string();
    write!(stream, "HTTP/1.1 {code} x\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    for chunk in answer.as_bytes().chunks(1_000) {
        write!(stream, "{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk))?;
    }
    write!(stream, "0\r\n\r\n")
}

fn once(cluster: &Cluster, at: SocketAddr, more: &[&str]) -> (bool, String) {
    let api = format!("http://{at}");
    let mut words =
        vec!["ctl", "kubernetes", "fabric.yaml", "--once", "--token-file", "token", "--api", &api];
    words.extend(more);
    let Output { status, stdout, stderr } = cluster.lightloom(&words);
    (
        status.success(),
        [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat(),
    )
}

#[test]
fn kubernetes_follows_the_plan_and_leaves_foreign_objects() {
    let cluster = Cluster::without_slurm(16);
    cluster.write("token", TOKEN);
    let store = Arc::new(Mutex::new(Store::default()));
    let operators = |path: &str, value: Value| {
        (path.to_owned(), (value, BTreeSet::from(["kubectl".to_owned()])))
    };
    // The cluster has a node that the fabric lacks, and an operator has cordoned n3.
    store.lock().unwrap().nodes = (0..17).map(|node| (format!("n{node}"), Fields::new())).collect();
    let zone = operators("metadata labels zone", json!("a"));
    let cordon = operators("spec unschedulable", json!(true));
    store.lock().unwrap().nodes.get_mut("n3").unwrap().extend([zone.clone(), cordon.clone()]);
    let at = serve(Arc::clone(&store));
    let node = |name: &str| store.lock().unwrap().node(name);
    let applied = || store.lock().unwrap().applied.len();

    let (is_good, said) = once(&cluster, at, &["--dry-run"]);
    assert!(is_good && said.contains("nothing was changed") && applied() == 0, "{said}");
    let (is_good, said) = once(&cluster, at, &[]);
    assert!(is_good && said.contains("Kubernetes agrees with plan "), "{said}");
    let of_ring = |name: &str| node(name)["metadata"]["labels"][LABEL].clone();
    assert!(of_ring("n0").is_string() && of_ring("n16").is_null());
    // Nodes in a ring accept pods, except the node that the operator has cordoned.
    let is_apt =
        |name: &str| of_ring(name).is_string() != (node(name)["spec"]["unschedulable"] == true);
    let are_apt = || (0..16).filter(|node| *node != 3).all(|node| is_apt(&format!("n{node}")));
    assert!(are_apt());
    let before = applied();
    assert!(once(&cluster, at, &[]).0 && applied() == before, "a second time changes nothing");

    // An operator has cordoned one of the two failing nodes.
    cluster.lightloom(&["ctl", "fault", "n2"]);
    cluster.lightloom(&["ctl", "fault", "n3"]);
    assert!(once(&cluster, at, &[]).0);
    let dead = node("n2");
    assert!(are_apt());
    let reason =
        dead["metadata"]["annotations"]["lightloom.github.io/reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("lightloom: broken, plan "), "{reason}");
    assert!(of_ring("n2").is_null(), "it is in no ring");
    assert!(node("n3")["metadata"]["annotations"].as_object().unwrap().is_empty());

    for name in ["n2", "n3"] {
        cluster.until(&["ctl", "fault", "--repaired", name]);
    }
    assert!(once(&cluster, at, &[]).0);
    assert!(are_apt() && !node("n2").to_string().contains("broken"));
    let held = store.lock().unwrap().nodes["n3"].clone();
    assert!([zone, cordon].iter().all(|(path, field)| held[path] == *field), "{held:?}");

    // A different value of another owner is a conflict, unless forced.
    let theirs = operators(&format!("metadata labels {LABEL}"), json!("elsewhere"));
    store.lock().unwrap().nodes.get_mut("n0").unwrap().extend([theirs]);
    let (is_good, said) = once(&cluster, at, &[]);
    assert!(!is_good && said.contains("n0 was not changed"), "{said}");
    assert_eq!(of_ring("n0"), "elsewhere");
    assert!(once(&cluster, at, &["--force"]).0);
    assert_ne!(of_ring("n0"), "elsewhere");
    cluster.write("token", "of another");
    let (is_good, said) = once(&cluster, at, &[]);
    assert!(!is_good && said.contains("(401): Unauthorized"), "{said}");
    kubernetes_takes(&store.lock().unwrap().applied, &cluster);
}

fn kubernetes_takes(bodies: &[Value], cluster: &Cluster) {
    let role = cluster.lightloom(&["ctl", "kubernetes", "--rbac"]).stdout;
    let all: String = bodies.iter().map(|body| format!("{body}\n---\n")).collect();
    cluster.write("bodies.yaml", &(all + &String::from_utf8_lossy(&role)));
    let probe = ["python3", "-m", "kubernetes_validate", "--version"];
    let check = ["python3", "-m", "kubernetes_validate", "--strict", "bodies.yaml"];
    let Some(read) = consumer("kubernetes-validate", &probe, &check, cluster.folder()) else {
        return;
    };
    assert_eq!(read.matches("passed for resource ").count(), bodies.len() + 3, "{read}");
}
