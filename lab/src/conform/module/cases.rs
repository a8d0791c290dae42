// SPDX-License-Identifier: Apache-2.0

use super::*;

pub(super) const STILL: &[Tested<ModuleSuite>] = &[
    tested!(sequence, "firmware-api 1.1", "a reply echoes the request's number and version"),
    tested!(
        prompt,
        "firmware-api 1.2",
        "Hello and Status are answered within 10 ms, excluding transmission"
    ),
    tested!(
        identity,
        "firmware-api 1.3",
        "the identity is 68 bytes long, with ordered versions and 1 to 8 groups and paths"
    ),
    tested!(status, "firmware-api 1.3", "the status is 84 bytes long, and every path is valid"),
    tested!(uptime, "firmware-api 1.3", "the uptime is in milliseconds"),
    tested!(broken_frame, "firmware-api 1.1", "a frame with a wrong checksum is not answered"),
    tested!(
        other_version,
        "firmware-api 1.1",
        "a frame with an unsupported version is refused with status 7"
    ),
    tested!(unknown_command, "firmware-api 1.4", "an unknown command is refused with status 1"),
    tested!(
        wrong_length,
        "firmware-api 1.4",
        "a payload of the wrong length is refused with status 2"
    ),
    tested!(
        read_only,
        "firmware-api 3.1",
        "a write to a read-only register is refused with status 8"
    ),
    tested!(checksums, "firmware-api 3.3, 3.5", "pages 00h and B0h have correct checksums"),
    tested!(discovery, "firmware-api 3.5", "page B0h contains OCS1 and matches the identity"),
    tested!(
        arm_none,
        "firmware-api 2",
        "an arm command for transaction 0 is refused with status 2"
    ),
    tested!(
        fire_not_armed,
        "firmware-api 1.4",
        "a fire command for a transaction that is not armed is refused with status 3"
    ),
];

pub(super) const MOVING: &[Tested<ModuleSuite>] = &[
    tested!(arm_path, "firmware-api 2", "an arm command for a missing path ends in outcome 4"),
    tested!(
        arm_moves_nothing,
        "firmware-api 2",
        "an arm command leaves the light unchanged, and the status shows its transaction"
    ),
    tested_as(
        "fire",
        "firmware-api 1.5, 2",
        "a fire command switches the group to its path with outcome 1, and status and reply \
             agree",
        fire,
    ),
    tested!(generation, "firmware-api 2", "the generation increases with each completed switch"),
    tested!(
        fire_again,
        "firmware-api 2",
        "a repeated fire command changes nothing and returns the same outcome"
    ),
    tested!(
        disarm,
        "firmware-api 1.2",
        "a disarm command succeeds, and a disarmed transaction cannot be fired"
    ),
    tested!(
        every_path,
        "firmware-api 2",
        "the group switches to each path in the identity, and the status shows it"
    ),
    tested!(
        set_up_times,
        "conform",
        "the group switches back and forth, and every switch ends in outcome 1"
    ),
];

fn sequence(module: &mut ModuleSuite) -> CaseResult {
    for _ in 0..3 {
        let reply = module.ask(command::STATUS, &[])?;
        if (reply.sequence, reply.version) != (module.next_sequence, 1) {
            return found(format!(
                "request {} with version 1 got reply {} with version {}",
                module.next_sequence, reply.sequence, reply.version
            ));
        }
    }
    Ok(CaseVerdict::Passed)
}

fn prompt(module: &mut ModuleSuite) -> CaseResult {
    for command in [command::HELLO, command::STATUS] {
        let took = module.ask(command, &[])?.took;
        if took > PROMPT + LINE {
            return found(format!("command {command:02X}h took {took:?}"));
        }
    }
    Ok(CaseVerdict::Passed)
}

fn identity(module: &mut ModuleSuite) -> CaseResult {
    let reply = module.ask(command::HELLO, &[])?;
    let bytes = &reply.payload;
    if bytes.len() != 68 {
        return found(format!("the length is {} bytes", bytes.len()));
    }
    let (groups, paths) = (bytes[53], bytes[54]);
    module.external_paths = paths;
    module.groups = usize::from(groups);
    [module.has_dark, module.has_loopback] = [1, 2].map(|bit| bytes[55] & bit != 0);
    module.dwell = Duration::from_micros(u64::from(u16_at(bytes, 60)));
    module.commit_max = Duration::from_micros(u64::from(u32_at(bytes, 62)));
    if bytes[0] > bytes[1] || bytes[0] == 0 {
        return found(format!("versions {} to {}", bytes[0], bytes[1]));
    }
    let are_in_range = [groups, paths].iter().all(|number| (1..=8).contains(number));
    holds(are_in_range, || format!("{groups} groups of {paths} paths"))
}

