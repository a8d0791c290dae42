// SPDX-License-Identifier: Apache-2.0
//! Mistakes in steps and demands, with their locations.

/// A mistake in a step or a demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// JSON pointer within the step.
    pub place: String,
    /// What is wrong.
    pub message: String,
    /// How to correct it. Empty if the message contains the correction.
    pub fix: String,
}

impl Mistake {
    pub(super) fn of_whole(message: impl Into<String>, fix: impl Into<String>) -> Vec<Self> {
        vec![Self { place: String::new(), message: message.into(), fix: fix.into() }]
    }

    pub(super) fn within(place: &str, mut mistakes: Vec<Self>) -> Vec<Self> {
        mistakes.iter_mut().for_each(|mistake| mistake.place.insert_str(0, place));
        mistakes
    }
}
