// SPDX-License-Identifier: Apache-2.0

use lightloom_control::policy::phases::{Booking, Standing};
use lightloom_control::state::Micros;
use lightloom_daemon_api::phase::{
    LeaseStatus, NextPhase, PhaseOfPlan, PhaseState, PhaseStatus, Phases, WayOfPlan,
};

use crate::runtime::Runtime;

fn ms(time: Micros) -> f64 {
    time.as_secs_f64() * 1e3
}

pub fn phases(runtime: &Runtime) -> Phases {
    let (control, now) = (&runtime.control, runtime.clock.now());
    let booked = control.phases();
    let plan = control.plan();
    let phases = plan.iter().flat_map(|plan| &plan.phases);
    let ways = plan.iter().flat_map(|plan| &plan.transitions);
    Phases {
        revision: control.ledger().plan_sha256.clone(),
        lit: control.phase().map(|phase| phase.name.clone()),
        phases: phases
            .map(|phase| PhaseOfPlan { name: phase.name.clone(), circuits: phase.circuits.len() })
            .collect(),
        ways: ways
            .map(|way| WayOfPlan {
                from: way.from.clone(),
                to: way.to.clone(),
                stages: way.stages.len(),
                stated_ms: way.dark_time_ps.as_secs_f64() * 1e3,
                measured_ms: booked.measured(&way.from, &way.to).map(ms),
            })
            .collect(),
        lease: control.lease(&now).map(|(lease, left)| LeaseStatus {
            job: lease.job.clone(),
            actor: lease.actor.to_string(),
            left_ms: ms(left),
        }),
        waiting: booked.waiting().map(|booking| status(runtime, booking)).collect(),
    }
}

pub fn status(runtime: &Runtime, booking: &Booking) -> PhaseStatus {
    let (control, now) = (&runtime.control, runtime.clock.now());
    let (state, txn, reason, fix) = standing(booking);
    let next = control.plan().and_then(|plan| {
        let next = control.phase_after(plan, &booking.wish.phase)?;
        let expected = control.expected(plan, Some(&booking.wish.phase), next);
        Some(NextPhase { phase: next.name.clone(), expected_ms: ms(expected) })
    });
    let lease = control.lease(&now);
    let lease = lease.filter(|(l, _)| l.job == booking.wish.job && l.actor == booking.asked.actor);
    PhaseStatus {
        request_id: booking.asked.request.clone(),
        job: booking.wish.job.clone(),
        phase: booking.wish.phase.clone(),
        state,
        reason,
        fix,
        txn,
        revision: control.ledger().plan_sha256.clone(),
        lit: control.phase().map(|phase| phase.name.clone()),
        from: booking.from.clone(),
        expected_ms: ms(booking.expected),
        stated_ms: booking.stated.map(ms),
        dark_ms: booking.dark().map(ms),
        took_ms: booking.ended.zip(booking.began).map(|(ended, began)| ms(ended - began)),
        needs_ms: match booking.standing {
            Standing::Kept(needs) => Some(ms(needs)),
            _ => None,
        },
        next,
        lease_left_ms: lease.map(|(_, left)| ms(left)),
    }
}

type Stands = (PhaseState, Option<u32>, Option<String>, Option<String>);

fn standing(booking: &Booking) -> Stands {
    match &booking.standing {
        Standing::Waiting => (PhaseState::Waiting, None, None, None),
        Standing::Moving(txn) => (PhaseState::Moving, Some(txn.0), None, None),
        Standing::Lit(txn) => (PhaseState::Lit, txn.map(|txn| txn.0), None, None),
        Standing::Kept(needs) => {
            let (least, needs) = (ms(booking.wish.least), ms(*needs));
            let reason = format!(
                "{least:.0} ms is too short: below {needs:.1} ms, switching to the circuits of {} \
                    costs more time than it saves",
                booking.wish.phase
            );
            let fix = format!("request at least {} ms, or keep the current circuits", needs.ceil());
            (PhaseState::Kept, None, Some(reason), Some(fix))
        }
        Standing::Missed(why) => {
            let fix = "request it again; `lightloom ctl status` shows the cause".to_owned();
            (PhaseState::Missed, None, Some(why.to_string()), Some(fix))
        }
    }
}
