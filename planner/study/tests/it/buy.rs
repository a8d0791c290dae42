// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use lightloom_fabric::trace::Health;
use lightloom_study::architecture::{Architecture, NicRate, PartLoss, Site, parse};
use lightloom_study::buy::{PlannedSteps, buy, histories, load_buy};
use lightloom_study::cost::{CostOutcome, PriceList, QuoteRecord, cost, read_prices};
use lightloom_units::seed::Seed;

fn prices() -> PriceList {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../topologies/prices.yaml");
    read_prices("prices.yaml", &std::fs::read(path).unwrap()).0.unwrap()
}

fn built_in(name: &str) -> Result<Box<dyn Architecture>, String> {
    Err(format!("{name} is not there"))
}

fn file(designs: &str, more: &str) -> String {
    format!(
        "name: t\ngpus: 256\ngpus_per_node: 4\ndays: 100\n{more}designs: [{designs}]\n\
         workload: {{tp: 32, peak_tflops: 1000, mfu: 0.5, step: {{at_gbytes_per_s: 800}}, jobs: [{{name: a, gpus: 256, \
         days: 10000, every_days: 10000}}]}}\n\
         checkpoint: {{every_minutes: 60, seconds: 0, restart_minutes: 0}}\n\
         faults: {{exponential: {{node_mtbf_days: 1000000000, repair_hours: 1}}}}\n\
         running: {{service_years: 4, gpu_watts: 1000, usd_per_kwh: 0.1, pue: 1.5}}\n"
    )
}

#[test]
fn fault_free_price_is_cost_over_peak() {
    let (question, mistakes) =
        load_buy("t.yaml", file("{design: khop:2}", "").as_bytes(), &mut built_in);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let answer = buy(&question.unwrap(), &prices(), None, Seed(1)).unwrap();
    let row = &answer.rows[0];
    // $2,626.80 and 48.10 W are published for the design; the GPU's values are in the price file.
    let capex = 44_962.0 + 2_626.8;
    let energy = (1_000.0 + 48.1) / 1e3 * 1.5 * 365.25 * 24.0 * 0.1;
    let by_hand = (capex / 4.0 + energy) / (1.0 * 0.5);
    let ours = row.usd_per_pflop_year.unwrap();
    assert!((ours / by_hand - 1.0).abs() < 1e-9, "{ours} {by_hand}");
    assert_eq!((row.shares.useful, row.is_pareto), (1.0, true));
}

fn corner(prices: &PriceList, high: &BTreeSet<&str>) -> PriceList {
    let figure = |at: f64| {
        format!(
            "{{low: {at}, mean: {at}, high: {at}, spread: assumed, date: \"2025-08\", source: t, \
             confidence: assumed}}"
        )
    };
    let mut text = "quotes:\n".to_owned();
    for (part, quote) in prices.iter() {
        let QuoteRecord { low, high: most, .. } = quote.usd;
        let usd = if high.contains(part) { most } else { low };
        text += &format!("- part: {part}\n  what: t\n  usd: {}\n", figure(usd));
        if let Some(watts) = &quote.watts {
            text += &format!("  watts: {}\n", figure(watts.mean));
        }
    }
    let (list, mistakes) = read_prices("corner.yaml", text.as_bytes());
    list.unwrap_or_else(|| panic!("{mistakes:?}"))
}

