//! Which crates are the program's own.
//!
//! With debug info every compilation unit names its crate and where that was compiled. Without
//! it there are these signs: the C function `main` that rustc makes passes the address of the
//! program's `main` to std; a symbol `X::main`; the executable's name. Paths in panic messages
//! add the crates of a workspace: cargo compiles them with relative paths, registry crates with
//! absolute ones. So does the list of sources that cargo leaves beside an executable. A workspace
//! crate that leaves neither is taken for a library.

use std::collections::HashSet;
use std::path::Path;

use crate::profile::target::names::{self, Language};
use crate::profile::target::{DebugInfo, Image, Symbols};

use super::origin::{self, Crates};

pub(super) fn of(image: &Image, symbols: &Symbols, debug_info: Option<&DebugInfo>) -> Crates {
    let mut crates = debug_info.map(by_units).unwrap_or_default();
    if crates.own.is_empty() {
        by_signs(image, symbols, &mut crates.own);
    }
    crates
}

/// The crates of all compilation units: `src/main.rs/@/server.1f2e3d-cgu.0`.
fn by_units(info: &DebugInfo) -> Crates {
    let mut crates = Crates::default();
    let mut headers = info.dwarf().units();
    while let Ok(Some(header)) = headers.next() {
        let Ok(unit) = info.dwarf().unit(header) else {
            continue;
        };
        let name = unit
            .name
            .map(|name| name.to_string_lossy())
            .unwrap_or_default();
        let Some((path, made)) = name.split_once("/@/") else {
            continue;
        };
        let crate_name = made.split('.').next().unwrap_or_default();
        let folder = unit
            .comp_dir
            .map(|dir| dir.to_string_lossy())
            .unwrap_or_default();
        let known = origin::by_path(path).or_else(|| origin::by_path(&format!("{folder}/{path}")));
        let set = if known.is_some() {
            &mut crates.others
        } else {
            &mut crates.own
        };
        if !set.contains(crate_name) {
            set.insert(crate_name.to_owned());
        }
    }
    crates
}

fn by_signs(image: &Image, symbols: &Symbols, crates: &mut HashSet<String>) {
    let mut all: HashSet<String> = HashSet::new();
    let mut mains = HashSet::new();
    for symbol in symbols.functions() {
        let (name, language) = names::demangle(symbol.name);
        if language != Language::Rust {
            continue;
        }
        let Some((first, rest)) = name.split_once("::") else {
            continue;
        };
        if first.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') {
            if rest == "main" {
                mains.insert(first.to_owned());
            }
            if !all.contains(first) {
                all.insert(first.to_owned());
            }
        }
    }
    match entry(image, symbols) {
        Some(name) => crates.extend([name]),
        None => crates.extend(mains),
    }
    crates.extend(file_crate(image.path()));
    let mut folders = relative_crates(&image.section(".rodata"));
    folders.extend(listed_crates(image.path()));
    let is_crate = |name: &String| all.contains(name) && !origin::is_known(name);
    crates.extend(folders.into_iter().filter(is_crate));
}

/// The executable's name as a crate's.
fn file_crate(path: &Path) -> Option<String> {
    let name = path.file_stem()?.to_str()?;
    // Test and bench executables carry a hash.
    let name = match name.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name
        }
        _ => name,
    };
    Some(name.replace('-', "_"))
}

/// The crate of the function that C's `main` hands to std: the first Rust `X::main` whose address
/// it takes.
fn entry(image: &Image, symbols: &Symbols) -> Option<String> {
    let (start, size) = symbols.function("main")?;
    let code = image.read(start, size.min(4096) as usize);
    addresses_taken(code, start)
        .into_iter()
        .find_map(|address| {
            symbols.at(address).find_map(|symbol| {
                let (name, language) = names::demangle(symbol.name);
                let first = name.strip_suffix("::main")?;
                (language == Language::Rust && !first.contains("::")).then(|| first.to_owned())
            })
        })
}

#[cfg(target_arch = "x86_64")]
fn addresses_taken(code: &[u8], svma: u64) -> Vec<u64> {
    use iced_x86::{Code, Decoder, DecoderOptions};
    Decoder::with_ip(64, code, svma, DecoderOptions::NONE)
        .iter()
        .filter(|i| i.code() == Code::Lea_r64_m && i.is_ip_rel_memory_operand())
        .map(|i| i.ip_rel_memory_address())
        .collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn addresses_taken(_code: &[u8], _svma: u64) -> Vec<u64> {
    Vec::new()
}

/// Folders of the sources in the dependency file beside the executable: `server.d`.
fn listed_crates(executable: &Path) -> HashSet<String> {
    let list = {
        let mut path = executable.as_os_str().to_owned();
        path.push(".d");
        std::fs::read_to_string(path).unwrap_or_default()
    };
    list.split_whitespace()
        .filter(|path| origin::by_path(path).is_none())
        .filter_map(|path| path.rsplit_once("/src/")?.0.rsplit('/').next())
        .map(|folder| folder.replace('-', "_"))
        .collect()
}

/// Names of folders before `/src/` in relative paths of Rust files: `crates/store/src/lib.rs`.
fn relative_crates(rodata: &[u8]) -> HashSet<String> {
    let mut found = HashSet::new();
    for at in memchr::memmem::find_iter(rodata, b"/src/") {
        let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        let start = (0..at)
            .rev()
            .take(200)
            .take_while(|i| is_path(rodata[*i]))
            .last();
        let Some(start) = start else {
            continue;
        };
        let before = &rodata[start..at];
        // Strings stand one after another without a mark, so a path may have something before it;
        // only one that holds no absolute path counts.
        if before.contains(&b'/')
            && before[0] != b'/'
            && !has(before, b"registry/src")
            && !has(before, b"rustc/")
        {
            let folder = before
                .rsplit(|byte| *byte == b'/')
                .next()
                .unwrap_or_default();
            found.extend(std::str::from_utf8(folder).map(|name| name.replace('-', "_")));
        }
    }
    found
}

fn has(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_crates_leave_relative_paths() {
        let rodata = b"\0crates/my-store/src/lib.rs\0/root/.cargo/registry/src/i/serde-1/src/de.rs\
            \0/rustc/59807/library/std/src/io.rs\0src/main.rs\0";
        let found = relative_crates(rodata);
        assert_eq!(found, HashSet::from(["my_store".to_owned()]));
    }

    #[test]
    fn an_executable_is_named_after_its_crate() {
        assert_eq!(
            file_crate(Path::new("/a/my-server")).as_deref(),
            Some("my_server")
        );
        let test = Path::new("/a/deps/cli-0123456789abcdef");
        assert_eq!(file_crate(test).as_deref(), Some("cli"));
    }
}
