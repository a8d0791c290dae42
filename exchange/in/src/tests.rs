// SPDX-License-Identifier: Apache-2.0

mod drafts;
mod forms;
mod kinds;
mod troubles;

use super::{LogFile, Logs, read};

fn logs(files: &[(&str, &str)]) -> Logs {
    let files: Vec<LogFile<'_>> =
        files.iter().map(|(name, text)| LogFile { name, bytes: text.as_bytes() }).collect();
    read(&files)
}

fn problems(logs: &Logs) -> Vec<String> {
    logs.problems.iter().map(ToString::to_string).collect()
}

const TOPOLOGY: &str = "# a tree
SwitchName=leaf1 Nodes=gpu[001-004]
switchname=leaf2 nodes=gpu005,gpu[006-008]  # keys in any case
SwitchName=spine \\
  Switches=leaf[1-2]
";

const SACCT: &str = "JobID|JobName|State|Start|End|NNodes|NodeList|AllocTRES|FailedNode
101|Pretrain 70B|NODE_FAIL|2026-03-01T00:00:00|2026-03-04T06:00:00|6|gpu[001-006]|billing=48,gres/gpu=48,gres/gpu:h100=48,node=6|gpu003
101.batch|batch|CANCELLED|2026-03-01T00:00:00|2026-03-04T06:00:00|1|gpu001||
102|Pretrain 70B|COMPLETED|2026-03-04T09:00:00|2026-03-11T09:00:00|6|gpu[001-002,004-007]|gres/gpu=48,node=6|
103|eval|COMPLETED|2026-03-05T00:00:00|2026-03-05T02:00:00|1|gpu003|gres/gpu=8,node=1|
104|eval|CANCELLED by 1000|2026-03-05T00:00:00|Unknown|1|gpu008|gres/gpu=8,node=1|
";
