// SPDX-License-Identifier: Apache-2.0
//! Compares a document with the shape of its kind, and reports all differences.

use std::cmp::Reverse;

use super::codes;
use super::problem::{Problem, Problems};
use super::shape::{Bounds, Form, Key, ROOT, Record, Shape, ShapeId, Shapes, lower_first};
use super::tree::{Kind, Meaning, Repairs, Span, Tree, View};
use super::{closest, quote};

/// Returns repairs that make the tree readable despite its errors, or `None` if that is impossible.
pub(crate) fn check(tree: &Tree<'_>, shapes: &Shapes, problems: &mut Problems) -> Option<Repairs> {
    let root = tree.root();
    let mut repairs = Repairs::default();
    check_duplicates(tree, problems, &mut repairs);
    let mut walk = Walk { shapes, problems, repairs };
    walk.value(root, ROOT, root.span()).then_some(walk.repairs)
}

fn check_duplicates(tree: &Tree<'_>, problems: &mut Problems, repairs: &mut Repairs) {
    let mut keys: Vec<(&str, u32)> = Vec::new();
    for index in (0..).take(tree.nodes.len()) {
        let node = tree.view(index);
        if node.kind() != Kind::Mapping {
            continue;
        }
        keys.clear();
        for (key, _) in node.entries() {
            match key.kind() {
                Kind::Plain | Kind::Quoted => keys.push((key.text(), key.index)),
                Kind::Sequence | Kind::Mapping => {
                    let message = "a key must be plain text, not a list or a mapping";
                    problems.add(Problem::new(codes::KEY_NOT_TEXT, key.span(), message));
                    repairs.hidden.insert(key.index);
                }
            }
        }
        keys.sort_unstable();
        for pair in keys.windows(2) {
            let [(name, first), (next, second)] = [pair[0], pair[1]];
            if name == next {
                repairs.hidden.insert(second);
                problems.add_error(|| {
                    let message = format!("duplicate key {}", quote(name));
                    Problem::new(codes::DUPLICATE_KEY, tree.view(second).span(), message)
                        .with_related(tree.view(first).span(), "first occurrence")
                        .with_help("remove one of the two")
                });
            }
        }
    }
}

struct Walk<'a> {
    shapes: &'a Shapes,
    problems: &'a mut Problems,
    repairs: Repairs,
}

impl<'a> Walk<'a> {
    /// Returns whether the value is readable, possibly with repairs. Missing parts are reported at its key, `place`.
    fn value(&mut self, node: View<'_>, id: ShapeId, place: Span) -> bool {
        let shapes = self.shapes;
        let shape = shapes.get(id);
        match (&shape.form, node.meaning()) {
            (Form::Anything, _)
            | (Form::Nothing, Meaning::Nothing)
            | (Form::Boolean, Meaning::Boolean(_)) => true,
            (Form::Integer(bounds), Meaning::Integer(value)) => self.integer(node, *bounds, value),
            (Form::Number(bounds), Meaning::Integer(Some(value))) => {
                self.number(node, *bounds, value as f64)
            }
            (Form::Number(bounds), Meaning::Number(value)) => self.number(node, *bounds, value),
            (Form::Text { .. }, Meaning::Text(text)) => self.text(node, shape, text),
            (Form::Words(words), Meaning::Text(text)) => self.word(node, words, text),
            (Form::List { .. }, Meaning::Sequence) => self.list(node, shape, place),
            (Form::Record(record), Meaning::Mapping) => self.record(node, record, place),
            (Form::OneOf(keys), Meaning::Mapping) => self.one_of(node, keys, place),
            (Form::Either(alternatives), meaning) => {
                self.either(node, shape, alternatives, meaning, place)
            }
            (_, meaning) => self.wrong_type(node, id, meaning, place),
        }
    }

    fn refuse(&mut self, problem: Problem) -> bool {
        self.problems.add(problem);
        false
    }

    fn wrong_type(&mut self, node: View<'_>, id: ShapeId, found: Meaning<'_>, place: Span) -> bool {
        let message = format!("expected {}, found {}", self.expectation(id), describe(node, found));
        let span = if node.span().start == node.span().end { place } else { node.span() };
        let mut problem = Problem::new(codes::WRONG_TYPE, span, message);
        if let Some(help) = self.advice(node, id, found) {
            problem = problem.with_help(help);
        }
        self.refuse(problem)
    }

