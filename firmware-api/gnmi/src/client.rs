// SPDX-License-Identifier: Apache-2.0
//! A gNMI client without a socket, which converts calls to bytes and received bytes to answers.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::message::{
    CapabilityRequest, CapabilityResponse, GetRequest, GetResponse, SetRequest, SetResponse,
    SubscribeAsk, SubscribeRequest, SubscribeResponse, SubscriptionList,
};
use crate::wire::{Pipe, Spawner, Tasks, locked};

const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Flow control window, large enough for a whole answer.
const WINDOW_BYTES: u32 = 4 << 20;

/// A call to a device.
#[derive(Clone, Debug, PartialEq)]
pub enum GnmiCall {
    /// Queries the capabilities.
    Capabilities,
    /// Reads values.
    Get(GetRequest),
    /// Changes values.
    Set(SetRequest),
    /// Subscribes to changes.
    Subscribe(SubscriptionList),
}

/// Result of a call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Answer to [`GnmiCall::Capabilities`].
    Capabilities(CapabilityResponse),
    /// Requested values.
    Got(GetResponse),
    /// The device accepted the change.
    Set(SetResponse),
    /// The device accepted the subscription.
    Subscribed,
    /// Values or changes from a subscription.
    Heard(SubscribeResponse),
    /// The device ended the subscription.
    SubscriptionEnded,
    /// The device or a proxy refused the call.
    Refused(Status),
}

/// Credentials for a device.
#[derive(Clone, PartialEq, Eq)]
pub struct GnmiLogin {
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
}

impl fmt::Debug for GnmiLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GnmiLogin").field("user", &self.user).finish_non_exhaustive()
    }
}

impl GnmiLogin {
    /// Returns an error for credentials that are not valid in HTTP headers.
    pub fn check(&self) -> Result<(), String> {
        self.metadata().map(drop)
    }

    fn metadata(&self) -> Result<MetadataMap, String> {
        let mut metadata = MetadataMap::new();
        for (key, what, text) in
            [("username", "user", &self.user), ("password", "password", &self.password)]
        {
            let mut value = AsciiMetadataValue::try_from(text)
                .map_err(|_| format!("the {what} contains non-ASCII characters"))?;
            value.set_sensitive(true);
            metadata.insert(key, value);
        }
        Ok(metadata)
    }
}

type Answers = Arc<Mutex<VecDeque<(u32, Answer)>>>;

/// A connection to a device.
#[derive(Debug)]
pub struct GnmiClient {
    pipe: Pipe,
    tasks: Tasks,
    calls: UnboundedSender<(u32, GnmiCall)>,
    answers: Answers,
    ended: Arc<Mutex<Option<String>>>,
}

impl GnmiClient {
    /// Connects without credentials. `authority` is the device's `host:port`.
    pub fn new(authority: &str) -> Result<Self, String> {
        Self::for_account(authority, None)
    }

    /// Connects with optional credentials, which are sent in the metadata of each call.
    pub fn for_account(authority: &str, login: Option<&GnmiLogin>) -> Result<Self, String> {
        let metadata = login.map_or_else(|| Ok(MetadataMap::new()), GnmiLogin::metadata)?;
        let origin: http::Uri = format!("http://{authority}")
            .parse()
            .map_err(|error| format!("`{authority}` is not a valid `host:port`: {error}"))?;
        let (pipe, tasks, answers) = (Pipe::default(), Tasks::default(), Answers::default());
        let ended = Arc::default();
        let (calls, waiting) = mpsc::unbounded_channel();
        let spawner = tasks.spawner();
        let running = run(
            pipe.clone(),
            spawner.clone(),
            (origin, metadata, waiting),
            Arc::clone(&answers),
            Arc::clone(&ended),
        );
        spawner.execute(running);
        Ok(Self { pipe, tasks, calls, answers, ended })
    }

    /// Starts a call. Its answers have the same `number`.
    pub fn call(&mut self, number: u32, call: GnmiCall) {
        // Ignore errors: sending fails only on a closed connection, which `ended` reports.
        let _ = self.calls.send((number, call));
        self.tasks.run();
    }

    /// Processes received bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.pipe.push(bytes);
        self.tasks.run();
    }

    /// Returns the bytes to send.
    pub fn take_output(&mut self) -> Vec<u8> {
        self.tasks.run();
        self.pipe.take()
    }

    /// Returns the next answer and its call number.
    pub fn next_answer(&mut self) -> Option<(u32, Answer)> {
        locked(&self.answers).pop_front()
    }

    /// Returns the reason why the connection ended. `None` while it is open.
    pub fn ended(&self) -> Option<String> {
        locked(&self.ended).clone()
    }
}

