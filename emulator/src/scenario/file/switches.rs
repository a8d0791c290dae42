// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::{
    Buffer, CONTROL_PRIORITY, LinkSpec, Marking, PRIORITIES, Pause, Queueing, Schedule, Switching,
};
use lightloom_fabric::document::Check;
use lightloom_units::{Bytes, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes;
use crate::substrate::PacketSwitches;

/// Queueing of switches. Without `schedule`, `buffer`, `pause` and `trim`, every port has a single
/// first-in first-out queue, which is fastest to emulate. With any of them, every port has eight
/// priority queues.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchesFile {
    /// Capacity of one queue; packets that do not fit are dropped. Default 1 MiB.
    pub queue: Option<Text<Bytes>>,
    /// Queue length above which packets are ECN-marked. Defaults to an eighth of the queue.
    pub mark_from: Option<Text<Bytes>>,
    /// Marking probability that rises from zero at `mark_from` to its maximum at a second queue
    /// length, above which every packet is marked. Without it, every packet above `mark_from` is
    /// marked.
    pub mark_ramp: Option<RampFile>,
    /// Scheduling of priorities. By default, the highest priority is served first.
    pub schedule: Option<ScheduleFile>,
    /// One buffer shared by all ports of a switch.
    pub buffer: Option<BufferFile>,
    /// Priority flow control (PFC): senders on lossless priorities are paused.
    pub pause: Option<PauseFile>,
    /// Trims data packets that do not fit in the queue to their header, and forwards the header.
    pub trim: bool,
    /// Starts forwarding a packet once its header has arrived, if the output is idle and not faster
    /// than the input link.
    pub cut_through: bool,
}

/// A rising marking probability as in DCQCN's switches (Kmax and Pmax).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RampFile {
    /// Queue length above which every packet is marked (Kmax).
    pub all_from: Text<Bytes>,
    /// Marking probability just below `all_from`, in percent (Pmax).
    #[schemars(range(min = 1, max = 100))]
    pub percent: u8,
}

/// Scheduling of priorities. Acknowledgements precede all priorities.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScheduleFile {
    /// Highest first.
    Strict,
    /// Weighted: bytes that priorities 0, 1, 2 … may send per round. Omitted priorities may send 1 B.
    Weighted(Vec<Text<Bytes>>),
}

/// One buffer shared by all ports of a switch.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BufferFile {
    /// Total size.
    pub size: Text<Bytes>,
    /// Maximum queue length as a percentage of the free space, where 100 means an alpha of 1.
    #[serde(default = "alpha_one")]
    #[schemars(range(min = 1, max = 12800))]
    pub alpha_percent: u32,
}

fn alpha_one() -> u32 {
    100
}

/// Priority flow control.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseFile {
    /// Lossless priorities, 0 to 6.
    #[schemars(length(min = 1, max = 7), inner(range(min = 0, max = 6)))]
    pub priorities: Vec<u8>,
    /// Threshold in bytes received on a port and not yet forwarded, above which the sender is
    /// paused.
    pub above: Text<Bytes>,
    /// Level at which the sender resumes. Defaults to half of `above`.
    #[serde(default)]
    pub resume_at: Option<Text<Bytes>>,
    /// Space for data that still arrives after a pause request. Defaults to the data that arrives
    /// before the pause takes effect.
    #[serde(default)]
    pub headroom: Option<Text<Bytes>>,
}