    fn expectation(&self, id: ShapeId) -> String {
        let shape = self.shapes.get(id);
        match &shape.form {
            Form::Anything => "anything".to_owned(),
            Form::Nothing => "nothing".to_owned(),
            Form::Boolean => "`true` or `false`".to_owned(),
            Form::Integer(_) => "an integer".to_owned(),
            Form::Number(_) => "a number".to_owned(),
            Form::Text { .. } if shape.what.is_empty() => "text".to_owned(),
            Form::Text { .. } => shape.what.clone(),
            Form::Words(words) => alternatives(words.iter().map(|word| format!("`{word}`"))),
            Form::List { .. } => "a list".to_owned(),
            Form::Record(_) => "a mapping".to_owned(),
            Form::OneOf(keys) => {
                let names = alternatives(keys.iter().map(|key| format!("`{}`", key.name)));
                format!("a mapping with {names}")
            }
            Form::Either(ids) => {
                let real =
                    ids.iter().filter(|id| !matches!(self.shapes.get(**id).form, Form::Nothing));
                alternatives(real.map(|id| self.expectation(*id)))
            }
        }
    }

    fn advice(&self, node: View<'_>, id: ShapeId, found: Meaning<'_>) -> Option<String> {
        let shape = self.shapes.get(id);
        let form = match &shape.form {
            Form::Either(ids) => {
                let mut real = ids.iter().map(|id| &self.shapes.get(*id).form);
                real.find(|form| !matches!(form, Form::Nothing))?
            }
            form => form,
        };
        match (form, found) {
            (Form::Text { .. }, Meaning::Sequence | Meaning::Mapping | Meaning::Nothing)
            | (Form::Words(_), _) => {
                shape.example.as_ref().map(|example| format!("use the form `{example}`"))
            }
            (Form::Text { .. }, _) => Some(match &shape.example {
                Some(example) => format!("use the form `{example}`"),
                None => match quotable(node.text()) {
                    Some(text) => format!("put it in quotation marks: \"{text}\""),
                    None => "put it in quotation marks".to_owned(),
                },
            }),
            (Form::Integer(_), Meaning::Text(text)) => plain_number(text)
                .map(|number| format!("use the plain number `{number}`"))
                .or_else(|| {
                    let number = node.kind() == Kind::Quoted && text.parse::<i128>().is_ok();
                    number.then(|| "remove the quotation marks".to_owned())
                }),
            (Form::Number(_), Meaning::Text(text)) => {
                let bare = text.trim_start_matches(['-', '+', '.']).to_ascii_lowercase();
                let no_number = ["nan", "inf", "infinity"].contains(&bare.as_str());
                no_number.then(|| "use a finite number".to_owned())
            }
            (Form::Boolean, Meaning::Text(text)) => match text.to_ascii_lowercase().as_str() {
                "yes" | "on" | "y" => Some("use `true`".to_owned()),
                "no" | "off" | "n" => Some("use `false`".to_owned()),
                _ => None,
            },
            (Form::List { .. }, Meaning::Text(_) | Meaning::Integer(_) | Meaning::Number(_)) => {
                quotable(node.text()).map(|text| format!("use a list of one: `[{text}]`"))
            }
            (Form::OneOf(keys), _) => {
                keys.first().map(|key| format!("use the form `{}: {{…}}`", key.name))
            }
            _ => None,
        }
    }

    fn integer(&mut self, node: View<'_>, bounds: Bounds<i128>, value: Option<i128>) -> bool {
        if value.is_some_and(|value| bounds.hold(value)) {
            return true;
        }
        // Do not mention the integer type's maximum if the value is below the minimum.
        let below = bounds.minimum.zip(value).is_some_and(|(minimum, value)| value < minimum);
        let maximum = bounds.maximum.filter(|maximum| !below || *maximum < u32::MAX.into());
        self.out_of_range(node, &Bounds { maximum, ..bounds })
    }

    fn number(&mut self, node: View<'_>, bounds: Bounds<f64>, value: f64) -> bool {
        bounds.hold(value) || self.out_of_range(node, &bounds)
    }

