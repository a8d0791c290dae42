// SPDX-License-Identifier: Apache-2.0
//! Packet-level simulation of one collective of a communication library, on the plan's links.

use lightloom_collective::{CollectiveKind, Joined, LibraryPlan, LibraryTime, Site};
use lightloom_engine::collective::Placement;
use lightloom_engine::topology::{self, RingShape, SwitchedDomain};
use lightloom_engine::transport::{Transport, Window};
use lightloom_engine::{
    Engine, EngineSettings, LinkSpec, NetworkBuilder, Route, VertexId, VertexRole,
};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

const MOST_PACKETS: f64 = 3e8;

/// Returns the simulated duration of `way` in seconds, or `None` if it has no plan or too many packets.
///
/// # Panics
/// Panics if a network with a single ring or switch cannot be built, which would be a bug.
pub fn seconds(site: &Site, kind: CollectiveKind, bytes: f64, way: LibraryTime) -> Option<f64> {
    let plan = site.plan(kind, bytes, way).ok()??;
    // The library's buffers limit how far the ranks of a tree run ahead of each other, and the packet
    // simulation does not model buffers. With more than two domains, both evaluations differ by up to 14 %.
    let is_buffered = matches!(plan.joined, Joined::Switch(_)) && site.domains > 2;
    let payload = Transport::default().payload.0;
    let sendings = plan.schedule.sendings.iter();
    let packets = sendings.map(|s| f64::from(s.messages) * s.message.0.div_ceil(payload) as f64);
    let many = packets.sum::<f64>() > MOST_PACKETS;
    let is_pair = matches!(plan.joined, Joined::Ring(_)) && site.ranks < 3;
    if many || is_pair || is_buffered {
        return None;
    }
    let transport = Transport {
        window: Window::Packets(1 << 14),
        acknowledgement: Bytes(1),
        ..Transport::default()
    };
    let mut settings = EngineSettings { transport, ..EngineSettings::default() };
    let mut builder = NetworkBuilder::new();
    let members = join(&plan, &mut builder, &mut settings);
    let mut engine = Engine::new(builder.build().expect("links connect members"), settings)
        .expect("the settings are valid");
    let running = Placement::new(members, Route::Shortest)
        .start(&plan.schedule, &mut engine)
        .expect("every member has a link");
    engine.run(SimTime(u64::MAX));
    let took = running.end(&engine)?.since(SimTime::START);
    Some(plan.start_seconds + took.as_secs_f64())
}

/// The plan's rates exclude headers, and acknowledgements have no size.
fn join(
    plan: &LibraryPlan,
    builder: &mut NetworkBuilder,
    settings: &mut EngineSettings,
) -> Vec<VertexId> {
    let transport = &settings.transport;
    let framed = 1.0 + transport.header.0 as f64 / transport.payload.0 as f64;
    let rate = BitsPerSecond((plan.rate * framed * 8.0) as u64);
    match &plan.joined {
        Joined::Ring(steps) => {
            let members: Vec<_> = steps.iter().map(|_| builder.add(VertexRole::Host)).collect();
            topology::Ring::build_into(builder, &members, RingShape::Ring, |place| {
                LinkSpec::new(rate, Picoseconds((steps[place] * 1e12) as u64))
            });
            members
        }
        Joined::Switch(step) => {
            settings.host_delay = Picoseconds((*step * 1e12) as u64);
            let link = LinkSpec::new(rate, Picoseconds::from_nanos(1));
            let gpus = plan.schedule.ranks as u32;
            SwitchedDomain { gpus, switches: 1 }.build_into(builder, link)
        }
    }
}
