// SPDX-License-Identifier: Apache-2.0

use std::net::IpAddr;

use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use prometheus::Opts;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};

use super::*;

/// Shorter than all limits, so an answer within it did not wait for a limit.
const SOON: Duration = Duration::from_millis(100);

/// Requests received by the stand-in for the API: path, client and body.
type Received = Arc<Mutex<Vec<(&'static str, String, Value)>>>;

/// A stand-in for the API. The name of the phase is the state of its request.
fn api(received: Received) -> Router {
    async fn phase(
        State(received): State<Received>,
        Extension(client): Extension<Client>,
        Json(body): Json<Value>,
    ) -> (StatusCode, Json<Value>) {
        let is_refused = body["phase"] == "refused";
        received.lock().unwrap().push(("phase", client.name, body));
        match is_refused {
            true => (StatusCode::CONFLICT, Json(json!({"code": "lease-held"}))),
            false => (StatusCode::ACCEPTED, Json(json!({"answer": "booked"}))),
        }
    }
    async fn status(State(received): State<Received>, Path(id): Path<String>) -> Json<Value> {
        let of_id = |received: &[(_, _, Value)]| {
            let of_id = received.iter().find(|(_, _, body)| body["request_id"] == id.as_str());
            of_id.unwrap().2["phase"].clone()
        };
        let state = of_id(&received.lock().unwrap());
        if state == "moving" {
            sleep(Duration::from_secs(5)).await;
        }
        Json(json!({"state": state}))
    }
    async fn release(
        State(received): State<Received>,
        Extension(client): Extension<Client>,
        Json(body): Json<Value>,
    ) -> Json<Value> {
        received.lock().unwrap().push(("release", client.name, body));
        Json(json!({"answer": "done"}))
    }
    Router::new()
        .route("/v1/phase", post(phase))
        .route("/v1/phase/release", post(release))
        .route("/v1/phase/{request_id}", get(status))
        .with_state(received)
}

struct Rig {
    at: SocketAddr,
    received: Received,
    answers: IntCounterVec,
}

fn group(digit: char) -> String {
    digit.to_string().repeat(64)
}

impl Rig {
    async fn start() -> Self {
        let file = "{listen: '127.0.0.1:0', jobs: [
           {name: train, hosts: [127.0.0.1, 127.0.0.2], phases: [
             {backend: 2, phase: lit, for: 2s}, {backend: 3, phase: moving, for: 2s},
             {backend: 4, phase: missed, for: 2s}, {backend: 5, phase: lit, for: 2s, groups: 2},
             {backend: 11, phase: lit, for: 1s}]},
           {name: infer, hosts: [127.0.0.3], phases: [{backend: 2, phase: refused, for: 1s}]}]}";
        let file: JobLinesFile = serde_saphyr::from_str(file).unwrap();
        let received = Received::default();
        let answers = IntCounterVec::new(Opts::new("answers", "."), &["job", "result"]).unwrap();
        let at = listen(file, api(Arc::clone(&received)), answers.clone()).await.unwrap();
        Self { at, received, answers }
    }

    async fn process(&self, from: [u8; 4]) -> Peer {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((IpAddr::from(from), 0).into()).unwrap();
        Peer(BufReader::new(socket.connect(self.at).await.unwrap()))
    }

    async fn members<const N: usize>(&self, group: &str) -> [Peer; N] {
        let mut members = Vec::new();
        for index in 0..N {
            members.push(self.process([127, 0, 0, 1 + (index % 2) as u8]).await);
            members[index].send(&format!("COMM;{group},{N},{index}")).await;
        }
        for member in &mut members {
            assert_eq!(member.line().await, format!("CHECKIN_ACK;{group},{}", u8::from(N == 1)));
        }
        members.try_into().unwrap_or_else(|_| unreachable!())
    }

    fn received(&self, path: &str) -> Vec<Value> {
        let received = self.received.lock().unwrap();
        let of_path = received.iter().filter(|(of, _, _)| *of == path);
        of_path.map(|(_, _, body)| body.clone()).collect()
    }

    fn counted(&self, result: &str) -> u64 {
        self.answers.with_label_values(&["train", result]).get()
    }
}

struct Peer(BufReader<TcpStream>);

