// SPDX-License-Identifier: Apache-2.0
//! The allowed structure of a document, compiled from the JSON Schema of its Rust type, in a form
//! for fast checks and good messages. Supports what schemars generates for structs, maps, lists,
//! options, numbers, text and externally tagged enums. Objects with named keys reject unknown keys.

use regex_lite::Regex;
use schemars::JsonSchema;
use serde_json::{Map, Value};

/// Shapes refer to each other by index, so types may be recursive.
#[derive(Debug)]
pub(crate) struct Shapes {
    shapes: Vec<Shape>,
}

pub(crate) type ShapeId = usize;

#[derive(Debug, Default)]
pub(crate) struct Shape {
    pub(crate) description: String,
    pub(crate) what: String,
    pub(crate) example: Option<String>,
    pub(crate) form: Form,
}

#[derive(Debug, Default)]
pub(crate) enum Form {
    #[default]
    Anything,
    Nothing,
    Boolean,
    Integer(Bounds<i128>),
    Number(Bounds<f64>),
    Text {
        pattern: Option<Regex>,
        length: Bounds<usize>,
    },
    Words(Vec<String>),
    List {
        first: Vec<ShapeId>,
        rest: Option<ShapeId>,
        length: Bounds<usize>,
    },
    Record(Record),
    OneOf(Vec<Key>),
    Either(Vec<ShapeId>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<T> {
    pub(crate) minimum: Option<T>,
    pub(crate) maximum: Option<T>,
}

impl<T: PartialOrd + Copy> Bounds<T> {
    pub(crate) fn hold(&self, value: T) -> bool {
        self.minimum.is_none_or(|minimum| value >= minimum)
            && self.maximum.is_none_or(|maximum| value <= maximum)
    }
}

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) keys: Vec<Key>,
    /// `None` if other keys are not allowed.
    pub(crate) others: Option<ShapeId>,
    pub(crate) other_keys: Option<Regex>,
    pub(crate) length: Bounds<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) shape: ShapeId,
    pub(crate) required: bool,
}

pub(crate) const ROOT: ShapeId = 0;

impl Shapes {
    pub(crate) fn of<T: JsonSchema>() -> Self {
        Self::from_schema(&schemars::schema_for!(T).to_value())
    }

    pub(crate) fn from_schema(schema: &Value) -> Self {
        let mut compiler = Compiler { schema, shapes: vec![], references: vec![] };
        compiler.compile(schema);
        Self { shapes: compiler.shapes }
    }

    pub(crate) fn get(&self, id: ShapeId) -> &Shape {
        &self.shapes[id]
    }
}

struct Compiler<'v> {
    schema: &'v Value,
    shapes: Vec<Shape>,
    references: Vec<(&'v str, ShapeId)>,
}

