// SPDX-License-Identifier: Apache-2.0
//! The control core of `lightloomd`: the controller and every policy, as a state machine from
//! events to actions, without clocks, files, sockets or threads.
//!
//! | module | contents |
//! | --- | --- |
//! | [`state`], [`inventory`], [`management`] | devices, the installation, the management network |
//! | [`change`], [`drive`], [`mover`] | from current to desired positions: waves, ordered moves, one move |
//! | [`actor`] | the origin of a request: a client or a policy |
//! | [`record`], [`kept_plan`], [`ledger`] | the records of the journal and the state folded from them |
//! | [`journal`] | the journal itself, over a `Storage` |
//! | [`controller`] | one transaction at a time over any number of devices |
//! | [`policy`] | faults, bypasses, the plan in force, and rollbacks |
//! | [`commission`] | the connected ends, from light on ends without circuits |
//! | [`diagnosis`] | the failed part, from powers, bit errors, read-backs and neighbours |
//! | [`desired`], [`bypass`] | from a plan to the positions of devices; from a fault to the plan around it |
//!
//! The caller executes the actions in order and supplies answers and time: `lightloomd` with real
//! devices, the tests' simulation in virtual time.

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
