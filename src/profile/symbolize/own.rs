//! Which crates are the program's own.
//!
//! With debug info every compilation unit names its crate and where that was compiled. Without
//! it there are these signs: the C function `main` that rustc makes passes the address of the
//! program's `main` to std; a symbol `X::main`; the executable's name. Paths in panic messages
//! add the crates of a workspace: cargo compiles them with relative paths, registry crates with
//! absolute ones. So does the list of sources that cargo leaves beside an executable. A workspace
//! crate that leaves neither is taken for a library.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use crate::profile::target::debug_info::Slice;
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
    // Crates that were compiled where cargo keeps packages, with their package's folder.
    let mut packaged: Vec<(String, String)> = Vec::new();
    let mut headers = info.dwarf().units();
    while let Ok(Some(header)) = headers.next() {
        let Ok(unit) = info.dwarf().unit(header) else {
            continue;
        };
        let text = |text: Option<Slice>| text.map(|text| text.to_string_lossy());
        let name = text(unit.name).unwrap_or_default();
        let Some((path, made)) = name.split_once("/@/") else {
            continue;
        };
        let crate_name = made.split('.').next().unwrap_or_default().to_owned();
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("{}/{path}", text(unit.comp_dir).unwrap_or_default()),
        };
        if origin::by_path(&path).is_some() {
            packaged.push((crate_name, path));
        } else {
            crates.own.insert(crate_name);
        }
    }
    // A program that was installed from a registry: nobody compiles the binaries of libraries.
    let folder = |path: &str| {
        path.rsplit_once("/src/")
            .map(|(folder, _)| folder.to_owned())
    };
    let programs = packaged.iter().filter(|(_, path)| is_program(path));
    let programs: HashSet<String> = programs.filter_map(|(_, path)| folder(path)).collect();
    for (name, path) in packaged {
        let is_own = folder(&path).is_some_and(|folder| programs.contains(&folder));
        let set = match is_own {
            true => &mut crates.own,
            false => &mut crates.others,
        };
        set.insert(name);
    }
    crates
}

/// Is this the root of an executable, as packages have it?
fn is_program(path: &str) -> bool {
    path.ends_with("/src/main.rs") || path.contains("/src/bin/")
}

fn by_signs(image: &Image, symbols: &Symbols, crates: &mut HashSet<String>) {
    let mut folders = relative_crates(&image.section(".rodata"));
    folders.extend(listed_crates(image.path()));
    folders.retain(|name| !origin::is_known(name));
    let mut mains = HashSet::new();
    for symbol in symbols.functions() {
        let Some((crate_name, is_main)) = crate_of(symbol.name) else {
            continue;
        };
        if is_main {
            mains.insert(crate_name.into_owned());
        } else if folders.contains(&*crate_name) {
            crates.extend(folders.take(&*crate_name));
        }
    }
    match entry(image, symbols) {
        Some(name) => crates.extend([name]),
        None => {
            crates.extend(mains);
            crates.extend(file_crate(image.path()));
        }
    }
}

/// The crate that a function's path starts with, and whether it is that crate's `main`. Legacy
/// names are read as they are: a large program has half a million, and demangling takes longer.
fn crate_of(symbol: &str) -> Option<(Cow<'_, str>, bool)> {
    if let Some(rest) = symbol.strip_prefix("_ZN") {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let length: usize = rest[..digits].parse().ok()?;
        let name = rest.get(digits..digits.checked_add(length)?)?;
        let is_main = rest.get(digits + length..)?.starts_with("4main17h");
        // `_$LT$server..Rule$u20$as…`
        let name = name.strip_prefix("_$LT$").unwrap_or(name);
        let first = name.split("..").next().unwrap_or_default();
        return (!first.contains('$')).then_some((first.into(), is_main));
    }
    let (name, language) = names::demangle(symbol);
    let (first, rest) = name.trim_start_matches('<').split_once("::")?;
    let is_path = first.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let found = || (first.to_owned().into(), rest == "main");
    (language == Language::Rust && is_path).then(found)
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
            .take(300)
            .take_while(|i| is_path(rodata[*i]))
            .last();
        let Some(start) = start else {
            continue;
        };
        let before = &rodata[start..at];
        // Strings stand one after another without a mark, so a path may have something before it;
        // only one that holds no absolute path counts.
        if let Some(package) = program_package(before, &rodata[at..]) {
            found.insert(package);
        } else if before.contains(&b'/')
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

/// The package of `…/registry/src/INDEX/PACKAGE-VERSION/src/bin/a.rs`: installed from a registry,
/// and not as a library.
fn program_package(before: &[u8], after: &[u8]) -> Option<String> {
    if !after.starts_with(b"/src/bin/") && !after.starts_with(b"/src/main.rs") {
        return None;
    }
    let path = format!("{}/src/main.rs", std::str::from_utf8(before).ok()?);
    let package = origin::by_path(&path)?;
    (!package.library.is_empty()).then_some(package.library)
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
    fn an_installed_program_is_its_own_package() {
        let rodata = b"\0/root/.cargo/registry/src/i/mini-redis-0.4.1/src/bin/server.rs\
            \0/root/.cargo/registry/src/i/serde-1.0.1/src/de.rs\0";
        let found = relative_crates(rodata);
        assert_eq!(found, HashSet::from(["mini_redis".to_owned()]));
    }

    #[test]
    fn symbols_tell_their_crate() {
        let main = "_ZN6server4main17h0123456789abcdefE";
        assert_eq!(crate_of(main), Some(("server".into(), true)));
        let other = "_ZN6server5store4main17h0123456789abcdefE";
        assert_eq!(crate_of(other), Some(("server".into(), false)));
        let of_impl =
            "_ZN50_$LT$server..Rule$u20$as$u20$core..clone..Clone$GT$5clone17h0123456789abcdefE";
        assert_eq!(crate_of(of_impl), Some(("server".into(), false)));
        let v0 = "_RNvMs0_NtNtNtNtCsjrHSEGnQ3l9_3std3sys4sync4once5futexNtB5_4Once4call";
        assert_eq!(crate_of(v0), Some(("std".into(), false)));
        for odd in ["_ZN", "_ZN9999999999999999999999a", "_ZN5ab", "malloc", ""] {
            assert_eq!(crate_of(odd), None);
        }
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
