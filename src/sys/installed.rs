//! How much memory there is for the programs of this process's group: the machine's, or less.

use std::path::Path;

/// Bytes, and whether it is the control group that sets them. None if the system does not say.
pub fn memory() -> Option<(u64, bool)> {
    let machine = machine(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    match group_limit() {
        Some(limit) if limit < machine => Some((limit, true)),
        _ => Some((machine, false)),
    }
}

/// `MemTotal:       24566412 kB`.
fn machine(meminfo: &str) -> Option<u64> {
    let rest = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// The smallest limit of the group (version 2) and those above it.
fn group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit = |folder: &Path| {
        let path = Path::new("/sys/fs/cgroup").join(folder).join("memory.max");
        // `max` is no number: no limit.
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    Path::new(own).ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_machine_tells_its_memory() {
        let text = "MemFree: 3 kB\nMemTotal:       24566412 kB\n";
        assert_eq!(super::machine(text), Some(24_566_412 * 1024));
        assert_eq!(super::machine("MemTotal: lots"), None);
        assert!(super::memory().is_some_and(|(bytes, _)| bytes > 1 << 20));
    }
}