    fn out_of_range<T: std::fmt::Display>(&mut self, node: View<'_>, bounds: &Bounds<T>) -> bool {
        let message = format!("{} is out of range", quote(node.text()));
        let help = format!("allowed: {}", in_words(bounds));
        self.refuse(Problem::new(codes::OUT_OF_RANGE, node.span(), message).with_help(help))
    }

    fn text(&mut self, node: View<'_>, shape: &Shape, text: &str) -> bool {
        let Form::Text { pattern, length } = &shape.form else { return true };
        if !length.hold(text.chars().count()) {
            let message = format!("{} has {} characters", quote(text), text.chars().count());
            let help = format!("allowed: {} characters", in_words(length));
            let problem = Problem::new(codes::WRONG_LENGTH, node.span(), message);
            return self.refuse(problem.with_help(help));
        }
        let fits = pattern.as_ref().is_none_or(|pattern| pattern.is_match(text));
        fits || self.bad_spelling(node, shape, text)
    }

    fn bad_spelling(&mut self, node: View<'_>, shape: &Shape, text: &str) -> bool {
        let what = if shape.what.is_empty() { "what belongs here" } else { &shape.what };
        let is_negative = match (&shape.form, text.strip_prefix('-')) {
            (Form::Text { pattern: Some(pattern), .. }, Some(rest)) => pattern.is_match(rest),
            _ => false,
        };
        let message = if is_negative {
            format!("{} is negative: give {what}", quote(text))
        } else {
            format!("{} is not {what}", quote(text))
        };
        let mut problem = Problem::new(codes::BAD_SPELLING, node.span(), message);
        if let Some(example) = &shape.example {
            problem = problem.with_help(format!("use the form `{example}`"));
        }
        self.refuse(problem)
    }

    fn word(&mut self, node: View<'_>, words: &[String], text: &str) -> bool {
        if words.iter().any(|word| word == text) {
            return true;
        }
        let message = format!("{} is not an allowed value", quote(text));
        let all = alternatives(words.iter().map(|word| format!("`{word}`")));
        let help = match closest(text, words.iter().map(String::as_str)) {
            Some(word) => format!("did you mean `{word}`? (known: {all})"),
            None => format!("use {all}"),
        };
        self.refuse(Problem::new(codes::UNKNOWN_WORD, node.span(), message).with_help(help))
    }

    /// Unreadable items are skipped unless their positions carry meaning.
    fn list(&mut self, node: View<'_>, shape: &Shape, place: Span) -> bool {
        let Form::List { first, rest, length } = &shape.form else { return true };
        let is_fixed = !first.is_empty() || length.minimum.is_some();
        let mut readable = true;
        let mut count = 0;
        for item in node.children() {
            let shape = first.get(count).copied().or(*rest);
            count += 1;
            let item_is_readable = shape.is_none_or(|shape| self.value(item, shape, item.span()));
            if !item_is_readable {
                readable &= !is_fixed;
                self.repairs.hidden.insert(item.index);
            }
        }
        self.check_length(count, length, "items", place) && readable
    }

    fn check_length(
        &mut self,
        count: usize,
        length: &Bounds<usize>,
        what: &str,
        place: Span,
    ) -> bool {
        if length.hold(count) {
            return true;
        }
        let message = format!("expected {} {what}, found {count}", in_words(length));
        self.refuse(Problem::new(codes::WRONG_LENGTH, place, message))
    }

    fn record(&mut self, node: View<'_>, record: &Record, place: Span) -> bool {
        let mut seen = vec![false; record.keys.len()];
        let mut unknown = Vec::new();
        let mut count = 0;
        let mut readable = true;
        for (key, value) in node.entries() {
            count += 1;
            match record.keys.iter().position(|known| known.name == key.text()) {
                Some(index) => {
                    seen[index] = true;
                    readable &= self.known_entry(key, value, &record.keys[index]);
                }
                None => match record.others {
                    Some(others) => self.other_entry(key, value, record, others),
                    None => unknown.push((key, value)),
                },
            }
        }
        for (key, value) in unknown {
            readable &= self.unknown_key(key, value, &record.keys, &mut seen);
        }
        for (key, seen) in record.keys.iter().zip(&seen) {
            if key.required && !seen {
                readable = false;
                self.missing_key(key, place);
            }
        }
        self.check_length(count, &record.length, "entries", place) && readable
    }

