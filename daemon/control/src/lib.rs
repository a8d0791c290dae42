// SPDX-License-Identifier: Apache-2.0
//! The control core of `lightloomd`: the controller and all policies, as a state machine from
//! events to actions, without clocks, files, sockets or threads.
//!
//! The caller executes the actions in order and supplies replies and time: `lightloomd` with real
//! devices, the tests' simulation in virtual time. [`policy`] decides about faults and rollbacks,
//! [`controller`] executes transactions, and [`ledger`] is the state folded from the [`journal`].

pub mod actor;
pub mod bypass;
pub mod change;
pub mod commission;
pub mod controller;
pub mod desired;
pub mod diagnosis;
pub mod drive;
pub mod inventory;
pub mod journal;
pub mod kept_plan;
pub mod ledger;
pub mod management;
pub mod mover;
pub mod owed;
pub mod policy;
pub mod record;
pub mod state;
