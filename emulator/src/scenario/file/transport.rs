// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::transport::{
    Balance, Dctcp, FlowInterfaces, Hpcc, LossRecovery, Nscc, Reordering, Swift, Transport, Window,
};
use lightloom_fabric::document::Check;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes;
use super::congestion::*;

const REORDERING: Reordering = Reordering::WindowPercent(50);

/// Four round trips in a three-tier fat-tree with 1 us per link.
const TAIL_PROBE: Picoseconds = Picoseconds::from_micros(50);

/// Packet sizes, load balancing, congestion control and retransmission.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransportFile {
    /// Data in a full packet.
    pub payload: Text<Bytes>,
    /// Size of a packet's headers on a link.
    pub header: Text<Bytes>,
    /// Size of an acknowledgement on a link.
    pub acknowledgement: Text<Bytes>,
    /// Maximum data in flight, as a percentage of the data that fills the idle path.
    #[schemars(range(min = 1, max = 1000))]
    pub window_percent: u32,
    /// Maximum number of packets in flight. An alternative to `window_percent`.
    #[schemars(range(min = 1, max = 16777216))]
    pub window_packets: Option<u32>,
    /// Congestion control.
    pub congestion: CongestionFile,
    /// Parameters of `congestion: dctcp`.
    pub dctcp: Option<Dctcp>,
    /// Parameters of `congestion: dcqcn`.
    pub dcqcn: Option<DcqcnFile>,
    /// Parameters of `congestion: swift`.
    pub swift: Option<Swift>,
    /// Parameters of `congestion: nscc`.
    pub nscc: Option<Nscc>,
    /// Parameters of `congestion: hpcc`.
    pub hpcc: Option<Hpcc>,
    /// How a flow is spread over equal paths.
    pub balance: BalanceFile,
    /// Interfaces of a host that a flow uses. Defaults to `all` if hosts have several identical
    /// ones (`nics`, `planes`, `switched_domain`), otherwise to `one`.
    pub interfaces: Option<FlowInterfaces>,
    /// How lost packets are retransmitted. Defaults to `go_back_n` for flows on one path. Multipath flows
    /// and `receiver_credit` default to `selective_repeat` with a reordering tolerance of half the window.
    pub recovery: Option<RecoveryFile>,
    /// Time without progress after which all data in flight is treated as lost. By default, it is derived from measured
    /// round trips (RFC 6298), with a minimum of 500 us (100 us for `swift` and `nscc`, 5 ms for `receiver_credit`).
    pub timeout: Option<Text<Picoseconds>>,
    /// Time without acknowledgements after which the last packet in flight is resent, at least two
    /// round trips; once it is acknowledged, all missing packets are treated as lost. Only for
    /// `selective_repeat`. Defaults to 50 us for multipath flows across switches without pauses,
    /// otherwise to never.
    pub tail_probe: Option<Text<Picoseconds>>,
    /// Processing delay of a host after the last bit of a packet, before it acknowledges, sends
    /// more data or starts a waiting flow. Included in flow times.
    pub host_delay: Text<Picoseconds>,
}

impl Default for TransportFile {
    fn default() -> Self {
        let Transport { payload, header, acknowledgement, .. } = Transport::default();
        Self {
            payload: Text(payload),
            header: Text(header),
            acknowledgement: Text(acknowledgement),
            window_percent: 100,
            window_packets: None,
            congestion: CongestionFile::None,
            dctcp: None,
            dcqcn: None,
            swift: None,
            nscc: None,
            hpcc: None,
            balance: BalanceFile::PerFlow,
            interfaces: None,
            recovery: None,
            timeout: None,
            tail_probe: None,
            host_delay: Text(Picoseconds::ZERO),
        }
    }
}

/// How a flow is spread over equal paths.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BalanceFile {
    /// One path for the whole flow, chosen by a seeded hash.
    #[default]
    PerFlow,
    /// Each packet takes a random path, and each path is used once per round. After a loss, a path
    /// is avoided until a probe is acknowledged, unless a later packet has arrived.
    Spray(PathsFile),
    /// Packets take entropy values in rotation. A value is retired after a loss until a probe is
    /// acknowledged.
    Entropy(EntropyFile),
    /// Switches send each packet to the shortest queue among working ports on shortest paths.
    Adaptive,
}

