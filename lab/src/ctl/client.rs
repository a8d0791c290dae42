// SPDX-License-Identifier: Apache-2.0

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::address::DaemonAddress;
use lightloom::output;

const ANSWER_BYTES_MAX: u64 = 256 << 20;
const FIRST_BYTE_WITHIN: Duration = Duration::from_millis(900);
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

/// Delay before the first retry, which doubles with each further retry.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
const TIMES_HUNG_UP_ON: u32 = 4;
/// Leaves time for a takeover, because a lease expires in 3 s.
const LEADS_WITHIN: Duration = Duration::from_secs(6);
const ROOM_WITHIN: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct DaemonClient {
    addresses: Vec<DaemonAddress>,
    leads: Arc<AtomicUsize>,
}

pub(super) struct Response {
    pub(super) code: u16,
    pub(super) body: Value,
    /// From the `Retry-After` header.
    retry_after: Option<Duration>,
}

impl Response {
    pub(super) fn is_good(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Like [`Self::read`], with a refusal as an error.
    pub(super) fn granted<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        anyhow::ensure!(self.is_good(), "{}", super::show::refusal(&self.body));
        self.read()
    }

    pub(super) fn read<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        T::deserialize(&self.body).context(
            "cannot parse the daemon's answer: use the same version of `lightloom` as the daemon, or --format json",
        )
    }
}

impl DaemonClient {
    pub(super) fn new(addresses: Vec<DaemonAddress>) -> Self {
        Self { addresses, leads: Arc::default() }
    }

    fn address(&self) -> &DaemonAddress {
        &self.addresses[self.leads.load(Ordering::Relaxed) % self.addresses.len()]
    }

