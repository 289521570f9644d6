//! The mappings of a process, from `/proc/PID/maps` and `/proc/PID/smaps`.

use std::io::{self, BufRead, BufReader};

/// One line of `maps`, with the figures that `smaps` adds (zero if read from `maps`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    pub inode: u64,
    /// A path, `[heap]`, `[stack]`, `[anon:name]`, or empty.
    pub name: String,
    /// Resident bytes.
    pub rss: u64,
    /// Of those, pages that belong to no file.
    pub anonymous: u64,
    pub swap: u64,
}

impl Mapping {
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Backed by a file that has a name.
    pub fn is_file(&self) -> bool {
        self.name.starts_with('/') && !self.is_system_v() && !self.name.starts_with("/dev/zero")
    }

    /// A System V segment.
    pub fn is_system_v(&self) -> bool {
        self.name.starts_with("/SYSV")
    }
}

/// In ascending order of addresses, without resident figures.
pub fn read(pid: i32) -> io::Result<Vec<Mapping>> {
    parse(BufReader::new(std::fs::File::open(format!(
        "/proc/{pid}/maps"
    ))?))
}

/// In ascending order of addresses, with resident figures. The kernel looks at every page: about
/// 30 ms for each resident GiB.
pub fn read_resident(pid: i32) -> io::Result<Vec<Mapping>> {
    parse(BufReader::new(std::fs::File::open(format!(
        "/proc/{pid}/smaps"
    ))?))
}

fn parse(mut text: impl BufRead) -> io::Result<Vec<Mapping>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if text.read_until(b'\n', &mut line)? == 0 {
            return Ok(mappings);
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\n');
        if let Some(mapping) = head(line) {
            mappings.push(mapping);
        } else if let Some(mapping) = mappings.last_mut() {
            figure(line, mapping);
        }
    }
}

/// `7f00-8000 rw-p 00000000 00:00 0   [heap]`
fn head(line: &str) -> Option<Mapping> {
    let (start, rest) = line.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let mut fields = rest.splitn(6, ' ');
    let end = u64::from_str_radix(fields.next()?, 16).ok()?;
    let rights = fields.next()?.as_bytes();
    let _offset = fields.next()?;
    let _device = fields.next()?;
    let inode = fields.next()?.parse().ok()?;
    let name = fields.next().unwrap_or("").trim_start();
    Some(Mapping {
        start,
        end,
        readable: rights.first() == Some(&b'r'),
        writable: rights.get(1) == Some(&b'w'),
        executable: rights.get(2) == Some(&b'x'),
        shared: rights.get(3) == Some(&b's'),
        inode,
        name: name.to_owned(),
        ..Mapping::default()
    })
}

/// `Rss:                 128 kB`
fn figure(line: &str, mapping: &mut Mapping) {
    let Some((key, rest)) = line.split_once(':') else {
        return;
    };
    let field = match key {
        "Rss" => &mut mapping.rss,
        "Anonymous" => &mut mapping.anonymous,
        "Swap" => &mut mapping.swap,
        _ => return,
    };
    let kilobytes = rest.trim().strip_suffix(" kB").unwrap_or("0");
    *field = kilobytes.trim().parse::<u64>().unwrap_or(0) * 1024;
}

/// The mapping that holds an address. `mappings` ascend.
pub fn find(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    let mapping = mappings.get(after.checked_sub(1)?)?;
    mapping.contains(address).then_some(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_belong_to_the_mapping_above() {
        let text = "55d0-55d2 r-xp 00000000 fe:00 77   /usr/bin/a b\nSize: 8 kB\nRss:   4 kB\n\
                    VmFlags: rd ex\n7ff0-7ff8 rw-p 00000000 00:00 0 \nRss:  2 kB\nSwap: 1 kB\n";
        let found = parse(text.as_bytes()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].name, "/usr/bin/a b");
        assert_eq!((found[0].rss, found[0].inode), (4096, 77));
        assert!(found[0].executable && !found[0].writable && found[0].is_file());
        assert_eq!((found[1].rss, found[1].swap), (2048, 1024));
        assert_eq!(find(&found, 0x7ff3), Some(&found[1]));
        assert_eq!(find(&found, 0x7ff8), None);
    }

    #[test]
    fn this_process_has_a_stack() {
        let here = 0u8;
        let found = read(std::process::id() as i32).unwrap();
        assert!(find(&found, &raw const here as u64).is_some_and(|m| m.writable));
    }
}
