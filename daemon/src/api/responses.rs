// SPDX-License-Identifier: Apache-2.0

use serde_json::json;
use utoipa::Modify;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::security::{SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, Content, OpenApi, Ref, RefOr, Response, Schema, Server};

const ANSWER: &str = "Answer";
const CERTIFICATE: &str = "client_certificate";

const ALWAYS: [&str; 2] = ["403", "503"];
const WITH_BODY: [&str; 3] = ["400", "413", "429"];

pub(super) struct InCommon;

impl Modify for InCommon {
    fn modify(&self, document: &mut OpenApi) {
        let mut server = Server::new("/");
        server.description = Some("The daemon that served this document".into());
        document.servers = Some(vec![server]);
        // The operating system identifies local clients; certificates identify remote ones.
        document.security = Some(vec![
            SecurityRequirement::default(),
            SecurityRequirement::new(CERTIFICATE, Vec::<String>::new()),
        ]);
        let components = document.components.get_or_insert_with(Components::default);
        let scheme = SecurityScheme::MutualTls {
            description: Some("A client certificate; the daemon's file lists its roles".into()),
            deprecated: None,
            extensions: None,
        };
        components.security_schemes.insert(CERTIFICATE.into(), scheme.into());
        if let Some(schema) = answer_schema() {
            components.schemas.insert(ANSWER.into(), schema);
        }
        components.schemas.values_mut().for_each(require_what_is_always_sent);
        for item in document.paths.paths.values_mut() {
            item.get.iter_mut().chain(&mut item.post).for_each(complete);
        }
    }
}

/// Fields have defaults for compatibility with other versions, but this daemon always sends them.
/// Request bodies declare their own required fields.
fn require_what_is_always_sent(schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(schema)) = schema else { return };
    if schema.additional_properties.is_none() {
        schema.properties.values_mut().for_each(without_default);
        let sent = schema.properties.iter().filter(|(_, property)| !may_be_null(property));
        schema.required = sent.map(|(name, _)| name.clone()).collect();
    }
}

fn without_default(property: &mut RefOr<Schema>) {
    match property {
        RefOr::Ref(named) => named.default = None,
        RefOr::T(Schema::Object(object)) => object.default = None,
        RefOr::T(Schema::Array(array)) => array.default = None,
        RefOr::T(Schema::OneOf(one)) => one.default = None,
        RefOr::T(_) => {}
    }
}

fn may_be_null(property: &RefOr<Schema>) -> bool {
    let types = match property {
        RefOr::T(Schema::Object(object)) => &object.schema_type,
        RefOr::T(Schema::Array(array)) => &array.schema_type,
        RefOr::T(Schema::OneOf(one)) => return one.items.iter().any(may_be_null),
        _ => return false,
    };
    match types {
        SchemaType::Array(types) => types.contains(&Type::Null),
        SchemaType::Type(of) => *of == Type::Null,
        SchemaType::AnyValue => false,
    }
}

fn complete(operation: &mut Operation) {
    let with_body = operation.request_body.is_some();
    let more = ALWAYS.iter().chain(WITH_BODY.iter().filter(|_| with_body));
    let responses = &mut operation.responses.responses;
    for code in more {
        responses.entry((*code).into()).or_insert_with(|| RefOr::T(Response::new("")));
    }
    for (code, response) in responses {
        let RefOr::T(response) = response else { continue };
        if response.description.is_empty() {
            response.description = meaning(code).into();
        }
        if response.content.is_empty() {
            let content = Content::new(Some(Ref::from_schema_name(ANSWER)));
            response.content.insert("application/json".into(), RefOr::T(content));
        }
    }
}

fn meaning(code: &str) -> &'static str {
    match code {
        "200" => "Done; the body contains the result",
        "202" => "Journalled and started: query the transaction with this number",
        "400" => "The body is not JSON, or is incomplete",
        "403" => "The client lacks the role that this operation needs",
        "404" => "The transaction or device does not exist",
        "409" => "Another change is in progress or was made first; read the state before retrying",
        "413" => "The body is too long",
        "422" => "The request was refused, and the body lists all reasons; no device was changed",
        "429" => "Too many requests; `Retry-After` says when to retry",
        _ => "The daemon is stopping or cannot write a file; the body gives the reason",
    }
}

fn one(tag: &str, about: &str, more: serde_json::Value) -> serde_json::Value {
    let mut properties = json!({"answer": {"type": "string", "enum": [tag]}});
    let mut required = vec!["answer".to_owned()];
    if let (Some(all), Some(more)) = (properties.as_object_mut(), more.as_object()) {
        required.extend(more.keys().cloned());
        all.extend(more.clone());
    }
    json!({"type": "object", "description": about, "properties": properties, "required": required})
}

fn answer_schema() -> Option<RefOr<Schema>> {
    let reasons = json!({"type": "array", "items": {"type": "string"}});
    let number = json!({"type": "integer", "minimum": 0});
    let variants = [
        one("accepted", "Journalled and started", json!({"txn": number})),
        one("done", "Done, or no circuit has to be switched", json!({})),
        one(
            "adopted",
            "The current positions were adopted",
            json!({"devices": number, "slots": number}),
        ),
        one(
            "nothing-to-do",
            "Not necessary; the body gives the reason",
            json!({"reasons": reasons}),
        ),
        one("conflict", "Another change was made first", json!({"reason": {"type": "string"}})),
        one(
            "booked",
            "The phase was scheduled; query its state by request id",
            json!({"request_id": {"type": "string"}, "paced": {"type": "boolean"}}),
        ),
        one(
            "phase-refused",
            "The phase was not scheduled; the body gives code, reason and remedy",
            json!({
                "conflict": {"type": "boolean"},
                "code": {"type": "string"},
                "reason": {"type": "string"},
                "fix": {"type": "string"},
            }),
        ),
        one("refused", "No device was changed", json!({"reasons": reasons})),
    ];
    serde_json::from_value(json!({"description": "The controller's response", "oneOf": variants}))
        .ok()
}