impl Peer {
    async fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, group: &str, backend: u32, count: u64) {
        self.send(&format!("CONFIG_REQ;{group},{backend},{count}")).await;
    }

    /// Returns the next line; empty after the end of the connection.
    async fn line(&mut self) -> String {
        let mut line = String::new();
        let within = Duration::from_secs(10);
        timeout(within, self.0.read_line(&mut line)).await.unwrap().unwrap();
        line.trim_end().to_owned()
    }

    /// Returns the code of a refusal; `lit` for a grant.
    async fn answer(&mut self, group: &str, backend: u32, count: u64) -> String {
        let (mut line, mut code) = (self.line().await, "lit".to_owned());
        if let Some(body) = line.strip_prefix("CONFIG_NACK;") {
            let (operation, found) = body.rsplit_once(',').unwrap();
            assert_eq!(operation, format!("{group},{backend},{count}"));
            code = found.to_owned();
            line = self.line().await;
        }
        assert_eq!(line, format!("CONFIG_ACK;{group}"));
        code
    }

    async fn expect_silence(&mut self) {
        let more = timeout(Duration::from_millis(20), self.0.fill_buf()).await;
        assert!(more.is_err(), "{more:?}");
    }
}

#[tokio::test]
async fn phase_is_requested_once_when_all_members_ask() {
    let rig = Rig::start().await;
    let a = group('A');
    let [mut first, mut second] = rig.members(&a).await;
    for count in 0..3 {
        first.ask(&a, 2, count).await;
        first.ask(&a, 2, count).await;
        first.expect_silence().await;
        assert_eq!(rig.received("phase").len(), count as usize);
        second.ask(&a, 2, count).await;
        assert_eq!(first.answer(&a, 2, count).await, "lit");
        assert_eq!(second.answer(&a, 2, count).await, "lit");
        first.expect_silence().await;
    }
    let asked = &rig.received("phase")[2];
    assert_eq!((&asked["phase"], &asked["job"]), (&json!("lit"), &json!("train")));
    assert_eq!((&asked["for_ms"], &asked["lease_ms"]), (&json!(2000), &json!(2000)));
    assert_eq!(rig.received.lock().unwrap()[0].1, "job-lines:train");
    assert_eq!(rig.counted("lit"), 3);
}

#[tokio::test]
async fn every_failure_has_an_answer_in_time() {
    let rig = Rig::start().await;
    let (a, b) = (group('A'), group('B'));
    let [mut first, mut second] = rig.members(&a).await;
    for (backend, code) in [(4, "missed"), (9, "no-such-backend"), (3, "too-slow")] {
        let began = Instant::now();
        first.ask(&a, backend, 0).await;
        second.ask(&a, backend, 0).await;
        assert_eq!(first.answer(&a, backend, 0).await, code);
        assert_eq!(second.answer(&a, backend, 0).await, code);
        assert!(began.elapsed() < ANSWER_WITHIN + SOON, "{code}: {:?}", began.elapsed());
        assert_eq!(rig.counted(code), 1);
    }
    first.ask(&b, 2, 0).await;
    assert_eq!(first.answer(&b, 2, 0).await, "not-joined");

    // Another job, which the lease of the first one excludes, does not wait for it.
    let mut other = rig.process([127, 0, 0, 3]).await;
    other.send(&format!("COMM;{b},1,0")).await;
    assert_eq!(other.line().await, format!("CHECKIN_ACK;{b},1"));
    other.ask(&b, 2, 0).await;
    assert_eq!(other.answer(&b, 2, 0).await, "lease-held");
    other.send(&format!("COMM;{a},2,0")).await;
    assert_eq!(other.line().await, format!("CHECKIN_ACK;{a},-1"), "a group of the other job");
}

