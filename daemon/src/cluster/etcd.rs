// SPDX-License-Identifier: Apache-2.0
//! Client for etcd's JSON gateway (etcd 3.4 or later). Calls block their thread for up to [`ANSWER_WITHIN`] per member.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use ureq::Agent;

use crate::config::EtcdFile;
use crate::http;

const ANSWER_WITHIN: Duration = Duration::from_millis(1_000);
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    #[error("no etcd member responds: {0}")]
    Unreachable(String),
    #[error("etcd refused the request: {0}")]
    Refused(String),
    #[error("{0}; help: list only members of one cluster in `etcd.endpoints`")]
    OtherCluster(String),
    #[error("unexpected response from etcd: {0}")]
    NotUnderstood(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub create_revision: u64,
    pub mod_revision: u64,
    pub lease: u64,
}

#[derive(Debug)]
pub struct TxnAnswer {
    pub succeeded: bool,
    pub revision: u64,
    pub found: Vec<KeyValue>,
    pub count: u64,
}

#[derive(Clone, Debug)]
pub struct Etcd {
    agent: Agent,
    endpoints: Vec<String>,
    good: Arc<AtomicUsize>,
    cluster: Arc<OnceLock<Value>>,
}

pub(super) fn coded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

pub(super) fn made_in(key: &str, revision: u64) -> Value {
    json!({"key": coded(key.as_bytes()), "target": "CREATE", "result": "EQUAL", "create_revision": revision.to_string()})
}

pub(super) fn put_in(key: &str, revision: u64) -> Value {
    json!({"key": coded(key.as_bytes()), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()})
}

pub(super) fn on_lease(key: &str, lease: u64) -> Value {
    json!({"key": coded(key.as_bytes()), "target": "LEASE", "result": "EQUAL", "lease": lease.to_string()})
}

pub(super) fn is(key: &str, value: &[u8]) -> Value {
    json!({"key": coded(key.as_bytes()), "target": "VALUE", "result": "EQUAL", "value": coded(value)})
}

pub(super) fn delete(from: &[u8], end: &[u8]) -> Value {
    json!({"request_delete_range": {"key": coded(from), "range_end": coded(end)}})
}

pub(super) fn put(key: &str, value: &[u8]) -> Value {
    json!({"request_put": {"key": coded(key.as_bytes()), "value": coded(value)}})
}

pub(super) fn all_under(prefix: &str) -> Value {
    let prefix = prefix.as_bytes();
    json!({"request_range": {"key": coded(prefix), "range_end": coded(&end_of(prefix))}})
}

pub(super) fn newest_under(prefix: &str) -> Value {
    let mut range = all_under(prefix);
    let order =
        json!({"limit": "1", "sort_order": "DESCEND", "sort_target": "MOD", "keys_only": true});
    if let (Some(range), Value::Object(order)) = (range["request_range"].as_object_mut(), order) {
        range.extend(order);
    }
    range
}

impl Etcd {
    pub fn new(file: &EtcdFile) -> anyhow::Result<Self> {
        Ok(Self {
            agent: http::agent(file.tls.as_ref(), ANSWER_WITHIN)?,
            endpoints: file.endpoints.iter().map(|one| one.trim_end_matches('/').into()).collect(),
            good: Arc::default(),
            cluster: Arc::default(),
        })
    }

    fn ask_member(
        &self,
        member: &str,
        path: &str,
        body: &[u8],
    ) -> Result<(u16, Vec<u8>), ureq::Error> {
        let mut answer = self.agent.post(format!("{member}{path}")).send(body)?;
        let bytes = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok((answer.status().as_u16(), bytes))
    }

    fn ask(&self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let (first, mut why) = (self.good.load(Ordering::Relaxed), String::new());
        let (body, mut other) = (body.to_string(), None);
        for at in (first..first + self.endpoints.len()).map(|at| at % self.endpoints.len()) {
            let member = &self.endpoints[at];
            let (status, bytes) = match self.ask_member(member, path, body.as_bytes()) {
                Ok(answer) if answer.0 < 500 => answer,
                // A member without a leader responds with a server error.
                Ok((_, bytes)) => {
                    why = format!("{member}: {}", String::from_utf8_lossy(&bytes));
                    continue;
                }
                Err(error) => {
                    why = format!("{member}: {error}");
                    continue;
                }
            };
            let value: Value = serde_json::from_slice(&bytes)
                .map_err(|error| EtcdError::NotUnderstood(error.to_string()))?;
            let header = value.get("header").or_else(|| value["result"].get("header"));
            if let Some(cluster) = header.map(|header| &header["cluster_id"]) {
                let first = self.cluster.get_or_init(|| cluster.clone());
                if first != cluster {
                    other = Some(format!(
                        "{member} belongs to the cluster {cluster}, but earlier responses came \
                            from {first}"
                    ));
                    continue;
                }
            }
            self.good.store(at, Ordering::Relaxed);
            return match value["error"].as_str().or_else(|| value["message"].as_str()) {
                Some(error) => Err(EtcdError::Refused(error.to_owned())),
                None if status >= 400 => Err(EtcdError::Refused(value.to_string())),
                None => Ok(value),
            };
        }
        Err(other.map_or(EtcdError::Unreachable(why), EtcdError::OtherCluster))
    }

