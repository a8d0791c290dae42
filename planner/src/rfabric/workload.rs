// SPDX-License-Identifier: Apache-2.0
//! Generators of demand matrices from workloads. Each module covers one kind of traffic and states its byte formula.

pub mod card;
pub mod collective;
pub mod generation;
pub mod parallelism_switch;
pub mod place;
pub mod prefill_decode;
pub mod rl_step;
pub mod shapes;
pub mod training;
pub mod weight_sync;
