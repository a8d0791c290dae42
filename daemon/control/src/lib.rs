// SPDX-License-Identifier: Apache-2.0
//! The control core of `lightloomd`: controller and policies, without clocks, sockets or threads.
//!
//! The caller supplies events and the time, and executes the returned actions in order. It is
//! `lightloomd` with real devices, or a simulation in virtual time. Each fact has one owner, and the
//! policies decide from the owners.
//!
//! # The path of a fault
//!
//! A node fails, and the two modules of its ring send no light. `device` is the module at hand,
//! `seen` what was read from it, and `far` the other end of its fibre, seen from either side. A
//! `witness` is a far end that should receive the light of a `suspect`. Parts of the fabric are
//! `failed` once witnesses or an operator name them, and `known_faults` with those that the plan
//! avoids; the journal and the API call these `broken`. The test `path_of_a_fault` follows them:
//!
//! 1. A module at a far end reports [`Signal::LightLost`](sightings::Signal) or is polled. Its
//!    reading comes as [`Event::Reply`](messages::Event), with its position and without light.
//! 2. [`Controller::handle`](controller::Controller::handle) gives the reading to the
//!    [`Sightings`](sightings::Sightings). A report, or a connection whose first reading is dark,
//!    makes them suspect the node at the other end: its modules and their far ends are read next,
//!    at times from the [`Schedule`](schedule::Schedule). A poll without light only brings the next
//!    readings forward.
//! 3. No module of the suspected node replies in time. The sightings find that the node failed, and
//!    the controller stops waiting with [`Action::Abandon`](messages::Action); without a suspicion it
//!    waits longer and greets the module on a fresh connection first. The caller's driver reports
//!    `Event::Unreachable`. The loss of light then counts without more samples.
//! 4. [`Control::tick`](policy::Control::tick) computes the failed parts from
//!    [`Facts`](policy::Facts). Each far end of the suspect is a witness and gives a
//!    [`Testimony`](sightings::Testimony). None may see its light, and those that are unreachable must be
//!    suspects themselves. Two that miss it must share no [failure domain](management) with each
//!    other or the suspect. Both bundles of the node become
//!    [`Part`](lightloom_fabric::fault::Part)s to avoid.
//! 5. The [`Backoff`](bypass::Backoff) of earlier attempts and the [`Budget`](budget::Budget) of
//!    automatic changes allow a bypass now.
//! 6. [`next_plan_within`](bypass::next_plan_within) closes the ring around the parts. The policy
//!    asks the controller, as any client does, for an [`Apply`](messages::Apply) with
//!    [`Cause::Bypass`](record::Cause).
//! 7. [`Transactions`](transactions::Transactions) append the plan and the
//!    [`Intent`](record::Intent), which the caller stores before it sends anything, and order a
//!    [`Drive`](drive::Drive), whose commands go to the modules that close the ring. After a crash,
//!    `recover` finishes or undoes the change.
//! 8. All are read at their new positions with light. [`Record::End`](record::Record), with the end
//!    of each device's part, commits, and the [`Ledger`](ledger::Ledger) contains the new plan, its
//!    positions and the failed parts.

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