/// Recomputes every combination of low and high prices. The extremes must match the stated range.
#[test]
fn price_ranges_match_every_combination_of_extremes() {
    let prices = prices();
    let designs: Vec<_> = ["khop:2", "nvl:72"].map(|name| parse(name).unwrap()).into();
    let site = Site { gpus: 256, gpus_per_node: 4, nic: NicRate::G400 };
    let mut parts = BTreeSet::from(["gpu".to_owned()]);
    for row in cost(&designs, &site, &prices).unwrap() {
        let CostOutcome::Priced(figures) = row.outcome else { panic!("{row:?}") };
        parts.extend(figures.bill.iter().map(|line| line.part.clone()));
    }
    let ask = |prices: &PriceList| {
        let text = file("{design: khop:2}, {design: nvl:72}", "");
        let text = text.replace("gpus: 256, ", "gpus: 128, ");
        buy(&load_buy("t.yaml", text.as_bytes(), &mut built_in).0.unwrap(), prices, None, Seed(1))
            .unwrap()
    };
    let stated = ask(&prices).verdict;
    let winner = stated.winner.clone().unwrap();
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    assert!((4..=9).contains(&parts.len()), "{parts:?}");
    for ends in 0..1_u32 << parts.len() {
        let high = (0..parts.len()).filter(|at| ends >> at & 1 == 1).map(|at| parts[at]);
        let rows = ask(&corner(&prices, &high.collect())).rows;
        let of = |is_winner: bool| {
            let row = rows.iter().find(|row| winner.starts_with(&row.design) == is_winner);
            row.unwrap().usd_per_pflop_year.unwrap()
        };
        let more = of(false) - of(true);
        (least, most) = (least.min(more), most.max(more));
    }
    let rival = &stated.within_prices[0];
    println!("{winner}: {} costs {least:.0} to {most:.0} dollars more", rival.design);
    let near = |ours: f64, naive: f64| (ours - naive).abs() < 1e-6 * most.abs();
    assert!(near(rival.least_more_usd, least) && near(rival.most_more_usd, most), "{rival:?}");
    assert!(least > 0.0, "{}", stated.sentence);
    assert!(stated.sentence.contains("no other design is cheaper at prices within their ranges"));
    assert!(stated.sentence.contains("4 of 4 other draws of faults and arrivals agree"));
}

#[test]
fn reports_designs_that_cannot_be_bought() {
    let said = |designs: &str, more: &str| -> String {
        let (question, mistakes) =
            load_buy("t.yaml", file(designs, more).as_bytes(), &mut built_in);
        let Some(question) = question else {
            return mistakes
                .iter()
                .map(|mistake| format!("{} {:?}", mistake.message, mistake))
                .collect();
        };
        match buy(&question, &prices(), None, Seed(1)) {
            Err(error) => error.to_string(),
            Ok(answer) => answer.left_out.iter().map(|left| left.why.clone()).collect(),
        }
    };
    let policy = said("{design: nvl:72, policy: bypass}", "");
    assert!(policy.contains("`nvl:72` cannot have the policy `bypass`"), "{policy}");
    assert!(policy.contains("regroup, backup, reduced-tp"), "{policy}");
    for (designs, more) in
        [("{design: khop:2}", "network: \"nvl:72\"\n"), ("{design: khop:2, network: tpuv4}", "")]
    {
        let network = said(designs, more);
        assert!(network.contains("unknown data-centre network"), "{network}");
    }
    let part = said(
        "{design: khop:2}",
        "part_faults: [{part: ocstrx, mtbf_hours: 10, repair_hours: 1}]\n",
    );
    assert!(part.contains("no listed design has a part `ocstrx`"), "{part}");
    assert!(part.contains("use one of dac-1.6t, fibre, ocstrx-800g"), "{part}");
    let spares = said("{design: nvl:72, policy: backup, spares: 18}", "");
    assert!(spares.contains("72 as backup, but a domain has 72"), "{spares}");
    let small = said("{design: dgx}", "");
    assert!(small.contains("no parts list for dgx"), "{small}");
    let network = said("{design: khop:2}", "network: \"fat-tree:8\"\n");
    assert!(network.contains("has 128 end points, but 256 are needed"), "{network}");
    let poor = said("{design: khop:2}", "budget_usd: 5000000\n");
    assert!(poor.contains("job `a` needs 256"), "{poor}");
    let (question, _) = load_buy("t.yaml", file("{design: khop:2}", "").as_bytes(), &mut built_in);
    let none =
        buy(&question.unwrap(), &PriceList::default(), None, Seed(1)).unwrap_err().to_string();
    assert!(none.contains("has no part `gpu`"), "{none}");
}

