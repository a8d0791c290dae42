// SPDX-License-Identifier: Apache-2.0
//! The packet engine. It advances window by window and vertex by vertex, without a global event queue.
//!
//! ```
//! use lightloom_engine::{Engine, EngineSettings, FlowSpec, LinkSpec, NetworkBuilder, VertexRole};
//! use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
//!
//! let mut builder = NetworkBuilder::new();
//! let [a, b] = [VertexRole::Host, VertexRole::Host].map(|role| builder.add(role));
//! let wire = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1));
//! builder.connect(a, b, wire);
//! let mut engine = Engine::new(builder.build()?, EngineSettings::default())?;
//! let flow = engine.add_flow(FlowSpec::new(a, b, Bytes(4_032)))?;
//! engine.run(SimTime(1_000_000_000));
//! assert_eq!(engine.record(flow).end, Some(SimTime(81_920 + 1_000_000)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/engine.md` describes the method and its limits.

mod calendar;
mod control;
mod deadlock;
mod flow;
mod ideal;
mod layout;
mod lists;
pub(crate) mod marking;
mod network;
mod one_port;
pub(crate) mod packet;
mod plain_port;
mod port;
mod probe;
mod queueing;
mod queues;
mod ring;
mod route;
mod routes;
mod run;
mod settings;
pub(crate) mod shard;
mod sink;
mod store;
mod switch;
mod switching;

pub use control::{Chance, Event, LinkChange};
pub use flow::{BatchId, FlowGate, FlowId, FlowRecord, FlowSpec};
pub use ideal::{message_time, share_of, soonest, wire_time};
pub use marking::Marking;
pub use network::{
    Link, LinkId, LinkSpec, Network, NetworkBuilder, NetworkError, Plane, VertexId, VertexRole,
};
pub use port::PortCount;
pub use probe::{ArrivalLog, NoProbe, PacketArrival, Probe, Way};
pub use queueing::{Buffer, CONTROL_PRIORITY, PAUSE_FRAME, PRIORITIES, Pause, Queueing, Schedule};
pub use route::{Choice, Paths, Route, RouteError};
pub(crate) use route::{FlowName, Router, WantedPaths};
pub use run::{Engine, FlowWait, PacketCount, SendingEnd};
pub use settings::{EngineError, EngineSettings};

pub use switching::Switching;
