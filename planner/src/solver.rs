// SPDX-License-Identifier: Apache-2.0
//! Solvers for integer programs.

use good_lp::solvers::{WithMipGap, WithTimeLimit};
use good_lp::variable::UnsolvedProblem;
use good_lp::{Constraint, ResolutionError, Solution, SolverModel};

/// A solver for the integer programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solver {
    /// Written in pure Rust and always available. Up to about 16 leaves.
    Microlp,
    /// HiGHS with one thread. Up to about 64 leaves with sparse demands.
    #[cfg(feature = "highs")]
    Highs,
}

/// Best solver available in this build.
#[cfg(feature = "highs")]
pub const SOLVER: Solver = Solver::Highs;
/// Best solver available in this build.
#[cfg(not(feature = "highs"))]
pub const SOLVER: Solver = Solver::Microlp;

/// Limits at which a solver stops before the optimum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Relative gap at which the problem is solved.
    pub gap: f32,
    /// Time limit in seconds. Plans record whether it was reached, as results then vary by machine.
    pub seconds: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { gap: 1e-4, seconds: 30.0 }
    }
}

impl Solver {
    /// Solves `problem`. `None` if there is no solution within the limits.
    pub(crate) fn solve(
        self,
        problem: UnsolvedProblem,
        constraints: Vec<Constraint>,
        limits: Limits,
    ) -> Option<Box<dyn Solution>> {
        match self {
            Self::Microlp => {
                solve(problem.using(good_lp::solvers::microlp::microlp), constraints, limits)
            }
            #[cfg(feature = "highs")]
            Self::Highs => {
                let model = problem.using(good_lp::solvers::highs::highs).set_threads(1);
                solve(model, constraints, limits)
            }
        }
    }
}

fn solve<M>(model: M, constraints: Vec<Constraint>, limits: Limits) -> Option<Box<dyn Solution>>
where
    M: SolverModel<Error = ResolutionError> + WithTimeLimit + WithMipGap,
    M::Solution: 'static,
{
    let mut model = model.with_time_limit(limits.seconds).with_mip_gap(limits.gap).ok()?;
    for constraint in constraints {
        model.add_constraint(constraint);
    }
    Some(Box::new(model.solve().ok()?))
}
