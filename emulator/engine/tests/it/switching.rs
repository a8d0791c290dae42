// SPDX-License-Identifier: Apache-2.0
//! Cut-through switches and host delays, compared with closed forms.

use lightloom_engine::transport::{Transport, Window};
use lightloom_engine::{
    Engine, EngineSettings, FlowSpec, LinkSpec, Network, NetworkBuilder, Queueing, Switching,
    VertexId, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

const DELAY: Picoseconds = Picoseconds::from_nanos(300);
const HEADER: Bytes = Bytes(64);
const PAYLOAD: Bytes = Bytes(4_000);

fn transport() -> Transport {
    Transport {
        payload: PAYLOAD,
        header: HEADER,
        window: Window::Packets(60_000),
        ..Transport::default()
    }
}

fn chain(rates: &[u64]) -> Network {
    let mut builder = NetworkBuilder::new();
    let mut last = builder.add(VertexRole::Host);
    for (index, rate) in rates.iter().enumerate() {
        let role = if index + 1 == rates.len() { VertexRole::Host } else { VertexRole::Switch };
        let next = builder.add(role);
        builder.connect(last, next, LinkSpec::new(BitsPerSecond::from_gbps(*rate), DELAY));
        last = next;
    }
    builder.build().unwrap()
}

fn end_over(rates: &[u64], packets: u64, settings: EngineSettings) -> u64 {
    let mut engine = Engine::new(chain(rates), settings).unwrap();
    let ends = [0, rates.len()].map(VertexId::from_index);
    let flow = engine.add_flow(FlowSpec::new(ends[0], ends[1], PAYLOAD * packets)).unwrap();
    engine.run(SimTime(10_000_000_000));
    engine.record(flow).end.unwrap().0
}

fn time(gbps: u64, bytes: Bytes) -> u64 {
    BitsPerSecond::from_gbps(gbps).time_for(bytes).0
}

#[test]
fn message_over_equal_links_takes_the_closed_form() {
    let full = time(400, PAYLOAD + HEADER);
    let header = time(400, HEADER);
    let kinds = [None, Some(Queueing::default())];
    for (hops, queueing) in (1..7).flat_map(|hops| kinds.map(|queueing| (hops, queueing))) {
        for packets in [1, 2, 50] {
            let rates = vec![400; hops as usize];
            let with = |switching| {
                let transport = transport();
                let settings =
                    EngineSettings { transport, switching, queueing, ..EngineSettings::default() };
                end_over(&rates, packets, settings)
            };
            let wires = hops * DELAY.0;
            let stored = (packets + hops - 1) * full + wires;
            assert_eq!(with(Switching::StoreAndForward), stored);
            let cut = packets * full + (hops - 1) * header + wires;
            assert_eq!(with(Switching::CutThrough), cut);
        }
    }
}

/// Regression: a port aborted if a packet takes over 4.29 ms, here 9.8 ms.
#[test]
fn large_packets_over_slow_links_take_the_closed_form() {
    let (payload, rate) = (Bytes(60 << 10), BitsPerSecond(50_000_000));
    let mut builder = NetworkBuilder::new();
    let roles = [VertexRole::Host, VertexRole::Switch, VertexRole::Host];
    let [from, switch, to] = roles.map(|role| builder.add(role));
    builder.connect(from, switch, LinkSpec::new(rate, DELAY));
    builder.connect(switch, to, LinkSpec::new(rate, DELAY));
    let transport = Transport { payload, ..transport() };
    let settings = EngineSettings { transport, ..EngineSettings::default() };
    let mut engine = Engine::new(builder.build().unwrap(), settings).unwrap();
    let flow = engine.add_flow(FlowSpec::new(from, to, payload * 17)).unwrap();
    engine.run(SimTime(10_000_000_000_000));
    let full = rate.time_for(payload + HEADER).0;
    assert_eq!(engine.record(flow).end.unwrap().0, 18 * full + 2 * DELAY.0);
}

#[test]
fn cut_through_needs_an_output_no_faster_than_its_input() {
    let cut = EngineSettings {
        transport: transport(),
        switching: Switching::CutThrough,
        ..EngineSettings::default()
    };
    let [fast, slow] = [400, 100].map(|rate| time(rate, PAYLOAD + HEADER));
    let up = end_over(&[100, 400], 1, cut);
    assert_eq!(up, slow + fast + 2 * DELAY.0);
    let down = end_over(&[400, 100], 1, cut);
    assert_eq!(down, time(400, HEADER) + slow + 2 * DELAY.0);
}

#[test]
fn host_acts_after_its_delay() {
    let host_delay = Picoseconds::from_nanos(700);
    let transport = Transport { window: Window::Packets(1), ..transport() };
    let settings = EngineSettings { transport, host_delay, ..EngineSettings::default() };
    let data = 2 * (time(400, PAYLOAD + HEADER) + DELAY.0);
    let answer = 2 * (time(400, transport.acknowledgement) + DELAY.0);
    // With one packet at a time, each except the last costs a round trip that includes both hosts.
    for packets in [1, 2, 9] {
        let round_trip = data + answer + 2 * host_delay.0;
        let end = end_over(&[400, 400], packets, settings);
        assert_eq!(end, (packets - 1) * round_trip + data + host_delay.0);
    }
}

/// A window of one bandwidth-delay product keeps the link busy with no packet to spare.
#[test]
fn idle_round_trip_includes_host_and_switch_delays() {
    let host_delay = Picoseconds::from_nanos(700);
    for switching in [Switching::StoreAndForward, Switching::CutThrough] {
        let with = |window| {
            let transport = Transport { window, ..transport() };
            let settings =
                EngineSettings { transport, switching, host_delay, ..EngineSettings::default() };
            end_over(&[400, 400, 400], 500, settings)
        };
        let all = with(Window::Packets(60_000));
        let product = with(Window::BandwidthDelay { percent: 100 });
        let less = with(Window::BandwidthDelay { percent: 80 });
        assert!(product == all && less > all, "{switching:?}: {product}, {less} and {all} ps");
    }
}