impl<'v> Compiler<'v> {
    fn compile(&mut self, schema: &'v Value) -> ShapeId {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.reference(reference, text(schema, "description"));
        }
        let id = self.shapes.len();
        self.shapes.push(Shape::default());
        self.fill(id, schema);
        id
    }

    fn reference(&mut self, reference: &'v str, description: Option<&str>) -> ShapeId {
        let known = self.references.iter().find(|(name, _)| *name == reference);
        if let (Some(&(_, id)), None) = (known, description) {
            return id;
        }
        let id = self.shapes.len();
        self.shapes.push(Shape::default());
        if known.is_none() {
            self.references.push((reference, id));
        }
        let pointer = reference.trim_start_matches('#');
        if let Some(target) = self.schema.pointer(pointer) {
            self.fill(id, target);
            self.shapes[id].what = lower_first(&self.shapes[id].description);
        }
        if let Some(description) = description {
            self.shapes[id].description = first_sentence(description);
        }
        id
    }

    fn fill(&mut self, id: ShapeId, schema: &'v Value) {
        let form = self.form(schema);
        let shape = &mut self.shapes[id];
        shape.form = form;
        shape.description = text(schema, "description").map(first_sentence).unwrap_or_default();
        shape.example = schema.pointer("/examples/0").map(|example| match example {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
    }

    fn form(&mut self, schema: &'v Value) -> Form {
        let Value::Object(object) = schema else { return Form::Anything };
        if let Some(alternatives) = object.get("oneOf").or_else(|| object.get("anyOf")) {
            return self.alternatives(alternatives.as_array().map_or(&[], Vec::as_slice));
        }
        if let Some(Value::String(word)) = object.get("const") {
            return Form::Words(vec![word.clone()]);
        }
        if let Some(Value::Array(words)) = object.get("enum") {
            return Form::Words(
                words.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            );
        }
        match object.get("type") {
            Some(Value::String(name)) => self.typed(name, object),
            Some(Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str);
                let forms: Vec<Form> = names.map(|name| self.typed(name, object)).collect();
                Form::Either(forms.into_iter().map(|form| self.add(form)).collect())
            }
            _ if object.contains_key("properties") => self.typed("object", object),
            _ => Form::Anything,
        }
    }

    fn add(&mut self, form: Form) -> ShapeId {
        self.shapes.push(Shape { form, ..Shape::default() });
        self.shapes.len() - 1
    }

    fn typed(&mut self, name: &str, object: &'v Map<String, Value>) -> Form {
        match name {
            "null" => Form::Nothing,
            "boolean" => Form::Boolean,
            "integer" => Form::Integer(integer_bounds(object)),
            "number" => Form::Number(Bounds {
                minimum: object.get("minimum").and_then(Value::as_f64),
                maximum: object.get("maximum").and_then(Value::as_f64),
            }),
            "string" => Form::Text {
                pattern: object.get("pattern").and_then(Value::as_str).and_then(compile_pattern),
                length: lengths(object, "minLength", "maxLength"),
            },
            "array" => self.list(object),
            "object" => Form::Record(self.record(object)),
            _ => Form::Anything,
        }
    }

    fn list(&mut self, object: &'v Map<String, Value>) -> Form {
        let first =
            object.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        Form::List {
            first: first.iter().map(|item| self.compile(item)).collect(),
            rest: object.get("items").map(|item| self.compile(item)),
            length: lengths(object, "minItems", "maxItems"),
        }
    }

    fn record(&mut self, object: &'v Map<String, Value>) -> Record {
        let required = object.get("required").and_then(Value::as_array);
        let is_required = |name: &str| {
            required.is_some_and(|names| names.iter().any(|required| required == name))
        };
        let named = object.get("properties").and_then(Value::as_object);
        let keys: Vec<Key> = named
            .into_iter()
            .flatten()
            .map(|(name, schema)| Key {
                name: name.clone(),
                shape: self.compile(schema),
                required: is_required(name),
            })
            .collect();
        let patterned = object.get("patternProperties").and_then(Value::as_object);
        let (other_keys, others) = match patterned.and_then(|patterns| patterns.iter().next()) {
            Some((pattern, schema)) => (compile_pattern(pattern), Some(schema)),
            None => (None, object.get("additionalProperties")),
        };
        let open = keys.is_empty() && others.is_none();
        let others = others.filter(|schema| **schema != Value::Bool(false));
        Record {
            others: if open {
                Some(self.add(Form::Anything))
            } else {
                others.map(|schema| self.compile(schema))
            },
            other_keys,
            keys,
            length: lengths(object, "minProperties", "maxProperties"),
        }
    }

    fn alternatives(&mut self, schemas: &'v [Value]) -> Form {
        let ids: Vec<ShapeId> = schemas.iter().map(|schema| self.compile(schema)).collect();
        let (mut words, mut tags, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for id in ids {
            match &self.shapes[id].form {
                Form::Words(more) => words.extend(more.iter().cloned()),
                Form::Record(record) if is_tagged_variant(record) => {
                    tags.extend(record.keys.iter().cloned());
                }
                _ => rest.push(id),
            }
        }
        if !words.is_empty() {
            rest.push(self.add(Form::Words(words)));
        }
        if !tags.is_empty() {
            rest.push(self.add(Form::OneOf(tags)));
        }
        match rest.as_slice() {
            [only] => std::mem::take(&mut self.shapes[*only].form),
            _ => Form::Either(rest),
        }
    }
}

fn is_tagged_variant(record: &Record) -> bool {
    record.others.is_none() && matches!(record.keys.as_slice(), [key] if key.required)
}

fn text<'v>(schema: &'v Value, key: &str) -> Option<&'v str> {
    schema.get(key).and_then(Value::as_str)
}

/// Patterns that the small engine does not support are left to serde.
fn compile_pattern(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

pub(crate) fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    match (characters.next(), characters.clone().next()) {
        // An abbreviation keeps its capitals, as in "GPUs per node".
        (Some(first), Some(second)) if first.is_uppercase() && second.is_uppercase() => {
            format!("{first}{}", characters.as_str())
        }
        (Some(first), _) => first.to_lowercase().chain(characters).collect(),
        (None, _) => String::new(),
    }
}

fn first_sentence(description: &str) -> String {
    let paragraph = description.split("\n\n").next().unwrap_or_default().replace('\n', " ");
    let sentence = paragraph.split_once(". ").map_or(paragraph.as_str(), |(first, _)| first);
    sentence.trim_end_matches('.').to_owned()
}

fn lengths(object: &Map<String, Value>, minimum: &str, maximum: &str) -> Bounds<usize> {
    let bound = |key| object.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    Bounds { minimum: bound(minimum), maximum: bound(maximum) }
}

fn integer_bounds(object: &Map<String, Value>) -> Bounds<i128> {
    let bound = |key| {
        let value = object.get(key)?;
        value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
    };
    let (minimum, maximum) = match object.get("format").and_then(Value::as_str).unwrap_or("") {
        "uint8" => (0, u8::MAX.into()),
        "uint16" => (0, u16::MAX.into()),
        "uint32" => (0, u32::MAX.into()),
        "uint64" | "uint" => (0, u64::MAX.into()),
        "int8" => (i8::MIN.into(), i8::MAX.into()),
        "int16" => (i16::MIN.into(), i16::MAX.into()),
        "int32" => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN.into(), i64::MAX.into()),
    };
    Bounds {
        minimum: Some(bound("minimum").unwrap_or(minimum)),
        maximum: Some(bound("maximum").unwrap_or(maximum)),
    }
}
