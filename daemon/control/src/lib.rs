// SPDX-License-Identifier: Apache-2.0
//! The control core of `lightloomd`: controller and policies, without clocks, sockets or threads.
//!
//! The caller supplies events and the time, and executes the returned actions in order. It is
//! `lightloomd` with real devices, or a simulation in virtual time. Each fact has one owner, and the
//! policies decide from the owners.
//!
//! # The path of a fault
//!
//! A node fails, and the two modules of its ring send no light. The test `path_of_a_fault` runs:
//!
//! 1. A module at the far end reports [`Signal::LightLost`](sightings::Signal) or is polled. Its
//!    reading comes as [`Event::Reply`](messages::Event), with its position and without light.
//! 2. [`Controller::handle`](controller::Controller::handle) gives the reading to the
//!    [`Sightings`](sightings::Sightings). They suspect the node at the other end, whose modules and
//!    far ends are read next. The [`Schedule`](schedule::Schedule) holds the times.
//! 3. No module of the node replies in time. The sightings find the node dead, and the controller
//!    stops waiting with [`Action::Abandon`](messages::Action). The driver reports `Event::Down`.
//! 4. [`Control::tick`](policy::Control::tick) asks the policies, which see only
//!    [`Facts`](policy::Facts), for failed parts. Each far end of the node gives a
//!    [`Testimony`](sightings::Testimony). Two that miss its light and share no
//!    [failure domain](management) are enough, and both bundles of the node become
//!    [`Part`](lightloom_fabric::fault::Part)s to avoid.
//! 5. The [`Budget`](budget::Budget) of automatic changes and the
//!    [`Backoff`](bypass::Backoff) of earlier attempts allow a bypass now.
//! 6. [`next_plan_within`](bypass::next_plan_within) closes the ring around the parts. The policy
//!    returns an [`Apply`](messages::Apply) with [`Cause::Bypass`](record::Cause).
//! 7. [`Transactions`](transactions::Transactions) record the [`Intent`](record::Intent) and order a
//!    [`Drive`](drive::Drive), which sends commands to the modules that close the ring.
//! 8. All are read at their new positions with light. [`Record::End`](record::Record) commits, and
//!    the [`Ledger`](ledger::Ledger) contains the new plan, its positions and the failed parts.

pub mod actor;
pub mod budget;
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
pub mod messages;
pub mod mover;
pub mod policy;
pub mod record;
pub mod schedule;
pub mod sightings;
pub mod state;
pub mod strays;
pub mod transactions;
