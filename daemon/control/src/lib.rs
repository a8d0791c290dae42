// SPDX-License-Identifier: Apache-2.0
//! The control core of `lightloomd`: controller and policies, without clocks, sockets or threads.
//!
//! The caller executes the actions in order and supplies replies and the time. The caller is
//! `lightloomd` with real devices, or a simulation in virtual time. [`policy`] handles faults and
//! rollbacks, [`controller`] executes transactions, and [`ledger`] is the state from the
//! [`journal`].

pub mod actor;
pub mod bypass;
pub mod change;
pub mod commission;
pub mod controller;
pub mod deferred;
pub mod desired;
pub mod diagnosis;
pub mod drive;
pub mod inventory;
pub mod journal;
pub mod kept_plan;
pub mod ledger;
pub mod management;
pub mod mover;
pub mod policy;
pub mod record;
pub mod state;