/// Entropy values and their probes.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntropyFile {
    /// Number of values over all interfaces, at most 1,024. Defaults to four per path and at least
    /// 128 if they are hashed; otherwise to one per path, or 128 if the number of paths is unknown.
    #[serde(default)]
    #[schemars(range(min = 2, max = 1024))]
    pub values: Option<u16>,
    /// Mapping of values to paths.
    #[serde(default)]
    pub paths: EntropyPaths,
    /// Time from a loss to the first probe of a retired value, and interval of further probes;
    /// default 50 us.
    #[serde(default = "fifty_microseconds")]
    pub probe: Text<Picoseconds>,
}

/// Mapping of entropy values to paths.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntropyPaths {
    /// Each switch hashes the values, as Ethernet switches do: values can share a path, and paths can remain unused.
    #[default]
    Hashed,
    /// One path per value, as with source routing, if there are enough values.
    Even,
}

const VALUES_A_PATH: u64 = 4;
const MOST_VALUES: u64 = 1_024;
const USUAL_VALUES: u64 = 128;
/// With this many random paths, sprayed flows rarely collide.
const MANY_PATHS: u64 = 64;

fn fifty_microseconds() -> Text<Picoseconds> {
    Text(Picoseconds::from_micros(50))
}

/// Number of paths.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathsFile {
    /// Number of random paths; a path can be drawn more than once.
    #[schemars(range(min = 2, max = 1024))]
    pub paths: u16,
}

/// Retransmission of lost packets.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RecoveryFile {
    /// Retransmits everything after the gap.
    GoBackN,
    /// Retransmits only missing packets.
    SelectiveRepeat(ReorderingFile),
}

/// Reordering tolerance.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReorderingFile {
    /// A packet is treated as lost once a packet sent this many packets later has arrived.
    #[schemars(range(min = 1, max = 60000))]
    pub reordering: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostPorts {
    pub(super) count: Option<u32>,
    /// Number of shortest paths between distant hosts, over all interfaces.
    pub(super) paths: Option<u64>,
    pub(super) rate: Option<BitsPerSecond>,
    pub(super) pauses: bool,
}

pub(super) fn lower(raw: &TransportFile, ports: HostPorts, check: &mut Check<'_>) -> Transport {
    check_packets(raw, check);
    let interfaces = interfaces(raw, ports, check);
    warn_of_few_values(raw, ports, interfaces, check);
    warn_of_short_timeout(raw, ports.rate, check);
    let is_spread =
        !matches!(raw.balance, BalanceFile::PerFlow) || interfaces == FlowInterfaces::All;
    if is_spread && matches!(raw.recovery, Some(RecoveryFile::GoBackN)) {
        let message =
            "packets on several paths overtake each other, which go-back-N treats as loss";
        let because = match raw.balance {
            BalanceFile::PerFlow => "/on",
            _ => "/transport/balance",
        };
        check
            .error(codes::BAD_PACKET, "/transport/recovery", message)
            .also(because, "multipath is configured here")
            .help("use `{selective_repeat: {reordering: 64}}`, or leave it out");
    }
    let is_credit = matches!(raw.congestion, CongestionFile::ReceiverCredit);
    if is_credit && matches!(raw.recovery, Some(RecoveryFile::GoBackN)) {
        let message =
            "with receiver credit, packets after a gap are kept, but go-back-N resends them";
        check
            .error(codes::BAD_PACKET, "/transport/recovery", message)
            .also("/transport/congestion", "receiver credit is configured here")
            .help("use `{selective_repeat: {reordering: 64}}`, or leave it out");
    }
    let percent = raw.window_percent;
    let recovery = recovery(raw, is_spread || is_credit);
    Transport {
        payload: raw.payload.0,
        header: raw.header.0,
        acknowledgement: raw.acknowledgement.0,
        window: raw.window_packets.map_or(Window::BandwidthDelay { percent }, Window::Packets),
        congestion: lower_congestion(raw, ports.rate, check),
        balance: balance(raw.balance, ports),
        interfaces,
        recovery,
        timeout: raw.timeout.map(|timeout| timeout.0),
        tail_probe: tail_probe(raw, recovery, ports, check),
    }
}

