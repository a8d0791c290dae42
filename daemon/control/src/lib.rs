// SPDX-License-Identifier: Apache-2.0
//! The control core of `lightloomd`: the controller and every policy. Events in, actions out; no clock, no file,
//! no socket, no thread.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`state`], [`inventory`], [`management`] | what a device is, what is installed, through what it is reached |
//! | [`change`], [`drive`], [`mover`] | from where slots are to where they shall be: waves, ordered moves, one move |
//! | [`actor`] | who asks: a client, or a policy |
//! | [`record`], [`kept_plan`], [`ledger`] | what is written into the journal, and what it comes to |
//! | [`journal`] | the journal itself, over a `Storage` |
//! | [`controller`] | one transaction at a time over any number of devices |
//! | [`policy`] | what is broken, when it is bypassed, which plan is on the devices, where undone changes go |
//! | [`commission`] | which end is joined with which, from light on ends that carry no circuit |
//! | [`diagnosis`] | from powers, bit errors, read-backs and neighbours to the part at fault |
//! | [`desired`], [`bypass`] | from a plan to the positions of devices; from a fault to the plan around it |
//!
//! Whoever runs it performs its actions in order and brings it answers and the time: `lightloomd` against
//! devices, the simulation of its tests in virtual time.

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