#[tokio::test]
async fn missing_member_delays_the_others_no_longer_than_configured() {
    let rig = Rig::start().await;
    let a = group('A');
    let [mut first, mut second, mut third] = rig.members(&a).await;
    let began = Instant::now();
    first.ask(&a, 2, 0).await;
    second.ask(&a, 2, 0).await;
    assert_eq!(first.answer(&a, 2, 0).await, "members-missing");
    assert_eq!(second.answer(&a, 2, 0).await, "members-missing");
    assert!((MEMBERS_WITHIN..ANSWER_WITHIN).contains(&began.elapsed()), "{:?}", began.elapsed());

    // The late member does not wait for the others, whose request has ended.
    let began = Instant::now();
    third.ask(&a, 2, 0).await;
    assert_eq!(third.answer(&a, 2, 0).await, "late");
    assert!(began.elapsed() < SOON);
    assert!(rig.received("phase").is_empty());
    for member in [&mut first, &mut second, &mut third] {
        member.expect_silence().await;
        member.ask(&a, 2, 1).await;
    }
    for member in [&mut first, &mut second, &mut third] {
        assert_eq!(member.answer(&a, 2, 1).await, "lit");
    }

    // A member whose connection closes cannot ask any more.
    let began = Instant::now();
    first.ask(&a, 2, 2).await;
    first.expect_silence().await;
    drop(third);
    assert_eq!(first.answer(&a, 2, 2).await, "member-gone");
    assert!(began.elapsed() < SOON);

    // Its replacement completes the group again.
    let mut third = rig.process([127, 0, 0, 1]).await;
    third.send(&format!("COMM;{a},3,2")).await;
    assert_eq!(third.line().await, format!("CHECKIN_ACK;{a},0"));
    for member in [&mut second, &mut third, &mut first] {
        member.ask(&a, 2, 3).await;
    }
    assert_eq!(third.answer(&a, 2, 3).await, "lit");
}

#[tokio::test]
async fn groups_that_need_a_phase_together_change_circuits_once() {
    let rig = Rig::start().await;
    let (a, b) = (group('A'), group('B'));
    let [mut first, mut second] = rig.members(&a).await;
    let [mut third, mut fourth] = rig.members(&b).await;
    for count in 0..3 {
        first.ask(&a, 5, count).await;
        second.ask(&a, 5, count).await;
        third.ask(&b, 5, 7 * count).await;
        first.expect_silence().await;
        assert_eq!(rig.received("phase").len(), count as usize, "group B uses its circuits");
        fourth.ask(&b, 5, 7 * count).await;
        for member in [&mut first, &mut second] {
            assert_eq!(member.answer(&a, 5, count).await, "lit");
        }
        for member in [&mut third, &mut fourth] {
            assert_eq!(member.answer(&b, 5, 7 * count).await, "lit");
        }
        assert_eq!(rig.received("phase").len(), count as usize + 1);
    }

    // A group that stays away delays the other no longer than a rank may.
    let began = Instant::now();
    first.ask(&a, 5, 3).await;
    second.ask(&a, 5, 3).await;
    assert_eq!(first.answer(&a, 5, 3).await, "groups-missing");
    assert_eq!(second.answer(&a, 5, 3).await, "groups-missing");
    assert!(began.elapsed() < ANSWER_WITHIN + SOON, "{:?}", began.elapsed());
    third.ask(&b, 5, 21).await;
    fourth.ask(&b, 5, 21).await;
    third.expect_silence().await;
    assert_eq!(rig.received("phase").len(), 3, "group A waits no longer");
    first.ask(&a, 5, 4).await;
    second.ask(&a, 5, 4).await;
    for (member, group, count) in
        [(&mut first, &a, 4), (&mut second, &a, 4), (&mut third, &b, 21), (&mut fourth, &b, 21)]
    {
        assert_eq!(member.answer(group, 5, count).await, "lit");
    }

    // Groups that ask for different phases are served in turn, and none waits for the other.
    let began = Instant::now();
    first.ask(&a, 2, 5).await;
    third.ask(&b, 4, 22).await;
    second.ask(&a, 2, 5).await;
    fourth.ask(&b, 4, 22).await;
    assert_eq!(first.answer(&a, 2, 5).await, "lit");
    assert_eq!(third.answer(&b, 4, 22).await, "missed");
    assert!(began.elapsed() < SOON);
}

#[tokio::test]
async fn request_ids_are_unique_across_restarts() {
    let mut ids = BTreeSet::new();
    for _ in 0..2 {
        let rig = Rig::start().await;
        let a = group('A');
        let [mut only] = rig.members(&a).await;
        for _ in 0..2 {
            // A shim counts both directions between two stages from the same number.
            only.ask(&a, 11, 1_000_000).await;
            assert_eq!(only.answer(&a, 11, 1_000_000).await, "lit");
        }
        ids.extend(rig.received("phase").iter().map(|body| body["request_id"].to_string()));
    }
    assert_eq!(ids.len(), 4, "{ids:?}");
}

