// SPDX-License-Identifier: Apache-2.0
//! Extracts the description of a collective from its own arguments, from the call with the same
//! `External id`, or, for gloo, from the shapes of its tensors.

use std::collections::BTreeMap;

use lightloom_collective::CollectiveKind;
use serde_json::Value;

use super::super::graph::MOST_RANKS;
use super::document::{Arguments, Category, Event, Events};

pub(super) struct Communication {
    pub(super) kind: CollectiveKind,
    pub(super) group: Vec<u32>,
    pub(super) bytes: u64,
    pub(super) seq: Option<u64>,
}

/// Returns the arguments of communication calls by their `External id`.
pub(super) fn by_external_id(events: &Events) -> BTreeMap<i64, &Arguments> {
    let exchanges = events.kept.iter().filter(|event| event.category == Category::Exchange);
    exchanges
        .filter_map(|event| event.args.as_deref())
        .filter(|args| args.collective.is_some())
        .filter_map(|args| Some((args.external_id?, args)))
        .collect()
}

/// Returns whether an event is a collective, judged by its name or category.
pub(super) fn is_exchange(events: &Events, event: &Event) -> bool {
    event.category == Category::Exchange || events.name(event).starts_with("nccl")
}

impl Communication {
    /// Returns the description of a collective, or `None` if the profile has none. `call` is the
    /// host call that started it; `world` is the size of the job, which forms the group of gloo's
    /// collectives.
    pub(super) fn of(
        (event, name): (&Event, &str),
        call: Option<&Event>,
        named: &BTreeMap<i64, &Arguments>,
        world: Option<u32>,
    ) -> Option<Self> {
        let own = event.args.as_deref()?;
        let by_id = || own.external_id.and_then(|id| named.get(&id).copied());
        let arguments = if own.collective.is_some() { Some(own) } else { by_id() };
        let Some(arguments) = arguments else {
            let kind = kind_of(name.strip_prefix("gloo:")?)?;
            // An operator that ends after the profile has no shapes, but the call that started it
            // has.
            let called = || bytes_of(call?.args.as_deref()?);
            let bytes = bytes_of(own).or_else(called)?;
            let group: Vec<u32> = (0..world?).collect();
            let bytes =
                if kind == CollectiveKind::AllGather { bytes * group.len() as u64 } else { bytes };
            return Some(Self { kind, group, bytes, seq: None });
        };
        let kind = kind_of(arguments.collective.as_ref()?)?;
        let elements = match kind {
            CollectiveKind::AllGather => arguments.elements_out,
            _ => arguments.elements_in,
        };
        let group: Vec<u32> = match &arguments.ranks {
            Some(ranks) => serde_json::from_str(ranks).ok()?,
            None if event.category == Category::Exchange => (0..world?).collect(),
            None => return None,
        };
        if group.iter().any(|rank| *rank >= MOST_RANKS) {
            return None;
        }
        let size = element_bytes(arguments.dtype.as_ref()?)?;
        let bytes = u64::try_from(elements?).ok()?.checked_mul(size)?;
        let seq = arguments.seq.and_then(|seq| u64::try_from(seq).ok());
        Some(Self { kind, group, bytes, seq })
    }
}

pub(super) fn kind_of(name: &str) -> Option<CollectiveKind> {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if has(&["allreduce", "all_reduce"]) {
        Some(CollectiveKind::AllReduce)
    } else if has(&["allgather", "all_gather"]) {
        Some(CollectiveKind::AllGather)
    } else if has(&["reduce_scatter"]) {
        Some(CollectiveKind::ReduceScatter)
    } else if has(&["all_to_all", "alltoall"]) {
        Some(CollectiveKind::AllToAll)
    } else {
        None
    }
}

fn element_bytes(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "Double" | "Long" | "ComplexFloat" | "double" | "long int" => 8,
        "Float" | "Int" | "float" | "int" => 4,
        "Half" | "BFloat16" | "Short" | "c10::Half" | "c10::BFloat16" => 2,
        "Byte" | "Char" | "Bool" | "unsigned char" | "signed char" => 1,
        other if other.starts_with("Float8") => 1,
        _ => return None,
    })
}

/// Returns the bytes of the first argument. Its dimensions are a shape, or nested lists of shapes.
/// `None` if it has no elements.
pub(super) fn bytes_of(arguments: &Arguments) -> Option<u64> {
    fn elements(dimensions: &Value) -> u64 {
        let Some(list) = dimensions.as_array().filter(|list| !list.is_empty()) else { return 0 };
        match list.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>() {
            Some(shape) => shape.iter().product(),
            None => list.iter().map(elements).sum(),
        }
    }
    let dtype = arguments.types.get(0)?.as_str()?;
    // The type of a list of tensors is written once for the whole list.
    let size = element_bytes(dtype.trim_start_matches("TensorList").trim())
        .or_else(|| (dtype == "TensorList").then_some(4))?;
    Some(elements(&arguments.dimensions) * size).filter(|bytes| *bytes > 0)
}