fn tail_probe(
    raw: &TransportFile,
    recovery: LossRecovery,
    ports: HostPorts,
    check: &mut Check<'_>,
) -> Option<Picoseconds> {
    let Some(Text(written)) = raw.tail_probe else {
        let usual = balance(raw.balance, ports).spreads_packets()
            && recovery != LossRecovery::GoBackN
            && !ports.pauses
            && raw.timeout.is_none_or(|timeout| TAIL_PROBE < timeout.0);
        return usual.then_some(TAIL_PROBE);
    };
    if recovery == LossRecovery::GoBackN {
        let message = "go-back-N drops all packets after a gap, so a tail probe has no effect";
        check
            .error(codes::NO_EFFECT, "/transport/tail_probe", message)
            .help("leave it out, or use `recovery: {selective_repeat: {reordering: 64}}`");
    } else if written == Picoseconds::ZERO {
        let message = "a probe interval of 0 would resend the last packet forever";
        check.error(codes::BAD_PACKET, "/transport/tail_probe", message).help("write `50us`");
    } else if raw.timeout.is_some_and(|timeout| written >= timeout.0) {
        check
            .error(codes::NO_EFFECT, "/transport/tail_probe", "the timeout always expires first")
            .also("/transport/timeout", "all data in flight is then treated as lost")
            .help("use less than the timeout, or leave it out");
    }
    Some(written)
}

fn interfaces(raw: &TransportFile, ports: HostPorts, check: &mut Check<'_>) -> FlowInterfaces {
    let is_many = ports.count.is_some_and(|count| count > 1);
    if raw.interfaces == Some(FlowInterfaces::All) && ports.count == Some(1) {
        let message = "hosts of this network have only one interface with a route";
        check
            .error(codes::NO_EFFECT, "/transport/interfaces", message)
            .help("leave it out, or use `nics: 4` or `planes: 4` in `leaf_spine`")
            .depends_on("/on");
    }
    let all = match raw.interfaces {
        Some(written) => written == FlowInterfaces::All,
        None => is_many,
    };
    let paths = balance(raw.balance, ports).paths();
    if let (true, Some(count), false) =
        (all, ports.count, matches!(raw.balance, BalanceFile::PerFlow | BalanceFile::Adaptive))
        && u32::from(paths) < count
    {
        let message =
            format!("with {paths} paths for {count} interfaces, some interfaces would be idle");
        check
            .error(codes::BAD_PACKET, "/transport/balance", message)
            .help(format!("use {count} or more, or `interfaces: one`"))
            .depends_on("/on");
    }
    if let BalanceFile::Entropy(EntropyFile { probe: Text(Picoseconds::ZERO), .. }) = raw.balance {
        let message = "a probe interval of 0 leaves no bandwidth for data";
        check
            .error(codes::BAD_PACKET, "/transport/balance/entropy/probe", message)
            .help("write `50us`");
    }
    if all { FlowInterfaces::All } else { FlowInterfaces::One }
}

/// With too few values, some links carry twice the load and others none.
fn warn_of_few_values(
    raw: &TransportFile,
    ports: HostPorts,
    interfaces: FlowInterfaces,
    check: &mut Check<'_>,
) {
    let (values, what, key, most) = match raw.balance {
        BalanceFile::Entropy(EntropyFile { values: Some(values), .. }) => {
            (values, "entropy values", "entropy/values", MOST_VALUES)
        }
        BalanceFile::Spray(PathsFile { paths }) => {
            (paths, "random paths", "spray/paths", MANY_PATHS)
        }
        _ => return,
    };
    let each = ports.paths.zip(ports.count.filter(|count| *count > 0));
    let Some((all, count)) = each else { return };
    let paths = if interfaces == FlowInterfaces::All { all } else { all / u64::from(count) };
    let enough = paths.min(most);
    if u64::from(values) < enough {
        let message = format!(
            "with {values} {what} for {paths} paths, each flow leaves paths unused and collides with others"
        );
        check
            .warning(codes::FEW_VALUES, &format!("/transport/balance/{key}"), message)
            .help(format!("write {enough}"));
    }
}

