// SPDX-License-Identifier: Apache-2.0
//! Finds the description of an exchange in its own arguments, in the call with the same `External
//! id`, or, for gloo, in the shapes of its tensors.
//!
//! PyTorch truncates lists after 30 entries (`torch/csrc/profiler/util.cpp`, `kTruncatLength`). Members of larger
//! groups are in `distributedInfo.pg_config` under the same name, or follow from the first rank and the stride.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::exchange::{Exchange, Operation, Share, Size};
use super::super::graph::MOST_RANKS;
use super::document::{Arguments, Category, Event, Events, Info};

pub(super) struct Communication {
    pub(super) exchange: Exchange,
    pub(super) share: Share,
    pub(super) seq: Option<u64>,
}

pub(super) fn by_external_id(events: &Events) -> BTreeMap<i64, &Arguments> {
    let exchanges = events.kept.iter().filter(|event| event.category == Category::Exchange);
    exchanges
        .filter_map(|event| event.args.as_deref())
        .filter(|args| args.collective.is_some())
        .filter_map(|args| Some((args.external_id?, args)))
        .collect()
}

pub(super) fn is_exchange(events: &Events, event: &Event) -> bool {
    event.category == Category::Exchange || events.name(event).starts_with("nccl")
}

pub(super) struct Described<'e> {
    pub(super) named: BTreeMap<i64, &'e Arguments>,
    pub(super) info: Option<&'e Info>,
    pub(super) rank: u32,
}

impl Described<'_> {
    /// `call` is the host call that started the exchange. Returns `None` if there is no description.
    pub(super) fn exchange(
        &self,
        events: &Events,
        event: &Event,
        call: Option<&Event>,
    ) -> Option<Communication> {
        let own = event.args.as_deref()?;
        let arguments = match own.collective {
            Some(_) => Some(own),
            None => own.external_id.and_then(|id| self.named.get(&id).copied()),
        };
        let Some(arguments) = arguments else {
            let operation = Operation::of_name(events.name(event).strip_prefix("gloo:")?)?;
            // If an operator ends after the profile, its shapes are missing, but its call has them.
            let bytes = match operation {
                Operation::Barrier => 0,
                operation if operation.is_between_two() => return None,
                _ => bytes_of(own).or_else(|| bytes_of(call?.args.as_deref()?))?,
            };
            let group: Vec<u32> = (0..self.world()?).collect();
            let exchange = Exchange::new(operation, group, Size::Input(bytes));
            let share = Share { sent: bytes, received: bytes, parts: Vec::new() };
            return Some(Communication { exchange, share, seq: None });
        };
        let operation = Operation::of_name(arguments.collective.as_ref()?)?;
        let group = match self.members(arguments) {
            Some(group) => group,
            None if event.category == Category::Exchange => (0..self.world()?).collect(),
            None => return None,
        };
        let members = match operation.is_between_two() {
            true => self.ends(operation, arguments, &group)?,
            false => group,
        };
        if members.iter().any(|rank| *rank >= MOST_RANKS) {
            return None;
        }
        let size = arguments.dtype.as_deref().and_then(element_bytes);
        let [sent, received] = [arguments.elements_in, arguments.elements_out]
            .map(|elements| u64::try_from(elements?).ok()?.checked_mul(size?));
        let size = match operation {
            Operation::Barrier => Size::Whole(0),
            operation if operation.is_sized_by_output() => {
                received.filter(|bytes| *bytes > 0).map(Size::Output).or(sent.map(Size::Input))?
            }
            _ => Size::Input(sent?),
        };
        let of = if operation == Operation::Receive { Operation::Send } else { operation };
        let exchange = Exchange::new(of, members, size);
        let parts = arguments.parts_in.as_deref().and_then(numbers).unwrap_or_default();
        let share = Share {
            sent: sent.unwrap_or_default(),
            received: received.or(sent).unwrap_or_default(),
            parts,
        };
        let seq = arguments.seq.and_then(|seq| u64::try_from(seq).ok());
        // Sequence numbers of sends and receives are not comparable between ranks.
        Some(Communication { exchange, share, seq: seq.filter(|_| !operation.is_between_two()) })
    }

    fn world(&self) -> Option<u32> {
        self.info?.world_size
    }

    /// Returns the members that the profile lists once for all collectives of the group.
    fn configured(&self, arguments: &Arguments, size: Option<u32>) -> Option<Vec<u32>> {
        let name = arguments.group.as_deref()?;
        let groups = &self.info?.groups;
        let ranks = groups.iter().find(|group| group.name == name)?.ranks.as_deref()?;
        let ranks: Vec<u32> = serde_json::from_str(ranks).ok()?;
        size.is_none_or(|size| ranks.len() == size as usize).then_some(ranks)
    }

    fn members(&self, arguments: &Arguments) -> Option<Vec<u32>> {
        let listed = arguments.ranks.as_deref().unwrap_or("...");
        let size = arguments.group_size.and_then(|size| u32::try_from(size).ok());
        let whole: Option<Vec<u32>> = serde_json::from_str(listed).ok();
        if whole.is_some() || !listed.contains("...") {
            return whole;
        }
        self.configured(arguments, size).or_else(|| {
            let [start, stride] = [arguments.rank_start, arguments.rank_stride]
                .map(|number| number.and_then(|number| u32::try_from(number).ok()));
            let known: Vec<u32> = listed
                .trim_matches(['[', ']'])
                .split(',')
                .map_while(|rank| rank.trim().parse().ok())
                .collect();
            let start = start.or(known.first().copied())?;
            let stride = stride.filter(|stride| *stride > 0).or_else(|| {
                let steps = known.windows(2).map(|two| two[1].checked_sub(two[0]));
                let mut steps = steps.collect::<Option<Vec<u32>>>()?;
                steps.dedup();
                <[u32; 1]>::try_from(steps).ok().map(|[step]| step)
            })?;
            let size = size.filter(|size| *size <= MOST_RANKS)?;
            let last = start.checked_add(stride.checked_mul(size.checked_sub(1)?)?)?;
            Some((start..=last).step_by(stride as usize).collect())
        })
    }

    fn ends(&self, operation: Operation, arguments: &Arguments, group: &[u32]) -> Option<Vec<u32>> {
        let is_send = operation == Operation::Send;
        let said = if is_send { arguments.to } else { arguments.from };
        let said = said.and_then(|rank| usize::try_from(rank).ok());
        let other = match (said.and_then(|rank| group.get(rank)), group) {
            (Some(other), _) => *other,
            (None, [a, b]) => {
                if *a == self.rank {
                    *b
                } else {
                    *a
                }
            }
            _ => return None,
        };
        Some(if is_send { vec![self.rank, other] } else { vec![other, self.rank] })
            .filter(|_| other != self.rank)
    }
}

