// SPDX-License-Identifier: Apache-2.0
//! The value parser of options that choose among values of another crate's type.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A value with its name and help. An empty help is omitted.
pub type OptionValue<T> = (T, &'static str, &'static str);

/// Parses a name in `choices`.
pub fn one_of<T: Copy + Send + Sync>(
    choices: &'static [OptionValue<T>],
) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(|(_, name, help)| {
        let name = PossibleValue::new(*name);
        if help.is_empty() { name } else { name.help(*help) }
    });
    PossibleValuesParser::new(names).map(|chosen| {
        let choice = choices.iter().find(|(_, name, _)| *name == chosen);
        choice.expect("the parser accepts only these names").0
    })
}