/// Assumes store-and-forward over four links: one at each host and two between switches.
fn warn_of_short_timeout(raw: &TransportFile, rate: Option<BitsPerSecond>, check: &mut Check<'_>) {
    const LINKS: u64 = 4;
    let Some((rate, Text(timeout))) = rate.zip(raw.timeout) else { return };
    let packet = Bytes(raw.payload.0.0 + raw.header.0.0);
    let crosses = Picoseconds(LINKS * rate.time_for(packet).get());
    if timeout == Picoseconds::ZERO || timeout >= crosses {
        return;
    }
    let message = format!("a packet of {packet} takes {crosses} over four links of {rate}");
    let enough = (20 * crosses.get()).div_ceil(1_000_000_000);
    check
        .warning(codes::SHORT_TIMEOUT, "/transport/timeout", message)
        .help(format!("use `{enough}ms`, or leave it out to measure round trips"));
}

fn check_packets(raw: &TransportFile, check: &mut Check<'_>) {
    let sizes = [
        ("payload", raw.payload.0),
        ("header", raw.header.0),
        ("acknowledgement", raw.acknowledgement.0),
    ];
    for (key, size) in sizes {
        if size == Bytes::ZERO || size.0 > 65_535 {
            let path = format!("/transport/{key}");
            check
                .error(codes::BAD_PACKET, &path, format!("invalid {key} size: {size}"))
                .help("use 1B to 65535B");
        }
    }
    if raw.payload.0.0.saturating_add(raw.header.0.0) > 65_535 {
        let message = "data and header together exceed the maximum packet size of 65535 B";
        check.error(codes::BAD_PACKET, "/transport/payload", message).help("write `4032B`");
    }
    if raw.timeout.is_some_and(|timeout| timeout.0 == Picoseconds::ZERO) {
        check
            .error(
                codes::BAD_PACKET,
                "/transport/timeout",
                "a timeout of 0 would resend packets forever",
            )
            .help("write 500us");
    }
    if raw.window_packets.is_some() && check.is_written("/transport/window_percent") {
        check
            .error(codes::BAD_PACKET, "/transport/window_packets", "the window is specified twice")
            .help("use either `window_percent` or `window_packets`");
    }
}

fn balance(raw: BalanceFile, ports: HostPorts) -> Balance {
    match raw {
        BalanceFile::PerFlow => Balance::PerFlow,
        BalanceFile::Spray(PathsFile { paths }) => Balance::Spray { paths },
        BalanceFile::Entropy(EntropyFile { values, paths, probe }) => {
            let hashed = matches!(paths, EntropyPaths::Hashed);
            let enough = match ports.paths {
                Some(paths) if hashed => (VALUES_A_PATH * paths).max(USUAL_VALUES),
                Some(paths) => paths.max(2),
                None => USUAL_VALUES,
            };
            let usual = u16::try_from(enough.min(MOST_VALUES)).unwrap_or(u16::MAX);
            Balance::Entropy { values: values.unwrap_or(usual), hashed, probe: probe.0 }
        }
        BalanceFile::Adaptive => Balance::Adaptive,
    }
}

fn recovery(raw: &TransportFile, is_spread: bool) -> LossRecovery {
    match raw.recovery {
        Some(RecoveryFile::SelectiveRepeat(ReorderingFile { reordering })) => {
            LossRecovery::SelectiveRepeat { reordering: Reordering::Packets(reordering) }
        }
        Some(RecoveryFile::GoBackN) => LossRecovery::GoBackN,
        None if is_spread => LossRecovery::SelectiveRepeat { reordering: REORDERING },
        None => LossRecovery::GoBackN,
    }
}