/// With checkpoints every half hour, additional in-memory copies never increase the lost work, even
/// 20,000 minutes apart.
#[test]
fn accepts_answers_in_range_and_rejects_others() {
    let said = |answer: &str| {
        let text = file(&format!("{{design: nvl:72, answer: {answer}}}"), "");
        let text = text.replace("gpus: 256, ", "gpus: 128, ").replace("1000000000", "100");
        let (question, mistakes) = load_buy("t.yaml", text.as_bytes(), &mut built_in);
        let Some(question) = question else {
            let place = mistakes[0].place.as_ref().expect("a mistake has a place").clone();
            let marked = &place.excerpt.text[place.excerpt.marked.clone()];
            return Err(format!("{marked}: {}", mistakes[0].message));
        };
        Ok(buy(&question, &prices(), None, Seed(1)).unwrap().rows[0].useful_pflop_years)
    };
    let copies = |every: &str, copies: u32| {
        said(&format!(
            "{{in_memory: {{every_minutes: {every}, seconds: 0, load_minutes: 0, copies: {copies}}}}}"
        ))
    };
    let restart = said("{restart: {}}").unwrap();
    for every in ["1", "20000", "999983", "1000000"] {
        let [one, two] = [1, 2].map(|one| copies(every, one).unwrap());
        assert!(two >= one && (one / restart - 1.0).abs() < 1e-9, "{every}: {one} {two} {restart}");
    }
    for (refused, at, why) in [
        (copies("2000000", 2), "2000000", "`2000000` is out of range"),
        (copies("1", 0), "0", "`0` is out of range"),
        (
            said("{migrate: {minutes: 1}}"),
            "{minutes: 1}",
            "the policy `regroup` reserves no spare to move to",
        ),
    ] {
        assert_eq!(refused.unwrap_err(), format!("{at}: {why}"));
    }
}

#[test]
fn answer_does_not_depend_on_design_order() {
    // The larger domain also uses every GPU. With almost no faults, both do the same work at
    // different costs.
    let designs = [
        "{design: nvl:72}",
        "{design: nvl:72, policy: reduced-tp}",
        "{design: nvl:72, answer: {in_memory: {every_minutes: 1000000, seconds: 0, load_minutes: 0, copies: 1}}}",
        "{design: khop:2}",
        "{design: nvl:36}",
        "{design: dgx}",
        "{design: big-switch}",
    ];
    let answer = |designs: &[&str]| {
        let text = file(&designs.join(", "), "")
            .replace("gpus: 256\n", "gpus: 288\n")
            .replace("step: {", "step: {tensor_parallel: 0.6, ")
            .replace("gpus: 256, ", "gpus: 128, ")
            .replace("1000000000", "100");
        let (question, mistakes) = load_buy("t.yaml", text.as_bytes(), &mut built_in);
        let answer =
            buy(&question.unwrap_or_else(|| panic!("{mistakes:?}")), &prices(), None, Seed(1));
        serde_json::to_value(answer.unwrap()).unwrap()
    };
    let forth = answer(&designs);
    let mut reversed = designs;
    reversed.reverse();
    assert_eq!(forth, answer(&reversed));
    let both = answer(&[designs[2], designs[0]]);
    let sentence = both["verdict"]["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("Buy nvl:72 (regroup) or nvl:72 (regroup, in_memory): "),
        "{sentence}"
    );
    assert!(sentence.contains("4 of 4 other draws"), "{sentence}");
    assert_eq!(both["verdict"]["by_price"], serde_json::json!([]));
    for flip in both["verdict"]["by_fault_rate"].as_array().unwrap() {
        assert_eq!(flip["winner"], "nvl:72 (regroup)");
    }
}

#[test]
fn margin_is_a_share_of_the_next_design() {
    let text = file("{design: khop:2}, {design: nvl:72}", "").replace("gpus: 256, ", "gpus: 128, ");
    let answer = buy(
        &load_buy("t.yaml", text.as_bytes(), &mut built_in).0.unwrap(),
        &prices(),
        None,
        Seed(1),
    );
    let answer = answer.unwrap();
    let [first, second] = [0, 1].map(|at| answer.rows[at].usd_per_pflop_year.unwrap());
    let said = format!("{:.1} % (", 100.0 * (second - first) / second);
    assert!(answer.verdict.sentence.contains(&said), "{said}: {}", answer.verdict.sentence);
}

