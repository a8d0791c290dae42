// SPDX-License-Identifier: Apache-2.0
//! Expands Slurm host lists such as `gpu[001-003,7],login` (scontrol(1), "hostlist").

const MOST_HOSTS: u64 = 1_000_000;

/// Expands a list in its order. The error describes the syntax error.
pub fn expand_hosts(list: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for item in items(list) {
        expand_item("", item.trim(), &mut hosts)?;
    }
    Ok(hosts)
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    list.split(move |c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    })
    .filter(|item| !item.trim().is_empty())
}

fn number(text: &str, item: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` in `{item}` is not a number"))
}

fn expand_item(before: &str, item: &str, hosts: &mut Vec<String>) -> Result<(), String> {
    let Some((prefix, rest)) = item.split_once('[') else {
        hosts.push(format!("{before}{item}"));
        return Ok(());
    };
    let (ranges, after) =
        rest.split_once(']').ok_or_else(|| format!("`{item}` has no closing bracket"))?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (number(first, item)?, number(last, item)?);
        if to < from || to - from > MOST_HOSTS || hosts.len() as u64 > MOST_HOSTS {
            return Err(format!("`{range}` in `{item}` is not a range of hosts"));
        }
        for value in from..=to {
            let start = format!("{before}{prefix}{value:0width$}", width = first.trim().len());
            expand_item(&start, after, hosts)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::expand_hosts;

    /// Expected values are from `scontrol show hostnames` of Slurm 22.05.
    #[test]
    fn host_lists_expand_like_slurm() {
        let hosts = |list: &str| expand_hosts(list).unwrap().join(" ");
        assert_eq!(hosts("gpu[001-003,9],login"), "gpu001 gpu002 gpu003 gpu9 login");
        assert_eq!(hosts("r[1-2]n[1-2]-ib"), "r1n1-ib r1n2-ib r2n1-ib r2n2-ib");
        assert_eq!(hosts("a,b"), "a b");
        assert_eq!(hosts(""), "");
        assert!(expand_hosts("gpu[1-").is_err());
        assert!(expand_hosts("gpu[9-1]").is_err());
        assert!(expand_hosts("gpu[x]").is_err());
    }
}