    fn known_entry(&mut self, key: View<'_>, value: View<'_>, known: &Key) -> bool {
        let readable = self.value(value, known.shape, key.span());
        if !readable {
            self.repairs.hidden.insert(key.index);
        }
        readable || !known.required
    }

    fn other_entry(&mut self, key: View<'_>, value: View<'_>, record: &Record, others: ShapeId) {
        let wrong = record.other_keys.as_ref().filter(|pattern| !pattern.is_match(key.text()));
        if let Some(pattern) = wrong {
            let message = format!("{} cannot be a key here", quote(key.text()));
            let help = format!("keys here must have the form `{pattern}`");
            self.problems
                .add(Problem::new(codes::BAD_SPELLING, key.span(), message).with_help(help));
        }
        let readable = self.value(value, others, key.span()) && wrong.is_none();
        if !readable {
            self.repairs.hidden.insert(key.index);
        }
    }

    /// A misspelled key is treated as the most similar key, so that one typo causes only one error.
    fn unknown_key(
        &mut self,
        key: View<'_>,
        value: View<'_>,
        known: &[Key],
        seen: &mut [bool],
    ) -> bool {
        let free = known.iter().zip(&*seen).filter(|(_, seen)| !**seen);
        let meant = match self.problems.is_full() {
            true => None,
            false => closest(key.text(), free.map(|(key, _)| key.name.as_str())),
        };
        self.problems.add_error(|| {
            let help = match meant {
                Some(name) => format!("did you mean `{name}`?"),
                None if key.text() == "<<" => {
                    "merge keys are not supported: repeat the keys".to_owned()
                }
                None => {
                    let names = known.iter().map(|key| format!("`{}`", key.name));
                    format!("known keys: {}", list(names))
                }
            };
            let message = format!("unknown key {}", quote(key.text()));
            Problem::new(codes::UNKNOWN_KEY, key.span(), message).with_help(help)
        });
        let Some(index) = known.iter().position(|key| meant == Some(key.name.as_str())) else {
            self.repairs.hidden.insert(key.index);
            return true;
        };
        seen[index] = true;
        self.repairs.renamed.insert(key.index, known[index].name.clone());
        self.known_entry(key, value, &known[index])
    }

    fn missing_key(&mut self, key: &Key, place: Span) {
        let shape = self.shapes.get(key.shape);
        let meaning = match shape.description.as_str() {
            "" => self.expectation(key.shape),
            description => lower_first(description),
        };
        let example = shape.example.as_deref().unwrap_or("…");
        self.problems.add(
            Problem::new(codes::MISSING_KEY, place, format!("the key `{}` is missing", key.name))
                .with_help(format!("add `{}: {example}` ({meaning})", key.name)),
        );
    }

    fn one_of(&mut self, node: View<'_>, keys: &[Key], place: Span) -> bool {
        let entries: Vec<_> = node.entries().collect();
        if let [(key, value)] = entries.as_slice() {
            return match keys.iter().find(|known| known.name == key.text()) {
                Some(known) => self.known_entry(*key, *value, known),
                None => {
                    let mut seen = vec![false; keys.len()];
                    self.unknown_key(*key, *value, keys, &mut seen) && seen.contains(&true)
                }
            };
        }
        let names = alternatives(keys.iter().map(|key| format!("`{}`", key.name)));
        let message = format!("expected exactly one key, found {}", entries.len());
        let span = entries.get(1).map_or(place, |(key, _)| key.span());
        let problem = Problem::new(codes::ONE_CHOICE, span, message);
        let first = keys.first().map_or("", |key| key.name.as_str());
        let help = format!("use {names} with its contents, as `{first}: …`");
        self.refuse(problem.with_help(help))
    }

    fn either(
        &mut self,
        node: View<'_>,
        shape: &Shape,
        alternatives: &[ShapeId],
        found: Meaning<'_>,
        place: Span,
    ) -> bool {
        let mut fitting = alternatives.to_vec();
        fitting.retain(|id| fits(&self.shapes.get(*id).form, found, self.shapes));
        match fitting.as_slice() {
            [] => self.no_alternative(node, shape, alternatives, found, place),
            [only] => self.value(node, *only, place),
            several => {
                // If several alternatives accept the type, assume the one with the most known keys.
                let mistakes: Vec<usize> =
                    several.iter().map(|id| self.mistakes(node, *id, place)).collect();
                if mistakes.contains(&0) {
                    return true;
                }
                let counted = several.iter().zip(mistakes);
                let nearest = counted
                    .min_by_key(|(id, mistakes)| (Reverse(self.known_keys(node, **id)), *mistakes));
                self.value(node, *nearest.map_or(&several[0], |(id, _)| id), place)
            }
        }
    }