fn numbers(list: &str) -> Option<Vec<u64>> {
    serde_json::from_str(list).ok().filter(|list: &Vec<u64>| !list.is_empty())
}

pub fn element_bytes(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "ComplexDouble" => 16,
        "Double" | "Long" | "ComplexFloat" | "UInt64" | "double" | "long int" => 8,
        "Float" | "Int" | "UInt32" | "ComplexHalf" | "float" | "int" => 4,
        "Half" | "BFloat16" | "Short" | "UInt16" | "c10::Half" | "c10::BFloat16" => 2,
        "Byte" | "Char" | "Bool" | "unsigned char" | "signed char" => 1,
        other if other.starts_with("Float8") => 1,
        _ => return None,
    })
}

/// The first argument's dimensions are a shape or nested lists of shapes. `None` if it is empty.
pub(super) fn bytes_of(arguments: &Arguments) -> Option<u64> {
    fn elements(dimensions: &Value) -> u64 {
        let Some(list) = dimensions.as_array().filter(|list| !list.is_empty()) else { return 0 };
        match list.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>() {
            Some(shape) => shape.iter().product(),
            None => list.iter().map(elements).sum(),
        }
    }
    let dtype = arguments.types.get(0)?.as_str()?;
    // A list of tensors states its type once.
    let size = element_bytes(dtype.trim_start_matches("TensorList").trim())
        .or_else(|| (dtype == "TensorList").then_some(4))?;
    Some(elements(&arguments.dimensions) * size).filter(|bytes| *bytes > 0)
}
