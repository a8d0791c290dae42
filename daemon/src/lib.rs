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
//! the API over HTTP. Tests run the same controller against emulated devices in virtual time.

pub mod api;
pub mod audit;
pub mod bypass;
pub mod change;
pub mod clock;
pub mod config;
pub mod controller;
pub mod desired;
pub mod drive;
pub mod driver;
pub mod file_storage;
pub mod inventory;
pub mod journal;
pub mod metrics;
pub mod mover;
pub mod notify;
pub mod record;
pub mod runtime;
pub mod serve;
pub mod start;
pub mod state;
pub mod tend;
pub mod view;