    fn mistakes(&self, node: View<'_>, id: ShapeId, place: Span) -> usize {
        let mut problems = Problems::default();
        let repairs = Repairs::default();
        Walk { shapes: self.shapes, problems: &mut problems, repairs }.value(node, id, place);
        problems.count()
    }

    fn known_keys(&self, node: View<'_>, id: ShapeId) -> usize {
        let keys = match &self.shapes.get(id).form {
            Form::Record(record) => &record.keys,
            Form::OneOf(keys) => keys,
            _ => return 0,
        };
        let written = node.entries().map(|(key, _)| key.text());
        written.filter(|name| keys.iter().any(|key| key.name == *name)).count()
    }

    fn no_alternative(
        &mut self,
        node: View<'_>,
        shape: &Shape,
        ids: &[ShapeId],
        found: Meaning<'_>,
        place: Span,
    ) -> bool {
        let real = ids.iter().filter(|id| !matches!(self.shapes.get(**id).form, Form::Nothing));
        let real: Vec<ShapeId> = real.copied().collect();
        if let [only] = real.as_slice() {
            return self.wrong_type(node, *only, found, place);
        }
        let expected = alternatives(real.iter().map(|id| self.expectation(*id)));
        let message = format!("expected {expected}, found {}", describe(node, found));
        let mut problem = Problem::new(codes::WRONG_TYPE, node.span(), message);
        if let Some(example) = &shape.example {
            problem = problem.with_help(format!("use the form `{example}`"));
        }
        self.refuse(problem)
    }
}

fn fits(form: &Form, found: Meaning<'_>, shapes: &Shapes) -> bool {
    match form {
        Form::Anything => true,
        Form::Nothing => found == Meaning::Nothing,
        Form::Boolean => matches!(found, Meaning::Boolean(_)),
        Form::Integer(_) => matches!(found, Meaning::Integer(_)),
        Form::Number(_) => matches!(found, Meaning::Integer(_) | Meaning::Number(_)),
        Form::Text { .. } | Form::Words(_) => matches!(found, Meaning::Text(_)),
        Form::List { .. } => found == Meaning::Sequence,
        Form::Record(_) | Form::OneOf(_) => found == Meaning::Mapping,
        Form::Either(ids) => ids.iter().any(|id| fits(&shapes.get(*id).form, found, shapes)),
    }
}

fn describe(node: View<'_>, found: Meaning<'_>) -> String {
    match found {
        Meaning::Nothing => "nothing".to_owned(),
        Meaning::Sequence => "a list".to_owned(),
        Meaning::Mapping => "a mapping".to_owned(),
        Meaning::Integer(_) | Meaning::Number(_) => format!("the number {}", quote(node.text())),
        Meaning::Boolean(_) => quote(node.text()),
        Meaning::Text(text) => format!("the string {}", quote(text)),
    }
}

fn in_words<T: std::fmt::Display>(bounds: &Bounds<T>) -> String {
    match (&bounds.minimum, &bounds.maximum) {
        (Some(minimum), Some(maximum)) if minimum.to_string() == maximum.to_string() => {
            format!("exactly {minimum}")
        }
        (Some(minimum), Some(maximum)) => format!("from {minimum} to {maximum}"),
        (Some(minimum), None) => format!("at least {minimum}"),
        (None, Some(maximum)) => format!("at most {maximum}"),
        (None, None) => String::new(),
    }
}

fn quotable(text: &str) -> Option<&str> {
    let plain = text.len() <= 40 && !text.contains(|c: char| c.is_control() || c == '"');
    plain.then_some(text)
}

fn plain_number(text: &str) -> Option<String> {
    let digits: String =
        quotable(text)?.chars().filter(|c| !matches!(c, '_' | ',' | ' ')).collect();
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let plain = digits.trim_start_matches('0');
    is_number.then(|| if plain.is_empty() { "0".to_owned() } else { plain.to_owned() })
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

fn alternatives(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    match items.as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