#[tokio::test]
async fn two_members_suffice_between_pipeline_stages() {
    let rig = Rig::start().await;
    let a = group('A');
    let [mut first, mut second, mut third] = rig.members(&a).await;
    first.ask(&a, 11, 1_000_000).await;
    second.ask(&a, 11, 1_000_000).await;
    assert_eq!(first.answer(&a, 11, 1_000_000).await, "lit");
    assert_eq!(second.answer(&a, 11, 1_000_000).await, "lit");
    third.expect_silence().await;
}

#[tokio::test]
async fn job_without_connections_releases_its_lease_once() {
    let rig = Rig::start().await;
    let a = group('A');
    let [mut first, mut second] = rig.members(&a).await;
    first.ask(&a, 2, 0).await;
    second.ask(&a, 2, 0).await;
    assert_eq!(second.answer(&a, 2, 0).await, "lit");
    drop(first);
    second.expect_silence().await;
    assert!(rig.received("release").is_empty(), "a member remains");
    drop(second);
    let until = Instant::now() + Duration::from_secs(5);
    while rig.received("release").is_empty() {
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(rig.received("release")[0]["job"], "train");
    drop(rig.members::<2>(&group('C')).await);
    sleep(SOON).await;
    assert_eq!(rig.received("release").len(), 1, "the second run requested no phase");
}

#[tokio::test]
async fn late_join_is_not_answered_after_the_shim_gave_up() {
    let rig = Rig::start().await;
    let (a, mut first) = (group('A'), rig.process([127, 0, 0, 1]).await);
    first.send("").await;
    first.send(&format!("COMM;{a},2,0\r")).await;
    sleep(Duration::from_millis(950)).await;
    let mut second = rig.process([127, 0, 0, 2]).await;
    second.send(&format!("COMM;{a},2,1")).await;
    assert_eq!(second.line().await, format!("CHECKIN_ACK;{a},0"));
    first.expect_silence().await;
    let mut third = rig.process([127, 0, 0, 2]).await;
    third.send(&format!("COMM;{a},2,1")).await;
    assert_eq!(third.line().await, format!("CHECKIN_ACK;{a},-1"), "the group is full");
}

#[tokio::test]
async fn strangers_and_malformed_lines_lose_their_connection() {
    let rig = Rig::start().await;
    let a = group('A');
    let lines = [
        "COMM".to_owned(),
        format!("HELLO;{a},1,0"),
        format!("COMM;{a},0,0"),
        format!("COMM;{a},4097,0"),
        format!("COMM;{a},2"),
        format!("COMM;{a},2,0,0"),
        format!("COMM;{},2,0", a.to_lowercase()),
        format!("CONFIG_REQ;{a},-1,0"),
        format!("CONFIG_REQ;{a},2,{}", "9".repeat(100)),
    ];
    for line in lines {
        let mut process = rig.process([127, 0, 0, 1]).await;
        process.send(&line).await;
        assert_eq!(process.line().await, "", "{line}");
    }
    let mut stranger = rig.process([127, 0, 0, 4]).await;
    assert_eq!(stranger.line().await, "", "the configuration does not list its host");
}

#[test]
fn ambiguous_jobs_and_phases_are_rejected() {
    let mistakes = |jobs: &str| {
        let file = format!("state_dir: s\njob_lines: {{listen: '127.0.0.1:1', jobs: [{jobs}]}}\n");
        let (config, mistakes) = crate::config::load("daemon.yaml", file.as_bytes());
        assert_eq!(config.is_some(), mistakes.is_empty());
        mistakes.len()
    };
    let phase = "{backend: 2, phase: a, for: 1s}";
    let job =
        |host: &str, phases: &str| format!("{{name: a, hosts: [{host}], phases: [{phases}]}}");
    assert_eq!(mistakes(&[job("10.0.0.1", phase), job("10.0.0.2", phase)].join(", ")), 0);
    assert_eq!(mistakes(&[job("10.0.0.1", phase), job("10.0.0.1", phase)].join(", ")), 1);
    assert_eq!(mistakes(&job("", &format!("{phase}, {phase}"))), 2);
    assert_eq!(mistakes(&job("::1", "{backend: 2, phase: a, for: 0ms}")), 1);
    assert_eq!(mistakes(&job("::1", "{backend: 2, phase: a, for: 25h}")), 1);
}
