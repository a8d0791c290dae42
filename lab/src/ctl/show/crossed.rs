// SPDX-License-Identifier: Apache-2.0
//! Ends that are lit by others than the fabric says: which two cables were swapped, and what to type.

use lightloom_daemon_api::device::CrossedEnd;

use super::status::StatusAlarm;
use super::{count, named, natural};

/// How many ends a line holds.
const ENDS_MAX: usize = 4;

/// What to say of these ends, worst kept short; nothing where every end sees whom it should.
pub(super) fn alarm(crossed: &[CrossedEnd]) -> Option<StatusAlarm> {
    let mut ends: Vec<&CrossedEnd> = crossed.iter().collect();
    ends.sort_by_cached_key(|end| natural(&end.end));
    let first = *ends.first()?;
    let one = |CrossedEnd { end, lit_by, should_be }: &&CrossedEnd| {
        format!("{end} is lit by {lit_by} and should be by {should_be}")
    };
    let about = named(ends.iter().map(one).collect(), ENDS_MAX);
    let around = format!("go around: lightloom ctl fault {}", fibres(&ends).join(" "));
    let next = match other_cable(first, &ends) {
        Some(other) => {
            format!("swap the cables of {} and {other} back; or {around}", first.end)
        }
        None => format!("look where the cables lead; or {around}"),
    };
    Some((format!("CROSSED CABLES? {}", count(ends.len(), "end")), about, next))
}

/// The end that has the cable which belongs to this one: it is lit by whom this one should be.
fn other_cable<'a>(first: &CrossedEnd, ends: &[&'a CrossedEnd]) -> Option<&'a str> {
    let other = ends.iter().find(|end| end.lit_by == first.should_be)?;
    Some(&other.end)
}

/// One end of each fibre that does not lead where it should.
fn fibres<'a>(ends: &[&'a CrossedEnd]) -> Vec<&'a str> {
    let mut named: Vec<(&str, &str)> = Vec::new();
    for CrossedEnd { end, should_be: far, .. } in ends.iter().copied() {
        if !named.contains(&(far, end)) {
            named.push((end, far));
        }
    }
    named.into_iter().map(|(end, _)| end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_swapped_cables_are_named_with_what_to_type() {
        let end = |ends: [&str; 3]| {
            let [end, lit_by, should_be] = ends.map(str::to_owned);
            CrossedEnd { end, lit_by, should_be }
        };
        assert_eq!(alarm(&[]), None);
        let pair = [
            ["n1/b0.1", "n6/b1.1", "n5/b1.1"],
            ["n2/b0.1", "n5/b1.1", "n6/b1.1"],
            ["n5/b1.1", "n2/b0.1", "n1/b0.1"],
            ["n6/b1.1", "n1/b0.1", "n2/b0.1"],
        ];
        let (what, about, next) = alarm(&pair.map(end)).unwrap();
        assert_eq!(what, "CROSSED CABLES? 4 ends");
        assert!(
            about.starts_with("n1/b0.1 is lit by n6/b1.1 and should be by n5/b1.1, n2/b0.1 is")
        );
        let typed = "swap the cables of n1/b0.1 and n2/b0.1 back; or go around: lightloom ctl fault n1/b0.1 n2/b0.1";
        assert_eq!(next, typed);
        let (.., next) = alarm(&[end(pair[0])]).unwrap();
        let typed = "look where the cables lead; or go around: lightloom ctl fault n1/b0.1";
        assert_eq!(next, typed);
    }
}