#[test]
fn ring_wins_the_dense_workload_and_loses_the_expert_workload() {
    let answer = |name: &str| {
        let path = format!("{}/../../topologies/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap().replace("gpus: 131072", "gpus: 81920");
        let (question, mistakes) = load_buy(name, text.as_bytes(), &mut built_in);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let mut question = question.unwrap();
        question.window_ms /= 8;
        let kept = ["khop:2", "nvl:72"];
        question.candidates.retain(|one| kept.contains(&one.design.name().as_str()));
        buy(&question, &prices(), None, Seed(1)).unwrap()
    };
    let experts = answer("buy-experts.yaml");
    println!("{}", experts.verdict.sentence);
    assert!(!experts.verdict.sentence.contains(" 0.0 % below"), "{}", experts.verdict.sentence);
    assert!(!experts.verdict.winner.unwrap().starts_with("khop"));
    let dense = answer("buy-pretraining.yaml");
    println!("{}", dense.verdict.sentence);
    assert!(dense.verdict.winner.unwrap().starts_with("khop"));
}

/// A failed transceiver slows its ring, and a failed chip slows its switch domain. A torus loses
/// the whole cube. With one plane, a node goes out of service; with four, it loses a quarter of its
/// rate. If slowing the largest job costs more than removing the affected GPUs, the GPUs go out of
/// service.
#[test]
fn failed_part_costs_each_design_its_specific_loss() {
    let shares = |design: &str, network: &str, part: &str, exchange: f64| {
        let text = file(&format!("{{design: {design}, network: \"{network}\"}}"), "")
            .replace(
                "step: {",
                &format!(
                    "step: {{tensor_parallel: {exchange}, data_parallel: {}, ",
                    exchange / 2.0
                ),
            )
            .replace("name: a, gpus: 256", "name: a, gpus: 128")
            .replace(
                "running:",
                &format!(
                    "part_faults: [{{part: {part}, mtbf_hours: 20000, repair_hours: 24}}]\nrunning:"
                ),
            );
        let (question, mistakes) = load_buy("t.yaml", text.as_bytes(), &mut built_in);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let answer = buy(&question.unwrap(), &prices(), None, Seed(3)).unwrap();
        answer.rows[0].shares
    };
    let tree = "fat-tree:64";
    for (design, network, part, exchange, is_slower, is_out) in [
        ("khop:2", tree, "ocstrx-800g", 0.04, true, false),
        ("khop:2", tree, "ocstrx-800g", 0.4, false, true),
        ("nvl:72", tree, "nvlink-switch", 0.2, true, false),
        ("nvl:144", tree, "copper-200g", 0.2, true, false),
        ("ironwood", tree, "dcn-optical-800g", 0.2, false, true),
        ("nvl:72", tree, "dcn-optical-400g", 0.2, false, true),
        ("nvl:72", "multi-plane:4", "dcn-optical-400g", 0.04, true, false),
        ("nvl:72", "multi-plane:4", "dcn-optical-400g", 0.6, false, true),
        ("nvl:72", "photonic-rails", "ocs-port", 0.2, false, true),
    ] {
        let of = shares(design, network, part, exchange);
        // Slow parts with a short repair time stay in service.
        let is_out_too = of.faulty > 0.0;
        assert_eq!(is_out_too, is_out, "{design} on {network} without {part}: {of:?}");
        assert_eq!(
            of.slower > of.faulty,
            is_slower,
            "{design} on {network} without {part}: {of:?}"
        );
    }
}

/// 4,096 servers are drawn from 400. Copies of a server fail on the same days, but at different
/// instants.
#[test]
fn copies_of_a_trace_server_fail_at_different_instants() {
    let text = file("{design: khop:2}", "")
        .replace("gpus: 256\n", "gpus: 32768\n")
        .replace("exponential: {node_mtbf_days: 1000000000, repair_hours: 1}", "published: {}");
    let question = load_buy("t.yaml", text.as_bytes(), &mut built_in).0.unwrap();
    let history = &histories(&question, None, Seed(1), &[1.0]).unwrap()[0];
    let of_faults = |of: &dyn Fn(u64, u32) -> (u64, u32)| {
        let faults = history.faults.changes().iter();
        let faults = faults.filter(|change| change.health == Health::Faulty && change.at.0 > 0);
        faults.map(|change| of(change.at.0, change.node.0 / 2)).collect::<BTreeSet<_>>().len()
    };
    // Both nodes of a server fail together.
    let (servers, instants) = (of_faults(&|at, server| (at, server)), of_faults(&|at, _| (at, 0)));
    assert!(servers > 1_000 && instants * 100 > servers * 99, "{instants} {servers}");
}

#[test]
fn reads_the_step_from_a_planned_job() {
    let planned = r#"{"model": "m", "accelerator": "h100", "rows": [{"arch": "dgx", "gpus": 64, "tp": 32, "ep": 32, "step_seconds": 5.0, "mfu": 0.4, "tp_exposed_seconds": 1.0,
        "ep_exposed_seconds": 0.5, "dp_exposed_seconds": 0.25}]}"#;
    let planned: PlannedSteps = serde_json::from_str(planned).unwrap();
    let text = file("{design: khop:2}", "")
        .replace("mfu: 0.5, ", "")
        .replace("step: {", "step: {from: step.json, ");
    let (question, mistakes) = load_buy("t.yaml", text.as_bytes(), &mut built_in);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let mut question = question.unwrap();
    assert_eq!(question.step_from.as_deref(), Some("step.json"));
    question.take_step(&planned.rows[0]).unwrap();
    let speed = question.speed;
    let shares = [speed.tensor_parallel, speed.expert_parallel, speed.data_parallel, question.mfu];
    for (share, by_hand) in shares.into_iter().zip([0.2, 0.1, 0.05, 0.4]) {
        assert!((share - by_hand).abs() < 1e-12, "{shares:?}");
    }
    assert_eq!(question.step, 5_000_000_000_000);
    for (from, to, said) in [
        ("step: {from", "step: {tensor_parallel: 0.2, from", "`from` excludes shares"),
        ("step: {from: step.json, ", "step: {", "the MFU is missing"),
    ] {
        let mistakes = load_buy("t.yaml", text.replace(from, to).as_bytes(), &mut built_in).1;
        assert!(mistakes.iter().any(|one| one.message.contains(said)), "{mistakes:?}");
    }
}

