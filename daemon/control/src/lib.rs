// SPDX-License-Identifier: Apache-2.0
//! The control core of `lightloomd`: controller and policies, without clocks, sockets or threads.
//!
//! The caller supplies events and the time, and executes the returned actions in order. It is
//! `lightloomd` with real devices, or a simulation in virtual time. Each fact has one owner, and the
//! policies decide from the owners.
//!
//! # The path of a fault
//!
//! A *node* fails, and its two *devices*, modules of a ring, send no light. The *far end* of a device
//! is at the other end of its fibre. The test `path_of_a_fault` follows these stages:
//!
//! 1. A far end reports [`Signal::LightLost`](sightings::Signal) or is polled. Its reading comes as
//!    [`Event::Reply`](messages::Event), with its position and without light: it is dark.
//! 2. [`Controller::handle`](controller::Controller::handle) gives it to the
//!    [`Sightings`](sightings::Sightings). After a report, or if a connection's first reading is dark,
//!    they check the node: in the [`Schedule`](schedule::Schedule), reads of its devices and their far
//!    ends are due next. A poll without light only brings the next readings forward.
//! 3. All devices of the node are overdue. The controller stops waiting with
//!    [`Action::Abandon`](messages::Action), and the caller reports that they are unreachable. Without
//!    a check, the controller waits longer, and a hello on a fresh connection must fail too.
//! 4. [`Control::tick`](policy::Control::tick) decides from the [`Facts`](policy::Facts). Each far end
//!    gives a [`Testimony`](sightings::Testimony). A dark one is a witness, one without evidence must
//!    be unreachable and have a witness itself, and none may have light. Two witnesses that share no
//!    [failure domain](management) with each other or a device suffice: the devices have failed.
//! 5. The [`Backoff`](replan::Backoff) of earlier attempts and the [`Budget`](budget::Budget) of
//!    automatic changes allow a bypass now.
//! 6. [`next_plan_within`](replan::next_plan_within) closes the ring without them. The policy asks the
//!    controller for an [`Apply`](messages::Apply) with [`Cause::Bypass`](record::Cause).
//! 7. [`Transactions`](transactions::Transactions) append the plan and the
//!    [`Intent`](record::Intent), which the caller stores before it sends anything, and order a
//!    [`Drive`](drive::Drive) of the devices that close the ring. `recover` continues after a crash.
//! 8. All are read at their new positions with light. [`Record::End`](record::Record) commits with the
//!    [`DeviceEnd`](drive::DeviceEnd) of each, and the [`Ledger`](ledger::Ledger) has the new plan.
//!
//! These six words describe a failed node everywhere:
//!
//! * *dark*: a far end that reads no light, and a device with only dark far ends.
//! * *checked*: a node with a dark far end. The check of each device ends with its next reply.
//! * *overdue*: a device that has not replied in time, while the controller still waits.
//! * *unreachable*: a device for which the controller no longer waits. It may work.
//! * *witness*: a far end that has been dark for long enough, or a switch without a link to the node.
//! * *failed*: unreachable, with enough witnesses or reported. Only the policy decides this.

pub mod actor;
pub mod budget;
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
pub mod replan;
pub mod schedule;
pub mod sightings;
pub mod state;
pub mod strays;
pub mod transactions;
