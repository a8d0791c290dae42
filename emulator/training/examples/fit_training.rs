//! Fits the constants of the training model on half of the published rows and prints the errors on both halves.
//!
//!     cargo run --release -p lightloom-training --example fit_training -- ../shared/data/mfu_measured.csv [steps]
//!
//! Prints each set of constants ready to be pasted into `training::calibrated`. With 0 steps it only
//! reports the errors of the constants in use.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example is a command of its own: it reads a file and prints"
)]

use lightloom_training::calibration::Calibration;
use lightloom_training::validation::{Case, Errors, SPLIT_SEED, Source, cases};
use rand::RngExt;

/// A constant that is fitted: its name, where the search starts, its bounds, and where it lives.
struct Constant {
    name: &'static str,
    start: f64,
    low: f64,
    high: f64,
    place: fn(&mut Calibration) -> &mut f64,
}

const fn constant(
    name: &'static str,
    start: f64,
    [low, high]: [f64; 2],
    place: fn(&mut Calibration) -> &mut f64,
) -> Constant {
    Constant { name, start, low, high, place }
}

/// Constants common to all sets.
fn common() -> Vec<Constant> {
    vec![
        constant("gemm_efficiency", 0.75, [0.4, 0.87], |c| &mut c.gemm_efficiency),
        constant("gemm_lost_flops", 1e9, [1e8, 1e10], |c| &mut c.gemm_lost_flops),
        constant("memory_efficiency", 0.7, [0.2, 0.9], |c| &mut c.memory_efficiency),
        constant("tensor_exposed", 0.5, [0.01, 1.0], |c| &mut c.tensor_exposed),
        constant("step_seconds", 0.05, [1e-4, 0.3], |c| &mut c.step_seconds),
    ]
}

fn constants(source: Source) -> Vec<Constant> {
    let mut all = match source {
        Source::Llama3 => {
            return vec![
                constant("gemm_efficiency", 0.75, [0.4, 0.80], |c| &mut c.gemm_efficiency),
                constant("jitter_per_doubling", 0.003, [1e-5, 0.03], |c| {
                    &mut c.jitter_per_doubling
                }),
            ];
        }
        _ => common(),
    };
    if source == Source::VTrain {
        all.push(constant("pipeline_exposed", 0.2, [0.001, 1.0], |c| &mut c.pipeline_exposed));
        all.push(constant("jitter_per_doubling", 0.003, [1e-5, 0.05], |c| {
            &mut c.jitter_per_doubling
        }));
        all.push(constant("scale_out", 0.8, [0.2, 1.0], |c| &mut c.network.scale_out));
    }
    if matches!(source, Source::DgxCloudLlama) {
        all.push(constant("gemm_efficiency_fp8", 0.6, [0.3, 0.71], |c| &mut c.gemm_efficiency_fp8));
        all.push(constant("attention_efficiency", 0.5, [0.3, 0.75], |c| {
            &mut c.attention_efficiency
        }));
        all.push(constant("jitter_per_doubling", 0.003, [1e-5, 0.02], |c| {
            &mut c.jitter_per_doubling
        }));
        all.push(constant("pipeline_exposed", 0.2, [0.001, 1.0], |c| &mut c.pipeline_exposed));
        all.push(constant("data_exposed", 0.1, [0.001, 1.0], |c| &mut c.data_exposed));
        all.push(constant("expert_efficiency", 0.8, [0.3, 1.0], |c| &mut c.expert_efficiency));
        all.push(constant("expert_efficiency_fp8", 0.8, [0.3, 1.0], |c| {
            &mut c.expert_efficiency_fp8
        }));
        all.push(constant("expert_exposed", 0.5, [0.01, 1.0], |c| &mut c.expert_exposed));
    }
    all
}

/// How much a constant costs that is a factor e away from where it started: enough to keep constants
/// that the rows do not determine where physics put them, too little to move the others.
const PRIOR: f64 = 0.0003;

/// How often the search starts anew.
const STARTS: u64 = 12;

/// Sources that share one set of constants.
const SETS: [&[Source]; 4] = [
    &[Source::VTrain],
    &[Source::Korthikanti],
    &[Source::DgxCloudLlama, Source::DgxCloudGrok],
    &[Source::Llama3],
];

fn main() {
    let path = std::env::args().nth(1).unwrap_or_else(|| "../shared/data/mfu_measured.csv".into());
    let steps: usize = std::env::args().nth(2).map_or(3000, |text| text.parse().unwrap_or(3000));
    let table = std::fs::read_to_string(path).expect("the table of published steps is readable");
    let all = cases(&table);
    for set in SETS {
        let mine: Vec<&Case> = all.iter().filter(|case| set.contains(&case.source)).collect();
        let start = set[0].calibration().clone();
        let list = constants(set[0]);
        let fitted = if steps == 0 { start } else { fit(&start, &list, &mine, steps) };
        report(set, &mine, &fitted, &list);
    }
}

