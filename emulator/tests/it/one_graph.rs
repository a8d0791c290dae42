// SPDX-License-Identifier: Apache-2.0
//! Compares the steps of `lightloom mfu` and `lightloom emulate` on drawn mappings, and after a change of overlap.
//!
//! The networks are drawn such that no two exchanges share a link: one top-of-rack switch, domains that hold exactly the TP
//! and CP ranks, and either one kind of exchange between domains or software without overlap.

use lightloom_emulator::outcome::JobStep;
use lightloom_emulator::scenario;
use lightloom_emulator::training::replay::{RingReuse, replay};
use lightloom_fabric::fabric::Fabric;
use lightloom_testkit::cases;
use lightloom_training::calibration::Precision;
use lightloom_training::cards::{self, Accelerator, NumberFormat};
use lightloom_training::machine::Cable;
use lightloom_training::mapping::{Batch, Mapping, Recompute};
use lightloom_training::mfu::Convention;
use lightloom_training::network::{Network, ScaleOutLeaf, Shape};
use lightloom_training::operators::{MeasuredAttention, MeasuredProduct, Operators};
use lightloom_training::request::{Changes, Request};
use lightloom_training::search::Limits;
use lightloom_training::step::Job;
use lightloom_training::tasks::{SimulatedRails, step_machine, step_tasks};
use lightloom_units::seed::{Seed, Stream};
use lightloom_units::{BitsPerSecond, Picoseconds, Text};
use rand::RngExt;

use crate::plan_times::Case;

struct Drawn {
    case: Case,
    train: String,
    request: Request,
    gpus: u64,
}

fn one_of<T: Copy>(draws: &mut Stream, all: &[T]) -> T {
    all[draws.random_range(0..all.len())]
}

/// Returns degrees of TP, CP, PP, DP and EP such that exchanges never share a link.
fn degrees(draws: &mut Stream, is_hidden: bool) -> [u32; 5] {
    let tp = one_of(draws, &[1, 2, 4, 8]);
    match draws.random_range(0..3_u32) {
        0 if is_hidden => [tp, 1, draws.random_range(2..=4), 1, 1],
        _ if is_hidden => [tp, 1, 1, draws.random_range(1..=4), 1],
        0 => [tp, 1, 1, 4, one_of(draws, &[2, 4])],
        _ => [tp, one_of(draws, &[1, 2]), draws.random_range(1..=3), draws.random_range(1..=3), 1],
    }
}