    /// Sends the request to the leader, and waits a short time for a takeover if there is none.
    fn talk_to_leader(&self, pieces: &[&[u8]]) -> anyhow::Result<Vec<u8>> {
        let until = Instant::now() + LEADS_WITHIN;
        loop {
            let mut best = None;
            for _ in 0..self.addresses.len() {
                let answer = self.talk_again(pieces);
                if answer.as_ref().is_ok_and(|answer| !stands_by(answer)) {
                    return answer;
                }
                // A standby's response is more useful than an error: it contains the leader's name.
                if best.as_ref().is_none_or(anyhow::Result::is_err) {
                    best = Some(answer);
                }
                self.leads.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(best) = best.filter(|_| self.addresses.len() == 1 || Instant::now() > until)
            {
                return match &self.addresses[..] {
                    [_] => best,
                    several => best.with_context(|| {
                        let named: Vec<String> = several.iter().map(DaemonAddress::shown).collect();
                        format!("none of {} daemons answered: {}", named.len(), named.join(", "))
                    }),
                };
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }

    pub(super) fn get(&self, path: &str) -> anyhow::Result<Response> {
        self.until_room(|| parse(&self.raw_get(path)?))
    }

    pub(super) fn raw_get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: lightloomd\r\nConnection: close\r\n\r\n");
        self.talk_to_leader(&[head.as_bytes()])
    }

    /// Retries are safe, because the request id makes the change take effect only once.
    pub(super) fn post(&self, path: &str, body: &impl Serialize) -> anyhow::Result<Response> {
        let body = serde_json::to_vec(body)?;
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: lightloomd\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        self.until_room(|| parse(&self.talk_to_leader(&[head.as_bytes(), &body])?))
    }

    fn until_room(&self, ask: impl Fn() -> anyhow::Result<Response>) -> anyhow::Result<Response> {
        let (until, mut wait) = (Instant::now() + ROOM_WITHIN, AGAIN_AFTER);
        loop {
            let response = ask()?;
            let asked_for = response.retry_after.unwrap_or_default();
            wait = wait.max(asked_for).min(ROOM_WITHIN);
            if response.code != 429 || Instant::now() + wait > until {
                return Ok(response);
            }
            output::note(&format!(
                "{}; retrying in {:.1} s",
                super::show::refusal(&response.body),
                wait.as_secs_f64()
            ));
            std::thread::sleep(wait);
            wait *= 2;
        }
    }

    /// Retries if the daemon had no free connection and closed this one without a response.
    fn talk_again(&self, pieces: &[&[u8]]) -> anyhow::Result<Vec<u8>> {
        let (mut wait, mut times) = (AGAIN_AFTER, 0);
        loop {
            let answer = self.talk(pieces);
            let hung_up = match &answer {
                Ok(answer) => answer.is_empty(),
                Err(error) => error.downcast_ref::<std::io::Error>().is_some_and(is_hung_up),
            };
            times += 1;
            if !hung_up || times > TIMES_HUNG_UP_ON {
                return answer;
            }
            std::thread::sleep(wait);
            wait *= 2;
        }
    }

    fn talk(&self, pieces: &[&[u8]]) -> anyhow::Result<Vec<u8>> {
        let shown = self.address().shown();
        let mut stream = self.address().open().with_context(|| {
            format!(
                "cannot reach lightloomd at {shown}: is it running? (--socket or LIGHTLOOM_SOCKET)"
            )
        })?;
        stream.patience(FIRST_BYTE_WITHIN)?;
        let sent = pieces.iter().try_for_each(|piece| stream.write_all(piece));
        let sent = sent.and_then(|()| stream.flush());
        // A daemon that refuses a long body has already sent the reason.
        let unsent = match sent {
            Err(error) if is_hung_up(&error) => Some(error),
            sent => {
                sent.map_err(|error| refused(error, "the daemon closed the connection"))?;
                None
            }
        };
        let mut first = [0];
        let begun = match (stream.read(&mut first), unsent) {
            (Ok(0) | Err(_), Some(error)) => {
                return Err(error).context("the daemon closed the connection");
            }
            (begun, _) => begun,
        };
        let begun = match begun {
            Ok(count) => &first[..count],
            Err(error) if is_late(&error) && self.speaks_http().unwrap_or(false) => &[],
            Err(error) if is_late(&error) => bail!("{}", self.other("it does not answer")),
            Err(error) => return Err(refused(error, "the daemon does not answer")),
        };
        stream.patience(ANSWER_WITHIN)?;
        if begun.first().is_some_and(|first| *first != b'H') {
            bail!("{}", self.other("its answers are not HTTP"));
        }
        let mut answer = begun.to_vec();
        stream
            .take(ANSWER_BYTES_MAX)
            .read_to_end(&mut answer)
            .context("the daemon does not answer")?;
        Ok(answer)
    }

    fn speaks_http(&self) -> anyhow::Result<bool> {
        let mut stream = self.address().open()?;
        stream.patience(FIRST_BYTE_WITHIN)?;
        stream.write_all(
            b"GET /openapi.json HTTP/1.1\r\nHost: lightloomd\r\nConnection: close\r\n\r\n",
        )?;
        let mut start = [0; 5];
        stream.read_exact(&mut start)?;
        Ok(start == *b"HTTP/")
    }

    fn other(&self, what: &str) -> String {
        format!(
            "{} is not the socket of lightloomd: {what}. Set --socket or LIGHTLOOM_SOCKET to lightloomd's socket, which is \
                `lightloomd.sock` in its `state_dir`; the socket of `lightloom device serve --control` is for \
                `lightloom device fault`",
            self.address().shown()
        )
    }
}

fn stands_by(answer: &[u8]) -> bool {
    answer.starts_with(b"HTTP/1.1 421")
}

fn is_hung_up(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

fn refused(error: std::io::Error, otherwise: &'static str) -> anyhow::Error {
    use tokio_rustls::rustls::Error::{AlertReceived, InvalidCertificate};
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    let about = match tls {
        Some(InvalidCertificate(_)) => {
            "the daemon's certificate was rejected: --ca must contain the CA that signed it, and its name must match the host"
        }
        Some(AlertReceived(_)) => {
            "the daemon rejects this client: --certificate must be signed by a CA that it trusts"
        }
        _ => otherwise,
    };
    anyhow::Error::new(error).context(about)
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn parse(answer: &[u8]) -> anyhow::Result<Response> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let Some(end) = end else {
        bail!("the daemon closed the connection before the end of its answer")
    };
    let head = String::from_utf8_lossy(&answer[..end]);
    let code = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    let code = code.context("the answer is not HTTP")?;
    let retry_after = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let seconds = value.trim().parse().ok();
        seconds.filter(|_| name.eq_ignore_ascii_case("retry-after")).map(Duration::from_secs)
    });
    let body = &answer[end + 4..];
    let body = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).trim().to_owned()))
    };
    Ok(Response { code, body, retry_after })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_responses_into_code_and_json() {
        let response = parse(b"HTTP/1.1 409 Conflict\r\na: b\r\n\r\n{\"x\":1}").unwrap();
        assert_eq!((response.code, response.is_good()), (409, false));
        assert_eq!(response.body["x"], 1);
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_err());
        let busy = parse(b"HTTP/1.1 429 x\r\nRetry-After: 3\r\n\r\n").unwrap();
        assert_eq!(busy.retry_after, Some(Duration::from_secs(3)));
        assert_eq!(parse(b"HTTP/1.1 413 x\r\n\r\ntoo large").unwrap().body, "too large");
    }
}
