// SPDX-License-Identifier: Apache-2.0
//! Generators of demand matrices from descriptions of work. Each file covers one kind of traffic
//! and states its byte formula.
//!
//! [`training`], [`generation`], [`weight_sync`] and [`parallelism_switch`] are the phases of
//! disaggregated reinforcement learning; [`rl_step`] combines them. The other files imitate the
//! traffic of related systems. Their formulas are the published ones where a source is named, and
//! our own where noted. None of them is that system.

pub mod card;
pub mod collective;
pub mod generation;
pub mod parallelism_switch;
pub mod place;
pub mod rl_step;
pub mod shapes;
pub mod training;
pub mod weight_sync;

pub mod aryl;
pub mod bytecomp;
pub mod core_attention;
pub mod dsv;
pub mod pipeweaver;
pub mod prefill_decode;
pub mod qsync;
pub mod rlhfuse;
pub mod step3;
pub mod streamrl;
pub mod tokenlake;
