// SPDX-License-Identifier: Apache-2.0
//! Tests the traces of changes with a minimal collector. Parsing them requires `pip install
//! opentelemetry-proto`, and is skipped with a note otherwise.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::over_sockets::{Daemon, Switch, circuits, wait_for};
use serde_json::{Value, json};

const READS_IT: &str = "
import sys
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest as Request
# Unknown fields are errors; of an id in hex, which OTLP has in place of base64, this makes other bytes of the same kind.
spans = [s for line in sys.stdin for r in Parse(line, Request()).resource_spans for c in r.scope_spans for s in c.spans]
assert spans and all(s.start_time_unix_nano <= s.end_time_unix_nano for s in spans)
print(len(spans))
";

fn collector() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&bodies);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let taken = Arc::clone(&taken);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                loop {
                    let (mut line, mut length) = (String::new(), 0);
                    while reader.read_line(&mut line).unwrap_or(0) > 2 {
                        if let Some(bytes) = line.to_lowercase().strip_prefix("content-length:") {
                            length = bytes.trim().parse().unwrap();
                        }
                        line.clear();
                    }
                    let mut body = vec![0; length];
                    if length == 0 || reader.read_exact(&mut body).is_err() {
                        return;
                    }
                    taken.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
                    reader.get_mut().write_all(answer).unwrap();
                }
            });
        }
    });
    (address, bodies)
}

fn spans(bodies: &Mutex<Vec<Value>>) -> Vec<Value> {
    let bodies = bodies.lock().unwrap();
    let of = |body: &Value| body["resourceSpans"][0]["scopeSpans"][0]["spans"].clone();
    bodies.iter().flat_map(|body| of(body).as_array().cloned().unwrap_or_default()).collect()
}

#[test]
fn change_is_traced_under_the_requesting_client() {
    let (switch, port) = Switch::serve();
    let mut daemon = Daemon::start(port);
    daemon.kill();
    let (address, bodies) = collector();
    let file = Daemon::file(daemon.folder.path(), port);
    let file = format!("{file}traces: {{endpoint: \"http://{address}\"}}\n");
    std::fs::write(daemon.folder.path().join("daemon.yaml"), file).unwrap();
    daemon.restart();

    let body = json!({"request_id": "one", "target": {"ocs0": circuits(0, 4)}}).to_string();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut stream = UnixStream::connect(daemon.folder.path().join("lightloomd.sock")).unwrap();
    write!(
        stream,
        "POST /v1/apply HTTP/1.1\r\nhost: l\r\nconnection: close\r\ncontent-type: application/json\r\ntraceparent: \
         00-{trace}-00f067aa0ba902b7-01\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    let root = |spans: &[Value]| spans.iter().find(|span| span["name"] == "apply").cloned();
    let root = wait_for("the trace", || root(&spans(&bodies)));
    assert_eq!(
        (&root["traceId"], &root["parentSpanId"]),
        (&json!(trace), &json!("00f067aa0ba902b7"))
    );
    let all = spans(&bodies);
    let number = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    let within = [number(&root, "startTimeUnixNano"), number(&root, "endTimeUnixNano")];
    for name in ["journal", "arm", "switch", "observe"] {
        let found: Vec<&Value> = all.iter().filter(|span| span["name"] == name).collect();
        assert!(!found.is_empty(), "{name}: {all:?}");
        for span in found {
            assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(trace), &root["spanId"]));
            let times = [number(span, "startTimeUnixNano"), number(span, "endTimeUnixNano")];
            assert!(within[0] <= times[0] && times[0] <= times[1] && times[1] <= within[1]);
        }
    }

    // The switch reports a wrong outcome, so the trace includes a rollback and an error.
    switch.lies.store(true, Ordering::Relaxed);
    let (_, answer) = daemon.apply("two", &json!(circuits(1, 4)), &json!({}));
    assert_eq!(daemon.ends(&answer)["result"], "rolled-back");
    let of_two = |spans: &[Value]| {
        spans.iter().find(|span| span["name"] == "apply" && span["traceId"] != trace).cloned()
    };
    let failed = wait_for("the second trace", || of_two(&spans(&bodies)));
    let message = failed["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("rolled-back: ocs0: it reported success"), "{message}");

    let lines: Vec<String> = bodies.lock().unwrap().iter().map(Value::to_string).collect();
    let mut python = Command::new("python3");
    python
        .args(["-c", READS_IT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut python) = python.spawn() else { return println!("skipped: no python3") };
    let written = python.stdin.take().unwrap().write_all(lines.join("\n").as_bytes());
    let output = python.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("No module named") {
        return println!("skipped: no opentelemetry-proto");
    }
    assert!(output.status.success() && written.is_ok(), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), spans(&bodies).len().to_string());
}

#[test]
fn absent_collector_delays_nothing_and_lost_spans_are_counted() {
    let (_switch, port) = Switch::serve();
    let mut daemon = Daemon::start(port);
    daemon.kill();
    // This collector accepts connections but never responds.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = Daemon::file(daemon.folder.path(), port);
    let endpoint = deaf.local_addr().unwrap();
    let file = format!("{file}traces: {{endpoint: \"http://{endpoint}\"}}\n");
    std::fs::write(daemon.folder.path().join("daemon.yaml"), file).unwrap();
    daemon.restart();
    let began = std::time::Instant::now();
    for (request, shift) in [("one", 0), ("two", 1), ("three", 2)] {
        let (_, answer) = daemon.apply(request, &json!(circuits(shift, 4)), &json!({}));
        assert_eq!(daemon.ends(&answer)["result"], "committed");
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(4), "{:?}", began.elapsed());
    drop(deaf);
    wait_for("what is dropped", || {
        let mut stream = UnixStream::connect(daemon.folder.path().join("lightloomd.sock")).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: l\r\nconnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let line = text.lines().find(|line| line.starts_with("lightloomd_spans_dropped_total"))?;
        line.rsplit(' ').next()?.parse::<u64>().ok().filter(|dropped| *dropped > 0)
    });
}