/// Regression test: a step with another group size than the workload was accepted.
#[test]
fn rejects_a_step_with_other_group_sizes() {
    let planned = r#"{"model": "m", "accelerator": "h100", "rows": [{"arch": "dgx", "gpus": 64, "tp": 8, "ep": 1, "step_seconds": 5.0, "mfu": 0.4,
        "tp_exposed_seconds": 1.0, "ep_exposed_seconds": 0.5, "dp_exposed_seconds": 0.25}]}"#;
    let planned: PlannedSteps = serde_json::from_str(planned).unwrap();
    let mut question =
        load_buy("t.yaml", file("{design: khop:2}", "").as_bytes(), &mut built_in).0.unwrap();
    let why = question.take_step(&planned.rows[0]).unwrap_err();
    assert_eq!(why, "its groups have 8 GPUs, but `workload.tp` is 32");
    assert_eq!(question.mfu, 0.5);
}

/// Regression test: with one node per ToR, crossing hops were free.
#[test]
fn every_hop_crosses_with_one_node_per_tor() {
    let share = |nodes_per_tor: u32| {
        let step = format!(
            "step: {{data_parallel: 0.1, cross_tor_slowdown: 3, nodes_per_tor: {nodes_per_tor}, "
        );
        let text = file("{design: khop:2}", "").replace("step: {", &step);
        let text = text.replace("name: a, gpus: 256", "name: a, gpus: 128");
        let question = load_buy("t.yaml", text.as_bytes(), &mut built_in).0.unwrap();
        buy(&question, &prices(), None, Seed(1)).unwrap().rows[0].cross_tor_share
    };
    assert_eq!((share(1), share(4)), (1.0, 0.0));
}

/// Only one of the K hops is lit.
#[test]
fn dark_fibre_does_not_slow_a_ring() {
    let site = Site { gpus: 256, gpus_per_node: 4, nic: NicRate::G400 };
    let slower = PartLoss::Slower { share: 0.25, around: Some(1) };
    let lost = |part: &str| parse("khop:4").unwrap().without(part, &site);
    assert_eq!(lost("fibre"), [(0.25, slower), (0.75, PartLoss::Nothing)]);
    assert_eq!(lost("ocstrx-800g"), [(1.0, slower)]);
}