fn drawn(draws: &mut Stream, number: u32) -> Drawn {
    let is_hidden = draws.random_range(0..2_u32) == 0;
    let (card, constants) =
        if is_hidden { ("h100", "nemo-25.02") } else { ("a100", "megatron-lm-2022") };
    let [tp, cp, pp, dp, ep] = degrees(draws, is_hidden);
    let virtual_stages = if pp > 1 { one_of(draws, &[1, 2]) } else { 1 };
    let recompute = one_of(draws, &[Recompute::None, Recompute::Selective, Recompute::Full]);
    let precision =
        if is_hidden { one_of(draws, &[Precision::Bf16, Precision::Fp8]) } else { Precision::Bf16 };
    let micro_batches = pp * draws.random_range(1..=3_u32);
    let layers = pp * virtual_stages * draws.random_range(1..=2_u32);
    let (tokens, hidden) =
        (one_of(draws, &[1024, 2048, 4096_u32]), one_of(draws, &[2048, 4096_u32]));
    // The closed form of interleaved stages is that of even stages.
    let vocabulary = if virtual_stages > 1 { 1024 } else { one_of(draws, &[1024, 32_000]) };
    let experts = if ep > 1 { ", experts: {count: 8, top_k: 2, width: 4096}" } else { "" };
    let model = format!(
        "name: small\nsource: drawn\nlayers: {layers}\nhidden: {hidden}\nvocabulary: {vocabulary}\n\
         attention: {{grouped: {{query_heads: 32, key_value_heads: 8, head_size: {}}}}}\n\
         feed_forward: {{width: {}, activation: swiglu{experts}}}\n",
        hidden / 32,
        4 * hidden,
    );
    let (together, gpus) = (tp * cp, tp * cp * pp * dp);
    let nodes = gpus / together;
    let hbd = match together {
        1 => format!("none: {{nodes: {nodes}, gpus_per_node: 1}}"),
        _ => format!("switch: {{nodes: {nodes}, gpus_per_node: {together}, gpus: {together}}}"),
    };
    let fabric = format!(
        "kind: fabric\nversion: 2\nname: drawn-{number}\nhbd: {{{hbd}}}\ndcn: {{fat_tree: {{nodes_per_tor: {nodes}}}}}\n\
         jobs: [{{name: j, gpus: {gpus}, tp: {tp}, step: {{training: {{model: small.yaml, cp: {cp}, pp: {pp}, dp: {dp}, ep: {ep}, \
         micro_batches: {micro_batches}, tokens: {tokens}}}}}}}]\n"
    );
    let train = format!(
        "train: [{{job: j, accelerator: {card}, constants: {constants}, virtual_stages: {virtual_stages}, recompute: {}, \
         precision: {}}}]",
        recompute, precision,
    );
    let limits = Limits {
        tensor: vec![tp],
        context: vec![cp],
        pipeline: vec![pp],
        expert: vec![ep],
        micro_batch: vec![1],
        virtual_stages: vec![virtual_stages],
        recompute: vec![recompute],
        schedule: Vec::new(),
    };
    let request = Request {
        model: cards::read_model("small.yaml", model.as_bytes()).0.expect("a sound model"),
        card: cards::accelerator(card).unwrap(),
        batch: Batch { sequences: u64::from(micro_batches * dp), tokens: tokens.into() },
        precision,
        expert_imbalance: 0.0,
        convention: Convention::MfuFull,
        limits,
        constants: Some(constants.to_owned()),
        refitted: Default::default(),
        changes: Changes::default(),
    };
    let name = format!(
        "{number:>3} {constants} TP {tp} CP {cp} PP {pp} DP {dp} EP {ep}, {virtual_stages} virtual stages, {micro_batches} × {tokens} \
         tokens, {layers} layers of {hidden}, vocabulary {vocabulary}, {} {}",
        recompute, precision,
    );
    Drawn {
        case: Case { name, fabric, model, broken: Vec::new() },
        train,
        request,
        gpus: gpus.into(),
    }
}

fn in_closed_form(request: Request, gpus: u64, fabric: &Fabric) -> f64 {
    let prepared = request.prepare().unwrap();
    let network = Network::of_fabric(fabric);
    let outcome = prepared.search(gpus, &network).run();
    assert_eq!(outcome.found.len(), 1, "{outcome:?}");
    outcome.found[0].step.step_seconds
}

fn in_packets(drawn: &Drawn) -> (Fabric, JobStep) {
    let text = format!(
        "kind: scenario\nversion: 2\nname: x\non: {{fabric: fabric.yaml}}\n{}\n",
        drawn.train
    );
    let (loaded, mistakes) = drawn.case.read(&text);
    let mut scenario = loaded.unwrap_or_else(|| panic!("{}: {mistakes:?}", drawn.case.name));
    scenario.train[0].card = Some(drawn.request.card.clone());
    let outcome = lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap();
    let scenario::On::Fabric(fabric) = &scenario.on else { panic!("no fabric") };
    ((**fabric).clone(), outcome.steps.of_jobs()[0].clone())
}

#[test]
fn mfu_and_emulate_agree_on_drawn_mappings_without_contention() {
    let mut draws = Seed(63).stream("one graph", 0);
    let mut misses = Vec::new();
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for number in 0..cases(5, 200) {
        let drawn = drawn(&mut draws, number);
        let (fabric, step) = in_packets(&drawn);
        let closed = in_closed_form(drawn.request.clone(), drawn.gpus, &fabric);
        let packets = step.took().unwrap().as_secs_f64();
        let ratio = packets / closed;
        println!("{ratio:.4} {closed:.6} s {packets:.6} s {}", drawn.case.name);
        (least, most) = (least.min(ratio), most.max(ratio));
        if !(0.99..=1.01).contains(&ratio) {
            misses.push(format!("{ratio:.4} {} {:?}", drawn.case.name, step.why));
        }
    }
    println!("emulate ÷ mfu: {least:.4} to {most:.4}, {} beyond 1 %", misses.len());
    assert!(misses.is_empty(), "{}: {}", misses.len(), misses.join("\n"));
}