async fn run(
    pipe: Pipe,
    spawner: Spawner,
    (origin, metadata, mut calls): (http::Uri, MetadataMap, UnboundedReceiver<(u32, GnmiCall)>),
    answers: Answers,
    ended: Arc<Mutex<Option<String>>>,
) {
    let mut http2 = Builder::new(spawner.clone());
    http2.initial_stream_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    let (send, connection) = match http2.handshake::<_, Body>(pipe).await {
        Ok(both) => both,
        Err(error) => {
            *locked(&ended) = Some(error.to_string());
            return;
        }
    };
    spawner.execute(async move {
        let why = match connection.await {
            Ok(()) => "the device closed the connection".to_owned(),
            Err(error) => format!("HTTP/2: {error}"),
        };
        *locked(&ended) = Some(why);
    });
    while let Some((number, call)) = calls.recv().await {
        let grpc = Grpc::with_origin(HyperTransport(send.clone()), origin.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        spawner.execute(perform(grpc, metadata.clone(), number, call, Arc::clone(&answers)));
    }
}

fn asked<T>(metadata: MetadataMap, message: T) -> Request<T> {
    Request::from_parts(metadata, tonic::Extensions::default(), message)
}

/// Removes the password, because messages are logged and some devices echo it.
fn without_password(status: Status, sent: &MetadataMap) -> Status {
    let password = sent.get("password").and_then(|password| password.to_str().ok());
    match password {
        Some(password) if !password.is_empty() && status.message().contains(password) => {
            Status::new(status.code(), status.message().replace(password, "…"))
        }
        _ => status,
    }
}

async fn perform(
    mut grpc: Grpc<HyperTransport>,
    metadata: MetadataMap,
    number: u32,
    call: GnmiCall,
    answers: Answers,
) {
    let sent = metadata.clone();
    let ready = grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()));
    let answer = match (ready, call) {
        (Err(status), _) => Err(status),
        (Ok(()), GnmiCall::Capabilities) => {
            let codec = ProstCodec::<CapabilityRequest, CapabilityResponse>::default();
            let path = PathAndQuery::from_static("/gnmi.gNMI/Capabilities");
            let answer = grpc.unary(asked(metadata, CapabilityRequest {}), path, codec).await;
            answer.map(|answer| Answer::Capabilities(answer.into_inner()))
        }
        (Ok(()), GnmiCall::Get(get)) => {
            let codec = ProstCodec::<GetRequest, GetResponse>::default();
            let path = PathAndQuery::from_static("/gnmi.gNMI/Get");
            let answer = grpc.unary(asked(metadata, get), path, codec).await;
            answer.map(|answer| Answer::Got(answer.into_inner()))
        }
        (Ok(()), GnmiCall::Set(set)) => {
            let codec = ProstCodec::<SetRequest, SetResponse>::default();
            let path = PathAndQuery::from_static("/gnmi.gNMI/Set");
            let answer = grpc.unary(asked(metadata, set), path, codec).await;
            answer.map(|answer| Answer::Set(answer.into_inner()))
        }
        (Ok(()), GnmiCall::Subscribe(list)) => {
            subscribe(grpc, metadata, number, list, &answers).await
        }
    };
    let answer = answer.unwrap_or_else(|status| Answer::Refused(without_password(status, &sent)));
    locked(&answers).push_back((number, answer));
}

async fn subscribe(
    mut grpc: Grpc<HyperTransport>,
    metadata: MetadataMap,
    number: u32,
    list: SubscriptionList,
    answers: &Answers,
) -> Result<Answer, Status> {
    use tokio_stream::StreamExt;
    let ask = SubscribeRequest { request: Some(SubscribeAsk::Subscribe(list)) };
    // Keep the request stream open, because some devices end the subscription with it.
    let asks = tokio_stream::once(ask).chain(tokio_stream::pending());
    let codec = ProstCodec::<SubscribeRequest, SubscribeResponse>::default();
    let path = PathAndQuery::from_static("/gnmi.gNMI/Subscribe");
    let mut heard = grpc.streaming(asked(metadata, asks), path, codec).await?.into_inner();
    locked(answers).push_back((number, Answer::Subscribed));
    while let Some(response) = heard.message().await? {
        locked(answers).push_back((number, Answer::Heard(response)));
    }
    Ok(Answer::SubscriptionEnded)
}

struct HyperTransport(SendRequest<Body>);

impl tower_service::Service<http::Request<Body>> for HyperTransport {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_message_hides_the_password() {
        let login = GnmiLogin { user: "me".into(), password: "xyzzy".into() };
        let metadata = login.metadata().unwrap();
        let said = Status::permission_denied("not authorized with \"me:xyzzy\"");
        let shown = without_password(said, &metadata);
        assert_eq!(shown.message(), "not authorized with \"me:…\"");
        assert_eq!(shown.code(), tonic::Code::PermissionDenied);
        assert!(!format!("{login:?}{metadata:?}").contains("xyzzy"));
    }
}
