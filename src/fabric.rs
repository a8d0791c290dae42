// SPDX-License-Identifier: Apache-2.0
//! Fabric files as the verbs read them, with the files beside them that they name.

use std::path::Path;

use lightloom_fabric::document::Diagnostic;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan;

use crate::output::{self, InputRefused};
use crate::{files, kinds};

/// Reads a fabric file, showing its mistakes.
///
/// # Errors
/// [`InputRefused`] when it has mistakes.
pub fn read(path: &Path) -> anyhow::Result<Fabric> {
    of_document(path, files::read_document(path))
}

/// The fabric in a file that has been read, or its mistakes shown.
///
/// # Errors
/// If it cannot be read or has mistakes.
pub fn of_document(
    path: &Path,
    document: Result<Vec<u8>, Box<Diagnostic>>,
) -> anyhow::Result<Fabric> {
    let (fabric, mistakes) = quietly(path, document)?;
    output::diagnostics(&mistakes);
    fabric.ok_or(InputRefused.into())
}

/// The fabric in a file that has been read, unless there is a mistake; and every mistake, which is not shown.
///
/// # Errors
/// If the file is a plan.
pub fn quietly(
    path: &Path,
    document: Result<Vec<u8>, Box<Diagnostic>>,
) -> anyhow::Result<(Option<Fabric>, Vec<Diagnostic>)> {
    Ok(match document {
        Ok(bytes) if plan::is_plan(&bytes) => {
            anyhow::bail!("{} is a plan: a fabric file belongs here", files::name(path))
        }
        Ok(bytes) => match kinds::refuse_other(&files::name(path), &bytes, "fabric") {
            Some(other) => (None, vec![other]),
            None => lightloom_planner::load_with(
                &files::name(path),
                &bytes,
                &mut |named| files::text_beside(path, named),
                lightloom_training::mapped::search,
            ),
        },
        Err(mistake) => (None, vec![*mistake]),
    })
}

/// The fabric in a file of version 1 or 2, for converting it.
///
/// # Errors
/// [`InputRefused`] when it has mistakes.
pub fn of_any_version(path: &Path, bytes: &[u8]) -> anyhow::Result<Fabric> {
    let mut text = |named: &str| files::text_beside(path, named);
    let (fabric, mistakes) =
        lightloom_planner::load_any_version(&files::name(path), bytes, &mut text);
    output::diagnostics(&mistakes);
    fabric.ok_or(InputRefused.into())
}