    /// Requests a lease of this many seconds. etcd may extend it to its election timeout.
    pub fn grant(&self, seconds: u64) -> Result<(u64, Duration), EtcdError> {
        let answer = self.ask("/v3/lease/grant", &json!({"TTL": seconds.to_string()}))?;
        Ok((number(&answer["ID"])?, Duration::from_secs(number(&answer["TTL"])?)))
    }

    pub fn keep_alive(&self, lease: u64) -> Result<bool, EtcdError> {
        let answer = self.ask("/v3/lease/keepalive", &json!({"ID": lease.to_string()}))?;
        let left = &answer["result"]["TTL"];
        Ok(!left.is_null() && number(left)? > 0)
    }

    pub fn revoke(&self, lease: u64) -> Result<(), EtcdError> {
        self.ask("/v3/lease/revoke", &json!({"ID": lease.to_string()})).map(|_| ())
    }

    /// Executes `then` if all `conditions` are true; otherwise reads the key `otherwise`. After an
    /// error, etcd may still have executed the transaction.
    pub fn txn(
        &self,
        conditions: &[Value],
        then: &[Value],
        otherwise: Option<&str>,
    ) -> Result<TxnAnswer, EtcdError> {
        let failure: Vec<Value> = otherwise
            .map(|key| json!({"request_range": {"key": coded(key.as_bytes())}}))
            .into_iter()
            .collect();
        let body = json!({"compare": conditions, "success": then, "failure": failure});
        let answer = self.ask("/v3/kv/txn", &body)?;
        let range = &answer["responses"][0]["response_range"];
        Ok(TxnAnswer {
            succeeded: answer["succeeded"].as_bool().unwrap_or(false),
            revision: number(&answer["header"]["revision"])?,
            found: key_values(&range["kvs"])?,
            count: if range["count"].is_null() { 0 } else { number(&range["count"])? },
        })
    }

    pub fn get(&self, key: &str) -> Result<Option<KeyValue>, EtcdError> {
        let answer = self.ask("/v3/kv/range", &json!({"key": coded(key.as_bytes())}))?;
        Ok(key_values(&answer["kvs"])?.pop())
    }

    pub fn page(
        &self,
        from: &[u8],
        prefix: &[u8],
        limit: u32,
    ) -> Result<(Vec<KeyValue>, bool), EtcdError> {
        let body = json!({
            "key": coded(from), "range_end": coded(&end_of(prefix)), "limit": limit.to_string(),
        });
        let answer = self.ask("/v3/kv/range", &body)?;
        Ok((key_values(&answer["kvs"])?, answer["more"].as_bool().unwrap_or(false)))
    }

    pub fn wait_for_change(&self, key: &str, after: u64, within: Duration) {
        let body = json!({"create_request": {
            "key": coded(key.as_bytes()), "start_revision": (after + 1).to_string(),
        }});
        let at = self.good.load(Ordering::Relaxed) % self.endpoints.len();
        let answer = self
            .agent
            .post(format!("{}/v3/watch", self.endpoints[at]))
            .config()
            .timeout_global(Some(within))
            .build()
            .send(body.to_string().as_bytes());
        let Ok(answer) = answer else {
            std::thread::sleep(within.min(Duration::from_millis(200)));
            return;
        };
        for line in BufReader::new(answer.into_body().into_reader()).lines() {
            let Ok(line) = line else { return };
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            if event["result"]["events"].is_array() || event["result"]["canceled"] == true {
                return;
            }
        }
    }
}

/// The gateway encodes 64-bit numbers as strings.
fn number(value: &Value) -> Result<u64, EtcdError> {
    let text = value.as_str().and_then(|text| text.parse().ok());
    text.or_else(|| value.as_u64()).ok_or_else(|| EtcdError::NotUnderstood(value.to_string()))
}

fn key_values(list: &Value) -> Result<Vec<KeyValue>, EtcdError> {
    let entries = list.as_array().into_iter().flatten().map(|entry| {
        Ok(KeyValue {
            key: bytes(&entry["key"])?,
            value: bytes(&entry["value"])?,
            create_revision: number(&entry["create_revision"])?,
            mod_revision: number(&entry["mod_revision"])?,
            lease: if entry["lease"].is_null() { 0 } else { number(&entry["lease"])? },
        })
    });
    entries.collect()
}

fn bytes(value: &Value) -> Result<Vec<u8>, EtcdError> {
    let text = value.as_str().unwrap_or_default();
    STANDARD.decode(text).map_err(|error| EtcdError::NotUnderstood(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn range_ends_after_all_keys_with_the_prefix() {
        assert_eq!(end_of(b"/a/"), b"/a0");
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b"\xff"), [0]);
    }

    #[test]
    fn rejects_a_member_of_another_cluster_by_name() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            for cluster in ["11", "12"] {
                let (mut stream, _) = listener.accept().unwrap();
                let _request = stream.read(&mut [0; 4096]).unwrap();
                let body = format!("{{\"header\":{{\"cluster_id\":\"{cluster}\"}}}}");
                let head = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all((head + &body).as_bytes()).unwrap();
            }
        });
        let file = format!("{{\"endpoints\": [\"http://{at}\"], \"prefix\": \"/x\"}}");
        let etcd = Etcd::new(&serde_json::from_str(&file).unwrap()).unwrap();
        assert!(etcd.get("/x/head").unwrap().is_none());
        let why = etcd.get("/x/head").unwrap_err().to_string();
        assert!(
            why.contains("belongs to the cluster \"12\", but earlier responses came from \"11\""),
            "{why}"
        );
        serving.join().unwrap();
    }
}
