//! Ends that are lit by others than the fabric says: which two cables were swapped, and what to type.

use serde_json::Value;

use super::status::Alarm;
use super::{count, list, named, natural, text};

/// How many ends a line holds.
const ENDS_MAX: usize = 4;

/// What to say of these ends, worst kept short; nothing where every end sees whom it should.
pub(super) fn alarm(crossed: &Value) -> Option<Alarm> {
    let mut ends: Vec<&Value> = list(crossed).iter().collect();
    ends.sort_by_cached_key(|end| natural(&text(&end["end"])));
    let first = *ends.first()?;
    let one = |end: &&Value| {
        let of = |key: &str| text(&end[key]);
        format!("{} is lit by {} and should be by {}", of("end"), of("lit_by"), of("should_be"))
    };
    let about = named(ends.iter().map(one).collect(), ENDS_MAX);
    let around = format!("go around: lightloom ctl fault {}", fibres(&ends).join(" "));
    let next = match other_cable(first, &ends) {
        Some(other) => {
            format!("swap the cables of {} and {other} back; or {around}", text(&first["end"]))
        }
        None => format!("look where the cables lead; or {around}"),
    };
    Some((format!("CROSSED CABLES? {}", count(ends.len(), "end")), about, next))
}

/// The end that has the cable which belongs to this one: it is lit by whom this one should be.
fn other_cable(first: &Value, ends: &[&Value]) -> Option<String> {
    let other = ends.iter().find(|end| end["lit_by"] == first["should_be"])?;
    Some(text(&other["end"]))
}

/// One end of each fibre that does not lead where it should.
fn fibres(ends: &[&Value]) -> Vec<String> {
    let mut named: Vec<(String, String)> = Vec::new();
    for end in ends {
        let (end, far) = (text(&end["end"]), text(&end["should_be"]));
        if !named.contains(&(far.clone(), end.clone())) {
            named.push((end, far));
        }
    }
    named.into_iter().map(|(end, _)| end).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_swapped_cables_are_named_with_what_to_type() {
        let end = |[end, lit_by, should_be]: [&str; 3]| json!({"end": end, "lit_by": lit_by, "should_be": should_be});
        assert_eq!(alarm(&json!([])), None);
        let pair = [
            ["n1/b0.1", "n6/b1.1", "n5/b1.1"],
            ["n2/b0.1", "n5/b1.1", "n6/b1.1"],
            ["n5/b1.1", "n2/b0.1", "n1/b0.1"],
            ["n6/b1.1", "n1/b0.1", "n2/b0.1"],
        ];
        let (what, about, next) = alarm(&json!(pair.map(end))).unwrap();
        assert_eq!(what, "CROSSED CABLES? 4 ends");
        assert!(
            about.starts_with("n1/b0.1 is lit by n6/b1.1 and should be by n5/b1.1, n2/b0.1 is")
        );
        let typed = "swap the cables of n1/b0.1 and n2/b0.1 back; or go around: lightloom ctl fault n1/b0.1 n2/b0.1";
        assert_eq!(next, typed);
        let (.., next) = alarm(&json!([end(pair[0])])).unwrap();
        let typed = "look where the cables lead; or go around: lightloom ctl fault n1/b0.1";
        assert_eq!(next, typed);
    }
}
