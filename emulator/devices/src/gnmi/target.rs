// SPDX-License-Identifier: Apache-2.0

use std::sync::{Arc, Mutex};

use lightloom_gnmi::message::{
    CapabilityResponse, DataType, Encoding, GNMI_VERSION, GetRequest, GetResponse, ListMode,
    ModelData, Notification, SetRequest, SetResponse, SubscribeAsk, SubscribeRequest,
    SubscriptionList, Update,
};
use lightloom_gnmi::model::{MODULES, ORGANIZATION, PLATFORM};
use lightloom_gnmi::path::joined;
use lightloom_gnmi::server::{Boxed, SubscriptionItem, Target};
use lightloom_gnmi::wire::locked;
use lightloom_gnmi::{Status, Streaming};
use tokio::sync::mpsc;

use super::feed::{UNREAD_MAX, first_path, snapshot, subscribe};
use super::state::State;
use super::tree::values;
use crate::misbehave::Misbehaviour;

const PATHS_MAX: usize = 8_192;

#[derive(Clone, Debug)]
pub(crate) struct SharedSwitch(pub(crate) Arc<Mutex<State>>);

pub(crate) fn encoding(number: i32) -> Result<Encoding, Status> {
    match Encoding::try_from(number) {
        Ok(known @ (Encoding::Json | Encoding::JsonIetf | Encoding::Proto)) => Ok(known),
        _ => Err(Status::unimplemented("the supported encodings are JSON, JSON_IETF and PROTO")),
    }
}

fn capabilities(state: &State) -> CapabilityResponse {
    let ours = MODULES.iter().map(|name| (*name, &*state.spec.model_version, ORGANIZATION));
    let models = ours.chain([(PLATFORM, "0.31.0", "OpenConfig working group")]);
    let supported_models = models.map(|(name, version, organization)| ModelData {
        name: name.into(),
        organization: organization.into(),
        version: version.into(),
    });
    let mut said = CapabilityResponse {
        supported_models: supported_models.collect(),
        supported_encodings: [Encoding::Json, Encoding::JsonIetf, Encoding::Proto]
            .map(|known| known as i32)
            .to_vec(),
        gnmi_version: GNMI_VERSION.into(),
    };
    state.misreport(&mut said);
    said
}

fn get(state: &State, request: &GetRequest) -> Result<GetResponse, Status> {
    let mut encoding = encoding(request.encoding)?;
    if state.breaks(Misbehaviour::IgnoresEncoding) {
        encoding = Encoding::JsonIetf;
    }
    let of = DataType::try_from(request.r#type)
        .map_err(|_| Status::invalid_argument("the type of a Get must be 0, 1, 2 or 3"))?;
    if request.path.len() > PATHS_MAX {
        let why = format!("a Get supports at most {PATHS_MAX} paths: split the request");
        return Err(Status::invalid_argument(why));
    }
    let root = [lightloom_gnmi::message::Path::default()];
    let paths = if request.path.is_empty() { &root[..] } else { &request.path };
    let mut notification = Vec::new();
    for path in paths {
        let path = joined(request.prefix.as_ref(), Some(path));
        let tree = match state.breaks(Misbehaviour::MixesConfigAndState) {
            true => state.tree(&path),
            false => state.tree(&path).of_type(of),
        };
        let found = match tree.select(&path) {
            Err(_) if state.breaks(Misbehaviour::AnswersUnknownPath) => Vec::new(),
            found => found?,
        };
        let found = found.into_iter().flat_map(|(at, node)| values(at, node, encoding));
        let update =
            found.map(|(path, value)| Update { path: Some(path), val: Some(value), duplicates: 0 });
        notification.push(Notification {
            timestamp: match state.breaks(Misbehaviour::NoTimestamp) {
                true => 0,
                false => state.spec.unix_nanos(state.now),
            },
            update: update.collect(),
            ..Notification::default()
        });
    }
    Ok(GetResponse { notification })
}

fn gone<E>(_: E) -> Status {
    Status::unavailable("the switch is restarting")
}

impl Target for SharedSwitch {
    fn login(&self) -> Option<(String, String)> {
        locked(&self.0).spec.login.clone()
    }

    fn capabilities(&self) -> Boxed<Result<CapabilityResponse, Status>> {
        let shared = self.clone();
        let thought = locked(&self.0).thought();
        Box::pin(async move {
            thought.await.map_err(gone)?;
            Ok(capabilities(&locked(&shared.0)))
        })
    }

    fn get(&self, request: GetRequest) -> Boxed<Result<GetResponse, Status>> {
        let shared = self.clone();
        let thought = locked(&self.0).thought();
        Box::pin(async move {
            thought.await.map_err(gone)?;
            get(&locked(&shared.0), &request)
        })
    }

    fn set(&self, request: SetRequest) -> Boxed<Result<SetResponse, Status>> {
        let done = locked(&self.0).begin(request);
        Box::pin(async move { done.await.map_err(gone)? })
    }

    fn subscribe(
        &self,
        asks: Streaming<SubscribeRequest>,
    ) -> Boxed<Result<SubscriptionItem, Status>> {
        let shared = self.clone();
        Box::pin(async move { hear(shared, asks).await })
    }
}

async fn next(asks: &mut Streaming<SubscribeRequest>) -> Result<Option<SubscribeAsk>, Status> {
    Ok(asks.message().await?.and_then(|ask| ask.request))
}

async fn hear(
    shared: SharedSwitch,
    mut asks: Streaming<SubscribeRequest>,
) -> Result<SubscriptionItem, Status> {
    let Some(SubscribeAsk::Subscribe(list)) = next(&mut asks).await? else {
        return Err(Status::invalid_argument("a subscription must start with a subscription list"));
    };
    let thought = locked(&shared.0).thought();
    thought.await.map_err(gone)?;
    if list.subscription.is_empty() {
        return Err(Status::invalid_argument("a subscription requires at least one path"));
    }
    let (sender, heard) = mpsc::channel(UNREAD_MAX);
    match ListMode::try_from(list.mode) {
        Ok(ListMode::Once) => {
            send_all(&shared, &list, &sender)?;
            let state = locked(&shared.0);
            if state.breaks(Misbehaviour::OnceGoesOn) {
                state.spawner.spawn(async move {
                    let _never_dropped = sender;
                    std::future::pending().await
                });
            }
        }
        Ok(ListMode::Poll) => {
            send_all(&shared, &list, &sender)?;
            let spawner = locked(&shared.0).spawner.clone();
            spawner.spawn(async move {
                while let Ok(Some(SubscribeAsk::Poll(_))) = next(&mut asks).await {
                    if send_all(&shared, &list, &sender).is_err() {
                        return;
                    }
                }
            });
        }
        _ => subscribe(&mut locked(&shared.0), &list, &sender)?,
    }
    Ok(heard)
}

fn send_all(
    shared: &SharedSwitch,
    list: &SubscriptionList,
    sender: &mpsc::Sender<Result<lightloom_gnmi::message::SubscribeResponse, Status>>,
) -> Result<(), Status> {
    let all = snapshot(&locked(&shared.0), list)?;
    for message in all {
        sender.try_send(Ok(message)).map_err(|_| {
            Status::resource_exhausted(format!("too many unread messages for {}", first_path(list)))
        })?;
    }
    Ok(())
}
