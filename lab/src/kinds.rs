// SPDX-License-Identifier: Apache-2.0

use std::path::Path;

use lightloom::files;
use lightloom::kinds::Reader;
use lightloom_agent::{file as agent_file, profile};
use lightloom_daemon::config;
use lightloom_devices as device;
use lightloom_fabric::provenance::Inputs;
use lightloom_study::{buy, cost};

use crate::designs::{fabric_design, prices};

pub(crate) const READERS: &[Reader] = &[
    Reader { kind: "prices", check: |file, bytes| cost::read_prices(file, bytes).1, codes: &[] },
    Reader {
        kind: "buy",
        check: |file, bytes| {
            let loaded = buy::load_buy(file, bytes, &mut |name: &str| {
                let path = Path::new(file).parent().unwrap_or(Path::new("")).join(name);
                let prices = prices(None, &mut Inputs::new()).unwrap_or_default();
                let design = fabric_design(&path, &prices, &mut Inputs::new());
                design.map_err(|error| error.to_string())
            });
            loaded.1
        },
        codes: &[],
    },
    Reader {
        kind: "devices",
        check: |file, bytes| {
            device::load_beside(file, bytes, &mut |name| files::text_beside(Path::new(file), name))
                .1
        },
        codes: &[],
    },
    Reader {
        kind: "daemon",
        check: |file, bytes| config::load(file, bytes).1,
        codes: config::codes::ALL,
    },
    Reader {
        kind: "agent",
        check: |file, bytes| agent_file::load(file, bytes).1,
        codes: agent_file::codes::ALL,
    },
    Reader {
        kind: "module-profile",
        check: |file, bytes| profile::load(file, bytes).1,
        codes: profile::codes::ALL,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom::kinds::KINDS;
    use lightloom_daemon::config::DaemonFile;
    use lightloom_emulator::scenario::file::{FaultListFile, ScenarioFile};
    use lightloom_fabric::document::{codes, schema};
    use lightloom_fabric::file::FabricFile;
    use lightloom_training::cards::Accelerator;
    use lightloom_training::model::Model;

    #[test]
    fn committed_schemas_match_the_types() {
        let mut old = Vec::new();
        for kind in KINDS {
            let of_type = match kind.name {
                "fabric" => schema::<FabricFile>(),
                "scenario" => schema::<ScenarioFile>(),
                "faults" => schema::<FaultListFile>(),
                "prices" => schema::<cost::PriceFile>(),
                "buy" => schema::<buy::BuyFile>(),
                "devices" => schema::<device::DeviceListFile>(),
                "daemon" => schema::<DaemonFile>(),
                "agent" => schema::<agent_file::AgentFile>(),
                "module-profile" => schema::<profile::ProfileFile>(),
                "model" => schema::<Model>(),
                "accelerator" => schema::<Accelerator>(),
                other => panic!("unknown kind of file: {other}"),
            };
            let text = serde_json::to_string_pretty(&of_type).unwrap() + "\n";
            if std::env::var_os("LIGHTLOOM_BLESS").is_some() {
                let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schemas");
                std::fs::write(format!("{kept}/{}.json", kind.name), &text).unwrap();
            }
            if text != kind.schema {
                old.push(kind.name);
            }
        }
        assert!(
            old.is_empty(),
            "docs/schemas: {old:?} is out of date: run this test with LIGHTLOOM_BLESS=1 and rebuild"
        );
    }

    #[test]
    fn every_code_has_one_meaning() {
        let of_kinds =
            [lightloom_fabric::file::codes::ALL, lightloom_emulator::scenario::file::codes::ALL];
        let readers = READERS.iter().map(|reader| reader.codes);
        let mut codes: Vec<_> =
            of_kinds.into_iter().chain(readers).chain([codes::ALL]).flatten().collect();
        codes.sort_unstable();
        for pair in codes.windows(2) {
            assert_ne!(pair[0].id, pair[1].id);
        }
    }
}
