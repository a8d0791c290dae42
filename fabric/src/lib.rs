// SPDX-License-Identifier: Apache-2.0
//! The data model of lightloom, with fabrics, jobs, faults and plans, and the documents that describe them.
//!
//! The crate does not use files, clocks or sockets; it parses documents from byte slices. A [`Fabric`](fabric::Fabric)
//! loaded from a document is valid, but the public fields are not checked.

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