fn status(module: &mut ModuleSuite) -> CaseResult {
    let status = module.status()?;
    let odd = status.active.iter().find(|path| !matches!(**path, DARK..=8 | LOOPBACK));
    holds(odd.is_none(), || format!("a group is at path {odd:?}"))
}

fn uptime(module: &mut ModuleSuite) -> CaseResult {
    let before = module.status()?;
    let began = module.link.now();
    let end = began + Duration::from_millis(40);
    while module.link.now() < end {
        module.hear(end.saturating_sub(module.link.now()))?;
    }
    let after = module.status()?;
    if after.boots != before.boots {
        return Ok(CaseVerdict::Fault("the module restarted during the test".into()));
    }
    let counted = after.uptime.wrapping_sub(before.uptime);
    holds((30..5_000).contains(&counted), || {
        format!("the uptime rose by {counted} ms in at least 40 ms")
    })
}

fn broken_frame(module: &mut ModuleSuite) -> CaseResult {
    let line = module.frame(1, command::STATUS, &[]);
    let mut broken = line;
    let at = broken.len() - 2;
    broken[at] = if broken[at] == 0x55 { 0x56 } else { 0x55 };
    module.link.send(&broken)?;
    let heard = module.hear(SILENCE)?;
    holds(heard.is_none(), || "a reply arrived".into())
}

fn refused(what: &str, reply: Option<Reply>, status: u8) -> CaseResult {
    match reply {
        None => found(format!("{what} is not answered")),
        Some(reply) => holds(reply.status == status, || {
            format!("{what} is answered with status {}", reply.status)
        }),
    }
}

fn other_version(module: &mut ModuleSuite) -> CaseResult {
    let reply = module.send(9, command::STATUS, &[])?;
    refused("version 9", reply, 7)
}

fn unknown_command(module: &mut ModuleSuite) -> CaseResult {
    let reply = module.send(1, 0x7f, &[])?;
    refused("command 7Fh", reply, 1)
}

fn wrong_length(module: &mut ModuleSuite) -> CaseResult {
    let reply = module.send(1, command::STATUS, &[0])?;
    refused("Status with a payload of 1 byte", reply, 2)
}

fn read_only(module: &mut ModuleSuite) -> CaseResult {
    // Write back the first byte of the vendor name unchanged.
    let vendor = module.read(0, 129, 1)?;
    let reply = module.send(1, command::WRITE, &[0, 0, 129, vendor[0]])?;
    refused("a write to 00h:129", reply, 8)
}