fn report(set: &[Source], mine: &[&Case], fitted: &Calibration, list: &[Constant]) {
    println!("== {}", fitted.name);
    let mut copy = fitted.clone();
    for one in list {
        println!("    {}: {:.4e},", one.name, *(one.place)(&mut copy));
    }
    for &source in set {
        let errors = |want: Option<bool>| {
            Errors::of(
                mine.iter()
                    .filter(|case| {
                        case.source == source && want.is_none_or(|w| w == case.is_fitted)
                    })
                    .map(|case| case.error(fitted)),
            )
        };
        for (what, errors) in
            [("fit", errors(Some(true))), ("judge", errors(Some(false))), ("all", errors(None))]
        {
            println!(
                "  {:?} {what:5} n={} mean {:.2} % max {:.2} %",
                source,
                errors.count,
                100.0 * errors.mean,
                100.0 * errors.max
            );
        }
    }
    if std::env::args().nth(3).is_some() {
        for case in mine {
            let step = case.predict(fitted);
            println!(
                "{} {:16} L{:3} {:?} t{} c{} p{} v{} d{} e{} b{} m{} {:?} meas {:.3} err {:+.1}% | comp {:.2} tp {:.2} cp {:.2} ep {:.2} bub {:.2} pp {:.2} dp {:.2} opt {:.2} jit {:.2} {}",
                case.id,
                case.model.name,
                case.model.layers,
                case.precision,
                case.mapping.tensor,
                case.mapping.context,
                case.mapping.pipeline,
                case.mapping.virtual_stages,
                case.mapping.data,
                case.mapping.expert,
                case.mapping.micro_batch,
                case.mapping.micro_batches(case.batch),
                case.mapping.recompute,
                case.measured_seconds,
                100.0 * case.error(fitted),
                step.compute_seconds,
                step.tensor_seconds,
                step.context_seconds,
                step.expert_seconds,
                step.bubble_seconds,
                step.transfer_seconds,
                step.data_seconds,
                step.optimizer_seconds,
                step.jitter_seconds,
                if case.is_fitted { "F" } else { "" }
            );
        }
    }
}

/// Nelder and Mead's simplex on the logarithms of the constants, bounded, from several starts.
fn fit(start: &Calibration, list: &[Constant], mine: &[&Case], steps: usize) -> Calibration {
    let apply = |point: &[f64]| {
        let mut set = start.clone();
        for (one, value) in list.iter().zip(point) {
            *(one.place)(&mut set) = value.exp().clamp(one.low, one.high);
        }
        set
    };
    let origin: Vec<f64> = list.iter().map(|one| one.start.ln()).collect();
    let cost = |point: &[f64]| {
        let set = apply(point);
        let outside: f64 = list
            .iter()
            .zip(point)
            .map(|(one, value)| (one.low.ln() - value).max(value - one.high.ln()).max(0.0))
            .sum();
        let far: f64 =
            point.iter().zip(&origin).map(|(value, start)| (value - start).powi(2)).sum();
        let fitted = mine.iter().filter(|case| case.is_fitted);
        // Each source weighs the same, however many rows it has.
        let mut sources = std::collections::BTreeMap::<Source, (f64, f64)>::new();
        for case in fitted {
            let entry = sources.entry(case.source).or_default();
            entry.0 += case.error(&set).abs();
            entry.1 += 1.0;
        }
        sources.values().map(|(sum, count)| sum / count).sum::<f64>() + outside + PRIOR * far
    };
    let mut best = (cost(&origin), origin.clone());
    for round in 0..STARTS {
        let mut random = SPLIT_SEED.stream("start of a fit", round);
        let mut point: Vec<f64> = best
            .1
            .iter()
            .map(|value| {
                value + f64::from(u8::from(round % 3 == 0)) * random.random_range(-1.0..1.0)
            })
            .collect();
        for size in [0.7, 0.3, 0.1] {
            point = simplex(&cost, &point, size, steps);
        }
        let reached = cost(&point);
        if reached < best.0 {
            best = (reached, point);
        }
    }
    let best = best.1;
    apply(&best)
}

fn simplex(cost: &dyn Fn(&[f64]) -> f64, start: &[f64], size: f64, steps: usize) -> Vec<f64> {
    let n = start.len();
    let mut points: Vec<(f64, Vec<f64>)> = (0..=n)
        .map(|corner| {
            let mut point = start.to_vec();
            if corner > 0 {
                point[corner - 1] -= size;
            }
            (cost(&point), point)
        })
        .collect();
    for _ in 0..steps {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let centre: Vec<f64> =
            (0..n).map(|i| points[..n].iter().map(|p| p.1[i]).sum::<f64>() / n as f64).collect();
        let worst = points[n].clone();
        let along = |factor: f64| {
            let point: Vec<f64> =
                (0..n).map(|i| centre[i] + factor * (worst.1[i] - centre[i])).collect();
            (cost(&point), point)
        };
        let reflected = along(-1.0);
        let replacement = if reflected.0 < points[0].0 {
            let expanded = along(-2.0);
            if expanded.0 < reflected.0 { expanded } else { reflected }
        } else if reflected.0 < points[n - 1].0 {
            reflected
        } else {
            along(0.5)
        };
        if replacement.0 < worst.0 {
            points[n] = replacement;
        } else {
            let first = points[0].1.clone();
            for (value, point) in &mut points[1..] {
                for i in 0..n {
                    point[i] = (point[i] + first[i]) / 2.0;
                }
                *value = cost(point);
            }
        }
    }
    points.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("a simplex has corners").1
}
