//! A small HTTP client over a Unix socket: one request a connection, bounded answers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// A daemon that has nothing to wait for begins its answer within this, unless it is busy.
const FIRST_BYTE_WITHIN: Duration = Duration::from_millis(900);
/// The daemon answers long polls within a minute.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

/// The way to the daemon.
#[derive(Clone)]
pub(super) struct Client {
    socket: PathBuf,
}

/// What it answered.
pub(super) struct Response {
    /// The HTTP status code.
    pub(super) code: u16,
    /// The JSON body; null when there is none.
    pub(super) body: Value,
}

impl Response {
    pub(super) fn is_good(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl Client {
    pub(super) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    pub(super) fn get(&self, path: &str) -> anyhow::Result<Response> {
        parse(&self.raw_get(path)?)
    }

    /// The answer as it came, head and all.
    pub(super) fn raw_get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.talk(
            &format!("GET {path} HTTP/1.1\r\nHost: lightloomd\r\nConnection: close\r\n\r\n"),
            &[],
        )
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> anyhow::Result<Response> {
        let body = serde_json::to_vec(body)?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: lightloomd\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        parse(&self.talk(&head, &body)?)
    }

    fn talk(&self, head: &str, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        let shown = self.socket.display();
        let mut stream = UnixStream::connect(&self.socket).with_context(|| {
            format!(
                "cannot reach lightloomd at {shown}: is it running? (--socket or LIGHTLOOM_SOCKET)"
            )
        })?;
        stream.set_read_timeout(Some(FIRST_BYTE_WITHIN))?;
        stream.write_all(head.as_bytes()).context("the daemon hung up")?;
        stream.write_all(body).context("the daemon hung up")?;
        let mut first = [0];
        let begun = match stream.read(&mut first) {
            Ok(count) => &first[..count],
            Err(error) if is_late(&error) && self.is_lightloomd() => &[],
            Err(error) if is_late(&error) => bail!("{}", self.other("it does not answer")),
            Err(error) => return Err(error).context("the daemon does not answer"),
        };
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
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

    /// Whether somebody at the socket gives what the daemon gives without having to think.
    fn is_lightloomd(&self) -> bool {
        let ask = || -> std::io::Result<bool> {
            let mut stream = UnixStream::connect(&self.socket)?;
            stream.set_read_timeout(Some(FIRST_BYTE_WITHIN))?;
            stream.write_all(
                b"GET /openapi.json HTTP/1.1\r\nHost: lightloomd\r\nConnection: close\r\n\r\n",
            )?;
            let mut start = [0; 5];
            stream.read_exact(&mut start)?;
            Ok(start == *b"HTTP/")
        };
        ask().unwrap_or(false)
    }

    fn other(&self, what: &str) -> String {
        format!(
            "{} is not the socket of lightloomd: {what}. Name lightloomd's with --socket or LIGHTLOOM_SOCKET: it is \
             `lightloomd.sock` in the `state_dir` of its file; the one given to `lightloom device serve --control` \
             is for `lightloom device fault`",
            self.socket.display()
        )
    }
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn parse(answer: &[u8]) -> anyhow::Result<Response> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let Some(end) = end else { bail!("the daemon hung up in the middle of its answer") };
    let head = String::from_utf8_lossy(&answer[..end]);
    let code = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    let code = code.context("the answer is not HTTP")?;
    let body = &answer[end + 4..];
    let body = if body.is_empty() {
        Value::Null
    } else {
        // Refusals of the HTTP layer itself are plain text.
        serde_json::from_slice(body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).trim().to_owned()))
    };
    Ok(Response { code, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_code_and_json() {
        let response = parse(b"HTTP/1.1 409 Conflict\r\na: b\r\n\r\n{\"x\":1}").unwrap();
        assert_eq!((response.code, response.is_good()), (409, false));
        assert_eq!(response.body["x"], 1);
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_err());
        assert_eq!(parse(b"HTTP/1.1 413 x\r\n\r\ntoo large").unwrap().body, "too large");
    }
}
