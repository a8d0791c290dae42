// SPDX-License-Identifier: Apache-2.0

use std::path::Path;

use lightloom_fabric::document::Diagnostic;
use lightloom_fabric::fabric::Fabric;

use crate::files;
use crate::output::{self, InputRefused};

pub fn read(path: &Path) -> anyhow::Result<Fabric> {
    of_document(path, files::read_document(path))
}

pub fn of_document(
    path: &Path,
    document: Result<Vec<u8>, Box<Diagnostic>>,
) -> anyhow::Result<Fabric> {
    let (fabric, mistakes) = quietly(path, document)?;
    output::diagnostics(&mistakes);
    fabric.ok_or(InputRefused.into())
}

pub fn quietly(
    path: &Path,
    document: Result<Vec<u8>, Box<Diagnostic>>,
) -> anyhow::Result<(Option<Fabric>, Vec<Diagnostic>)> {
    Ok(match document {
        Ok(bytes) => lightloom_planner::load_with(
            &files::name(path),
            &bytes,
            &mut |named| files::text_beside(path, named),
            lightloom_training::mapped::search,
        ),
        Err(mistake) => (None, vec![*mistake]),
    })
}
