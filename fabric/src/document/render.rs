// SPDX-License-Identifier: Apache-2.0
//! Renders diagnostics with source lines for terminals, and as SARIF for code-scanning services.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Value, json};

use super::diagnostic::{Code, Diagnostic, Place, Related, Severity};

/// Rendering style of diagnostics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Without escape codes, for files, pipes and tests.
    #[default]
    Plain,
    /// With colour, for terminals.
    Coloured,
}

/// Renders diagnostics with source excerpts, each followed by a blank line.
pub fn render(diagnostics: &[Diagnostic], style: Style) -> String {
    let renderer = match style {
        Style::Plain => Renderer::plain(),
        Style::Coloured => Renderer::styled(),
    };
    let renderer = renderer.decor_style(DecorStyle::Ascii);
    let mut text = String::new();
    for diagnostic in diagnostics {
        text.push_str(renderer.render(&[group(diagnostic)]).trim_end());
        text.push_str("\n\n");
    }
    text
}

fn group(diagnostic: &Diagnostic) -> Group<'_> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let file = diagnostic.file.as_str();
    let title = level.primary_title(&diagnostic.message).id(diagnostic.code.id);
    let mut group = Group::with_title(title);
    let Some(place) = &diagnostic.place else {
        return with_help(group.element(Origin::path(file)), diagnostic);
    };
    if place.excerpt.begins_cut() {
        let origin = Origin::path(file).line(place.line as usize);
        group = group.element(origin.char_column(place.column as usize));
    }
    let (same_line, elsewhere): (Vec<&Related>, Vec<&Related>) =
        diagnostic.related.iter().partition(|related| related.place.is_on_the_line_of(place));
    let beside = same_line
        .iter()
        .map(|related| annotation(AnnotationKind::Context, &related.place, &related.message));
    let primary = annotation(AnnotationKind::Primary, place, "");
    group = group.element(snippet(file, place).annotation(primary).annotations(beside));
    for related in elsewhere {
        let there = annotation(AnnotationKind::Context, &related.place, &related.message);
        group = group.element(snippet(file, &related.place).annotation(there));
    }
    with_help(group, diagnostic)
}

fn with_help<'d>(group: Group<'d>, diagnostic: &'d Diagnostic) -> Group<'d> {
    match &diagnostic.help {
        Some(help) => group.element(Level::HELP.message(help)),
        None => group,
    }
}

fn annotation<'d>(kind: AnnotationKind, place: &Place, label: &'d str) -> Annotation<'d> {
    kind.span(place.excerpt.marked.clone()).label((!label.is_empty()).then_some(label))
}

fn snippet<'d>(file: &'d str, place: &'d Place) -> Snippet<'d, Annotation<'d>> {
    Snippet::source(place.excerpt.text.as_str())
        .path((!place.excerpt.begins_cut()).then_some(file))
        .line_start(place.line as usize)
}

/// Converts diagnostics to a SARIF 2.1.0 log with `codes` as its rules.
pub fn sarif(diagnostics: &[Diagnostic], codes: &[Code], version: &str) -> Value {
    let rules: Vec<Value> = codes
        .iter()
        .map(|code| json!({ "id": code.id, "shortDescription": { "text": code.title } }))
        .collect();
    let results: Vec<Value> = diagnostics.iter().map(sarif_result).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "lightloom", "version": version, "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn sarif_result(diagnostic: &Diagnostic) -> Value {
    let text = match &diagnostic.help {
        Some(help) => format!("{}. Help: {help}", diagnostic.message),
        None => diagnostic.message.clone(),
    };
    let level = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let related: Vec<Value> = diagnostic
        .related
        .iter()
        .map(|related| {
            let mut location = sarif_location(&diagnostic.file, Some(&related.place));
            location["message"] = json!({ "text": related.message });
            location
        })
        .collect();
    let mut result = json!({
        "ruleId": diagnostic.code.id,
        "level": level,
        "message": { "text": text },
        "locations": [sarif_location(&diagnostic.file, diagnostic.place.as_ref())],
    });
    if !related.is_empty() {
        result["relatedLocations"] = Value::Array(related);
    }
    result
}

fn sarif_location(file: &str, place: Option<&Place>) -> Value {
    let mut physical = json!({ "artifactLocation": { "uri": file } });
    if let Some(place) = place {
        physical["region"] = json!({
            "startLine": place.line,
            "startColumn": place.column,
            "endColumn": place.end_column,
        });
    }
    json!({ "physicalLocation": physical })
}