/// Returns the card with products and attention cores at half of its roofline.
fn with_operators(card: &Accelerator) -> Accelerator {
    let peak = 1e12 * card.peak_tflops[&NumberFormat::Bf16];
    let rate = card.memory_rate.0.bytes_per_second();
    let time = |flops: f64, bytes: f64| {
        Text(Picoseconds((2e12 * (flops / peak).max(bytes / rate)) as u64))
    };
    let sides = [512, 2048, 8192].map(|side| (side, f64::from(side)));
    let products = sides.map(|(side, n)| MeasuredProduct {
        format: NumberFormat::Bf16,
        rows: side,
        inner: side,
        columns: side,
        time: time(2.0 * n * n * n, 6.0 * n * n),
    });
    let cores = [1024_u32, 4096].map(|tokens| {
        let flops = 2.0 * 8.0 * f64::from(tokens).powi(2) * 128.0;
        let (forward, backward) = (time(flops, 0.0), time(2.5 * flops, 0.0));
        MeasuredAttention { heads: 8, tokens, head_size: 128, forward, backward }
    });
    let operators = Operators {
        measured: "a drawn GPU".to_owned(),
        peak_tflops: card.peak_tflops.clone(),
        memory_rate: card.memory_rate,
        copy_rate: card.memory_rate,
        optimizer_rate: card.memory_rate,
        elementwise: 1.5,
        products: products.to_vec(),
        attention: cores.to_vec(),
    };
    Accelerator { operators: Some(operators), ..card.clone() }
}

#[test]
fn mfu_and_emulate_agree_on_a_card_with_measured_operators() {
    let mut draws = Seed(64).stream("measured operators", 0);
    for number in 0..cases(2, 20) {
        let mut drawn = drawn(&mut draws, number);
        let card = with_operators(&drawn.request.card);
        let shipped = std::mem::replace(&mut drawn.request.card, card);
        let (fabric, step) = in_packets(&drawn);
        let closed = in_closed_form(drawn.request.clone(), drawn.gpus, &fabric);
        let ratio = step.took().unwrap().as_secs_f64() / closed;
        assert!((0.99..=1.01).contains(&ratio), "{ratio:.4} {} {:?}", drawn.case.name, step.why);
        drawn.request.card = shipped;
        let without = in_closed_form(drawn.request, drawn.gpus, &fabric);
        assert!((closed / without - 1.0).abs() > 0.05, "{closed} s, and {without} s without them");
    }
}

/// The first layer has no experts, and only its overlap changes.
#[test]
fn changed_overlap_of_one_layer_moves_both_evaluations_equally() {
    let model = cards::model("deepseek-v3").unwrap();
    let mut model = lightloom_training::model::Model { layers: 3, prediction_depths: 0, ..model };
    let experts = model.feed_forward.experts.as_mut().unwrap();
    experts.dense_layers = 1;
    let card = cards::accelerator("h100").unwrap();
    let network = Network {
        name: "dgx".into(),
        shape: Shape::Switch,
        domain_gpus: 8,
        domain_rate: 450e9,
        scale_out_rate: 50e9,
        leaf: ScaleOutLeaf::NON_BLOCKING,
        cable_seconds: Network::usual_cables(Shape::Switch),
    };
    let job = Job {
        model: &model,
        mapping: Mapping { tensor: 8, ..Mapping::ONE_GPU },
        batch: Batch { sequences: 4, tokens: 4096 },
        compute: &card.compute(),
        network: &network,
        calibration: &card.calibration(),
        precision: Precision::Bf16,
        expert_imbalance: 0.0,
    };
    let before = job.work();
    let mut after = before.clone();
    let own = &mut after.layer[0].forward.stretches;
    let product = own.iter_mut().find(|one| one.exchange.is_some()).expect("TP exchanges");
    product.shown = 1.0;
    let links = [(3_600, 200), (400, 500)].map(|(gbps, nanos)| Cable {
        rate: BitsPerSecond::from_gbps(gbps),
        delay: Picoseconds::from_nanos(nanos),
    });
    let times = [&before, &after].map(|work| {
        let (graph, _) = step_tasks(work, SimulatedRails::First);
        let machine = step_machine(work, &network, SimulatedRails::First, links, 0.0);
        let packets = replay(&graph, &machine, RingReuse::Never, &mut ()).unwrap().end;
        [work.time().step_seconds, packets.0 as f64 * 1e-12]
    });
    let [closed, packets] = [0, 1].map(|of| times[1][of] - times[0][of]);
    println!("closed form {closed:.6} s more, packets {packets:.6} s more");
    assert!(closed > 1e-4 && (packets / closed - 1.0).abs() < 0.02, "{closed} and {packets}");
}
