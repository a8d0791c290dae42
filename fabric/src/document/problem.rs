// SPDX-License-Identifier: Apache-2.0

use super::Severity;
use super::diagnostic::{Code, Diagnostic, Place, Related};
use super::tree::Span;

#[derive(Clone, Debug)]
pub(crate) struct Problem {
    code: Code,
    severity: Severity,
    span: Span,
    message: String,
    help: Option<String>,
    related: Vec<(Span, String)>,
}

impl Problem {
    pub(crate) fn new(code: Code, span: Span, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            span,
            message: message.into(),
            help: None,
            related: Vec::new(),
        }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn with_related(mut self, span: Span, message: impl Into<String>) -> Self {
        self.related.push((span, message.into()));
        self
    }

    pub(crate) fn into_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    fn into_diagnostic(self, file: &str, source: &str) -> Diagnostic {
        let related = self.related.into_iter();
        Diagnostic {
            code: self.code,
            severity: self.severity,
            message: self.message,
            file: file.to_owned(),
            place: Some(Place::of(source, self.span)),
            help: self.help,
            related: related
                .map(|(span, message)| Related { message, place: Place::of(source, span) })
                .collect(),
        }
    }
}

const KEPT: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Problems {
    kept: Vec<Problem>,
    dropped: usize,
    errors: usize,
}

impl Problems {
    pub(crate) fn add(&mut self, problem: Problem) {
        self.errors += usize::from(problem.severity == Severity::Error);
        if self.kept.len() < KEPT {
            self.kept.push(problem);
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn add_error(&mut self, problem: impl FnOnce() -> Problem) {
        if self.is_full() {
            self.errors += 1;
            self.dropped += 1;
        } else {
            self.add(problem());
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.kept.len() >= KEPT
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    pub(crate) fn count(&self) -> usize {
        self.kept.len() + self.dropped
    }

    pub(crate) fn into_diagnostics(mut self, file: &str, source: &str) -> Vec<Diagnostic> {
        self.kept.sort_by_key(|problem| problem.span);
        let mut diagnostics: Vec<Diagnostic> =
            self.kept.into_iter().map(|problem| problem.into_diagnostic(file, source)).collect();
        if self.dropped > 0 {
            let message = format!("{} more mistakes are not shown", self.dropped);
            diagnostics.push(Diagnostic::whole_file(super::codes::MORE_ERRORS, file, message));
        }
        diagnostics
    }
}
