//! `lightloomd`: drives transceivers, optical switches and Linux switches, and leaves the light on.
//!
//! ```text
//!   plan ──▶ target ─┐                         ┌──▶ driver ──▶ device
//!                    ▼        Send             │
//!   clients ──▶ controller ─────────────▶ runtime ──▶ journal (durable before any Send after it)
//!                    ▲                         │
//!                    └──── replies, time ──────┘
//! ```
//!
//! The controller and everything it is made of ([`state`], [`change`], [`mover`], [`drive`],
//! [`record`], [`controller`]) is pure: events in, actions out, no clock, no file, no socket. The
//! edges stand around it behind small traits: [`journal`] over a `Storage`, drivers over bytes,
//! the API over HTTP. Without the feature `edges` only the pure part and the daemon's file are built,
//! for programs that check such files. Tests run the same controller against emulated devices in virtual time.

#[cfg(feature = "edges")]
pub mod api;
#[cfg(feature = "edges")]
pub mod audit;
#[cfg(feature = "edges")]
pub mod bypass;
pub mod change;
#[cfg(feature = "edges")]
pub mod check;
#[cfg(feature = "edges")]
pub mod clock;
pub mod config;
pub mod controller;
#[cfg(feature = "edges")]
pub mod desired;
pub mod drive;
#[cfg(feature = "edges")]
pub mod driver;
#[cfg(feature = "edges")]
pub mod file_storage;
pub mod inventory;
#[cfg(feature = "edges")]
pub mod journal;
pub mod ledger;
#[cfg(feature = "edges")]
pub mod metrics;
pub mod mover;
#[cfg(feature = "edges")]
pub mod notify;
pub mod owed;
pub mod rate;
pub mod record;
#[cfg(feature = "edges")]
pub mod runtime;
#[cfg(feature = "edges")]
pub mod serve;
#[cfg(feature = "edges")]
pub mod start;
pub mod state;
#[cfg(feature = "edges")]
pub mod tend;
#[cfg(feature = "edges")]
pub mod view;
