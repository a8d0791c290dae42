// SPDX-License-Identifier: Apache-2.0
//! A gNMI server without a socket. It converts received bytes to calls, which a [`Target`] answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use tokio::sync::mpsc::Receiver;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::message::{
    CapabilityRequest, CapabilityResponse, GetRequest, GetResponse, SetRequest, SetResponse,
    SubscribeRequest, SubscribeResponse,
};
use crate::wire::{Pipe, Tasks, locked};

const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// This call does not require a login.
const CAPABILITIES: &str = "/gnmi.gNMI/Capabilities";
const WINDOW_BYTES: u32 = 4 << 20;
const CALLS_MAX: u32 = 128;

/// Future of a trait object.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Updates for a subscriber. An error ends the subscription.
pub type SubscriptionItem = Receiver<Result<SubscribeResponse, Status>>;

/// A device behind the server.
pub trait Target: Send + Sync + 'static {
    /// Credentials required for Get and Set, if any.
    fn login(&self) -> Option<(String, String)> {
        None
    }
    /// Returns the capabilities of the device.
    fn capabilities(&self) -> Boxed<Result<CapabilityResponse, Status>>;
    /// Reads values.
    fn get(&self, request: GetRequest) -> Boxed<Result<GetResponse, Status>>;
    /// Changes values.
    fn set(&self, request: SetRequest) -> Boxed<Result<SetResponse, Status>>;
    /// Starts a subscription, and returns its updates.
    fn subscribe(
        &self,
        asks: Streaming<SubscribeRequest>,
    ) -> Boxed<Result<SubscriptionItem, Status>>;
}

/// A client's connection.
#[derive(Debug)]
pub struct Connection {
    pipe: Pipe,
    tasks: Tasks,
    ended: Arc<Mutex<bool>>,
}

impl Connection {
    /// Accepts a client.
    pub fn new<T: Target>(target: Arc<T>) -> Self {
        let (pipe, tasks, ended) = (Pipe::default(), Tasks::default(), Arc::default());
        let service = service_fn(move |request| answer(Arc::clone(&target), request));
        let mut http2 = Builder::new(tasks.spawner());
        http2
            .auto_date_header(false)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_concurrent_streams(CALLS_MAX);
        let serving = http2.serve_connection(pipe.clone(), service);
        let is_over = Arc::clone(&ended);
        tasks.spawner().execute(async move {
            // Ignore errors, because the connection is closed in either case.
            let _ = serving.await;
            *locked(&is_over) = true;
        });
        Self { pipe, tasks, ended }
    }

    /// Adds received bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.pipe.push(bytes);
    }

    /// Returns whether a task can make progress.
    pub fn is_woken(&self) -> bool {
        self.tasks.are_woken()
    }

    /// Runs all tasks as far as possible, and returns the bytes to send.
    pub fn run(&mut self) -> Vec<u8> {
        self.tasks.run();
        self.pipe.take()
    }

    /// Returns whether the connection should be closed.
    pub fn has_ended(&self) -> bool {
        *locked(&self.ended)
    }
}

async fn answer<T: Target>(
    target: Arc<T>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Body>, Infallible> {
    let given = ["username", "password"]
        .map(|name| request.headers().get(name).and_then(|value| value.to_str().ok()));
    if let Some((user, password)) = target.login()
        && request.uri().path() != CAPABILITIES
        && given != [Some(&*user), Some(&*password)]
    {
        let why = "the metadata does not contain the correct user and password";
        return Ok(Status::unauthenticated(why).into_http());
    }
    let unary = Unary(Arc::clone(&target));
    Ok(match request.uri().path() {
        CAPABILITIES => {
            let codec = ProstCodec::<CapabilityResponse, CapabilityRequest>::default();
            Grpc::new(codec).unary(unary, request).await
        }
        "/gnmi.gNMI/Get" => {
            let codec = ProstCodec::<GetResponse, GetRequest>::default();
            Grpc::new(codec).unary(unary, request).await
        }
        "/gnmi.gNMI/Set" => {
            let codec = ProstCodec::<SetResponse, SetRequest>::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(MESSAGE_BYTES_MAX);
            grpc.unary(unary, request).await
        }
        "/gnmi.gNMI/Subscribe" => {
            let codec = ProstCodec::<SubscribeResponse, SubscribeRequest>::default();
            Grpc::new(codec).streaming(Subscriber(target), request).await
        }
        other => {
            let why = format!(
                "unknown method `{other}`: this server supports Capabilities, Get, Set and Subscribe"
            );
            Status::unimplemented(why).into_http()
        }
    })
}

struct Unary<T>(Arc<T>);

macro_rules! unary {
    ($request:ty, $response:ty, |$target:ident, $asked:ident| $call:expr) => {
        impl<T: Target> tower_service::Service<Request<$request>> for Unary<T> {
            type Response = Response<$response>;
            type Error = Status;
            type Future = Boxed<Result<Self::Response, Status>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: Request<$request>) -> Self::Future {
                let ($target, $asked) = (&self.0, request.into_inner());
                let answer = $call;
                Box::pin(async move { answer.await.map(Response::new) })
            }
        }
    };
}

unary!(CapabilityRequest, CapabilityResponse, |target, _asked| target.capabilities());
unary!(GetRequest, GetResponse, |target, asked| target.get(asked));
unary!(SetRequest, SetResponse, |target, asked| target.set(asked));

struct Subscriber<T>(Arc<T>);

impl<T: Target> tower_service::Service<Request<Streaming<SubscribeRequest>>> for Subscriber<T> {
    type Response = Response<ReceiverStream<Result<SubscribeResponse, Status>>>;
    type Error = Status;
    type Future = Boxed<Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Streaming<SubscribeRequest>>) -> Self::Future {
        let heard = self.0.subscribe(request.into_inner());
        Box::pin(async move { heard.await.map(ReceiverStream::new).map(Response::new) })
    }
}