fn low8(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

fn checksums(module: &mut ModuleSuite) -> CaseResult {
    for (page, first, last) in [(0x00, 128, 221), (0xb0, 192, 206)] {
        let bytes = module.read(page, first, last - first + 2)?;
        let Some((sum, covered)) = bytes.split_last() else { return found("an empty page") };
        if low8(covered) != *sum {
            return found(format!(
                "page {page:02X}h: checksum {sum:02X}h instead of {:02X}h",
                low8(covered)
            ));
        }
    }
    Ok(CaseVerdict::Passed)
}

fn discovery(module: &mut ModuleSuite) -> CaseResult {
    let page = module.read(0xb0, 192, 16)?;
    if page[..4] != *b"OCS1" || page[4] >> 4 != 1 {
        return found(format!("B0h:192 is {:02X?}", &page[..5]));
    }
    let hello = module.ask(command::HELLO, &[])?.payload;
    if hello.len() != 68 {
        return found(format!("the identity has {} bytes", hello.len()));
    }
    let (here, there) = ((page[5], page[6], page[7]), (hello[53], hello[54], hello[55]));
    holds(here == there, || {
        format!("groups, paths, capabilities: {here:?} in B0h, {there:?} in the identity")
    })
}

fn arm_none(module: &mut ModuleSuite) -> CaseResult {
    let mut payload = vec![0, 0, 0, 0, HOT];
    payload.extend(module.status()?.active);
    let reply = module.send(1, command::ARM, &payload)?;
    refused("an arm command for transaction 0", reply, 2)
}

fn fire_not_armed(module: &mut ModuleSuite) -> CaseResult {
    // The group mask is empty, so a module that accepts this fire does not switch.
    let mut payload = module.transaction().to_be_bytes().to_vec();
    payload.push(0);
    let reply = module.send(1, command::FIRE, &payload)?;
    refused("a fire command for a transaction that was never armed", reply, 3)
}

fn arm_path(module: &mut ModuleSuite) -> CaseResult {
    if module.external_paths >= 8 {
        return Ok(CaseVerdict::NotTested("the module supports all 8 paths".into()));
    }
    let beyond = module.external_paths + 1;
    let transaction = module.transaction();
    let reply = module.arm(transaction, beyond)?;
    let group = module.group.map_or(0, |(group, _)| group);
    let outcome = reply.payload.get(4 + group).copied();
    holds(reply.status == 0 && outcome == Some(4), || {
        format!("path {beyond}: status {}, outcome {outcome:?}", reply.status)
    })
}

fn arm_moves_nothing(module: &mut ModuleSuite) -> CaseResult {
    let before = module.status()?;
    let (group, home) = module.group.unwrap_or((0, LOOPBACK));
    module.dwell()?;
    let transaction = module.transaction();
    let path = module.elsewhere(home);
    module.arm(transaction, path)?;
    let end = module.link.now() + module.commit_max + Duration::from_millis(5);
    while module.link.now() < end {
        module.hear(end.saturating_sub(module.link.now()))?;
    }
    let after = module.status()?;
    if after.active[group] != before.active[group] || after.generation != before.generation {
        return found(format!(
            "group {group} switched from path {home} to {}",
            after.active[group]
        ));
    }
    holds(after.armed == transaction, || {
        format!("{transaction} was armed, but the status shows {}", after.armed)
    })
}

fn fire(module: &mut ModuleSuite) -> CaseResult {
    let (group, path) = module.target();
    let (transaction, reply) = module.moved(path)?;
    let status = module.status()?;
    if status.active[group] != path || status.busy != 0 {
        return found(format!(
            "outcome 1, but group {group} is at path {} instead of {path}",
            status.active[group]
        ));
    }
    let said = u32_at(&reply.payload, 0);
    holds(said == transaction && status.fired == transaction, || {
        format!(
            "{transaction} was fired, but the reply shows {said} and the status {}",
            status.fired
        )
    })
}

fn every_path(module: &mut ModuleSuite) -> CaseResult {
    let (group, _) = module.group.unwrap_or((0, LOOPBACK));
    let other = [(module.has_loopback, LOOPBACK), (module.has_dark, DARK)];
    let other = other.into_iter().filter_map(|(has, path)| has.then_some(path));
    for path in (1..=module.external_paths).chain(other) {
        if module.status()?.active[group] != path {
            module.moved(path)?;
        }
        let active = module.status()?.active[group];
        if active != path {
            return found(format!("group {group} was moved to path {path} but is at {active}"));
        }
    }
    Ok(CaseVerdict::Passed)
}

fn generation(module: &mut ModuleSuite) -> CaseResult {
    let before = module.status()?.generation;
    let (_, path) = module.target();
    let (_, reply) = module.moved(path)?;
    let (said, after) = (u32_at(&reply.payload, 4), module.status()?.generation);
    let expected = before.wrapping_add(1);
    holds(said == expected && after == expected, || {
        format!(
            "generation {before} before one switch; afterwards {said} in the reply, {after} in the status"
        )
    })
}

fn fire_again(module: &mut ModuleSuite) -> CaseResult {
    let (group, path) = module.target();
    let (transaction, first) = module.moved(path)?;
    let before = module.status()?;
    let again = module.fire(transaction)?;
    let after = module.status()?;
    if again.status != 0 || again.payload.get(8 + group) != first.payload.get(8 + group) {
        return found(format!("the reply has status {} and a different outcome", again.status));
    }
    holds((after.generation, after.active) == (before.generation, before.active), || {
        format!("the generation changed from {} to {}", before.generation, after.generation)
    })
}

fn disarm(module: &mut ModuleSuite) -> CaseResult {
    let (_, path) = module.target();
    module.dwell()?;
    let transaction = module.transaction();
    module.arm(transaction, path)?;
    let reply = module.ask(command::DISARM, &transaction.to_be_bytes())?;
    if reply.status != 0 {
        return found(format!("a disarm command is refused with status {}", reply.status));
    }
    let fired = module.fire(transaction)?;
    refused("a fire command for a disarmed transaction", Some(fired), 3)
}

fn set_up_times(module: &mut ModuleSuite) -> CaseResult {
    let (_, home) = module.group.unwrap_or((0, LOOPBACK));
    for round in 0..module.rounds {
        let path = if round % 2 == 0 { module.elsewhere(home) } else { home };
        module.dwell()?;
        let transaction = module.transaction();
        let began = module.link.now();
        let armed = module.arm(transaction, path)?;
        let fired = module.fire(transaction)?;
        let took = module.link.now().saturating_sub(began);
        let group = module.group.map_or(0, |(group, _)| group);
        match fired.payload.get(8 + group) {
            Some(1) if armed.status == 0 && fired.status == 0 => module.set_ups.push(took),
            Some(outcome @ 128..) => {
                return Ok(CaseVerdict::Fault(format!("round {round}: outcome {outcome}")));
            }
            other => {
                return found(format!("round {round}: status {}, outcome {other:?}", fired.status));
            }
        }
    }
    Ok(CaseVerdict::Passed)
}
