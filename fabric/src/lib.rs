// SPDX-License-Identifier: Apache-2.0
//! The vocabulary of lightloom: what a fabric is made of, and the documents that describe it.
//!
//! Everything here is pure data: the cabling of a fabric, the plan that configures it
//! and the faults that befall it. No file, clock or socket is touched; bytes come in as slices.
//! A [`Fabric`](fabric::Fabric) that exists is a valid one.

#![warn(missing_docs)]

pub mod canonical;
pub mod dcn;
pub mod direct;
pub mod document;
pub mod fabric;
pub mod fat_tree;
pub mod fault;
pub mod file;
pub mod hbd;
pub mod khop;
pub mod model;
pub mod plan;
pub mod preset;
pub mod provenance;
pub mod trace;