/// `cable` is the cable that needs the most headroom, if it is known.
pub(super) fn lower(
    raw: &SwitchesFile,
    cable: Option<&LinkSpec>,
    packet: Bytes,
    check: &mut Check<'_>,
) -> PacketSwitches {
    let queue = raw.queue.map_or(Bytes(1 << 20), |queue| queue.0);
    let mark_from = raw.mark_from.map_or(Bytes(queue.0 / 8), |mark_from| mark_from.0);
    if queue < packet {
        check
            .error(
                codes::BAD_QUEUE,
                "/switches/queue",
                format!("a packet of {packet} does not fit into {queue}"),
            )
            .help("write `1MiB`");
    }
    // A queue that pauses instead of dropping can exceed `queue`.
    if mark_from > queue && raw.pause.is_none() {
        check
            .error(
                codes::NO_EFFECT,
                "/switches/mark_from",
                "the queue cannot reach this length, so packets are never marked",
            )
            .also("/switches/queue", "the limit of one queue")
            .help(format!("write at most {queue}"));
    }
    let buffer = raw.buffer.as_ref().map(|buffer| {
        if buffer.size.0 < packet {
            let message = format!("a packet of {packet} does not fit into {}", buffer.size.0);
            check.error(codes::BAD_QUEUE, "/switches/buffer/size", message).help("write `32MiB`");
        }
        Buffer { size: buffer.size.0, alpha_percent: buffer.alpha_percent }
    });
    let pause = raw.pause.as_ref().map(|pause| lower_pause(pause, cable, packet, check));
    if let (Some(buffer), Some(pause)) = (&buffer, &pause) {
        require_headroom(buffer, pause, packet, check);
    }
    let schedule = raw.schedule.as_ref().map(|schedule| lower_schedule(schedule, check));
    let real = buffer.is_some() || pause.is_some() || schedule.is_some() || raw.trim;
    let queueing = real.then(|| Queueing {
        schedule: schedule.unwrap_or_default(),
        buffer,
        pause,
        trim: raw.trim,
    });
    let switching = match raw.cut_through {
        true => Switching::CutThrough,
        false => Switching::StoreAndForward,
    };
    let marking = raw
        .mark_ramp
        .as_ref()
        .map_or(Marking::Threshold, |ramp| lower_ramp(ramp, mark_from, check));
    PacketSwitches { queue: Some(queue), mark_from, marking, queueing, switching }
}

fn require_headroom(buffer: &Buffer, pause: &Pause, packet: Bytes, check: &mut Check<'_>) {
    if buffer.size < pause.headroom + packet {
        let message = format!(
            "{} cannot hold a packet in addition to the headroom of one cable, {}",
            buffer.size, pause.headroom
        );
        check
            .error(codes::BAD_QUEUE, "/switches/buffer/size", message)
            .also("/switches/pause", "packets that arrive after a pause require headroom")
            .help("write `32MiB`, or a smaller `headroom`");
    }
}

fn lower_ramp(raw: &RampFile, mark_from: Bytes, check: &mut Check<'_>) -> Marking {
    if raw.all_from.0 <= mark_from || mark_from == Bytes::ZERO {
        check
            .error(
                codes::BAD_QUEUE,
                "/switches/mark_ramp/all_from",
                "a ramp requires 0 < `mark_from` < `all_from`",
            )
            .also("/switches/mark_from", "marking starts here")
            .help("use a value above `mark_from`, and a `mark_from` above 0");
    }
    let percent = raw.all_from.0.0.saturating_mul(100) / mark_from.0.max(1);
    Marking::Ramp {
        full_at_percent: u32::try_from(percent).unwrap_or(u32::MAX),
        most_percent: u32::from(raw.percent),
    }
}

fn lower_schedule(raw: &ScheduleFile, check: &mut Check<'_>) -> Schedule {
    let ScheduleFile::Weighted(shares) = raw else { return Schedule::Strict };
    let mut weights = [1; PRIORITIES];
    if shares.is_empty() || shares.len() > usize::from(CONTROL_PRIORITY) {
        let message =
            format!("{} weights are too many: priorities range from 0 to 6", shares.len());
        check.error(codes::BAD_QUEUE, "/switches/schedule/weighted", message).help(
            "use one weight per priority, starting with priority 0: `weighted: [4KiB, 4KiB, 4KiB, 16KiB]`",
        );
    }
    for (index, (weight, share)) in weights.iter_mut().zip(shares).enumerate() {
        *weight = u32::try_from(share.0.0).unwrap_or(0);
        if *weight == 0 || *weight > 1 << 30 {
            let path = format!("/switches/schedule/weighted/{index}");
            let message = format!("{} is not a valid weight", share.0);
            check.error(codes::BAD_QUEUE, &path, message).help("use 1B to 1GiB");
        }
    }
    Schedule::Weighted(weights)
}

fn lower_pause(
    raw: &PauseFile,
    cable: Option<&LinkSpec>,
    packet: Bytes,
    check: &mut Check<'_>,
) -> Pause {
    let above = raw.above.0;
    let resume_at = raw.resume_at.map_or(Bytes(above.0 / 2), |resume| resume.0);
    if resume_at > above {
        check
            .error(
                codes::BAD_QUEUE,
                "/switches/pause/resume_at",
                "this exceeds `above`, where pauses start",
            )
            .also("/switches/pause/above", "pauses start here");
    }
    let computed = cable.map_or(Bytes::ZERO, |cable| Pause::headroom_for(cable, packet));
    Pause {
        priorities: raw.priorities.iter().fold(0, |bits, priority| bits | 1 << (priority & 7)),
        pause_above: above,
        resume_at,
        headroom: raw.headroom.map_or(computed, |headroom| headroom.0),
    }
}
