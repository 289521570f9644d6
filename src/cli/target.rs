//! Where a command's file goes: `-o FILE`, `-o -` for the standard output, else a name made of
//! the profile's, beside it.

use std::path::{Path, PathBuf};

use super::{Error, print, print_raw};
use crate::profile::{Options, Output};
use crate::render::units::bytes;

#[derive(Debug, clap::Args)]
pub struct Target {
    /// File to write; - for the standard output [default: beside the profile]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if it is there
    #[arg(short, long)]
    force: bool,
}

impl Target {
    /// `ending` replaces `.taskheap`, unless the person named a file.
    pub fn write(&self, profile: &Path, ending: &str, content: &[u8]) -> Result<(), Error> {
        if self.output.as_deref() == Some(Path::new("-")) {
            return print_raw(content);
        }
        let path = match &self.output {
            Some(path) => path.clone(),
            None => beside(profile, ending),
        };
        let options = Options { force: self.force };
        let size = Output::create(&path, options)?.finish_with(content)?;
        print(&format!("wrote {} ({})\n", path.display(), bytes(size)))
    }
}

/// `runs/server.peak.svg` for `runs/server.taskheap`.
fn beside(profile: &Path, ending: &str) -> PathBuf {
    let name = profile.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".taskheap").unwrap_or(&name);
    profile.with_file_name(format!("{stem}.{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_of_the_profiles() {
        let made = |profile: &str| beside(Path::new(profile), "peak.svg");
        assert_eq!(made("a/x.1.taskheap"), Path::new("a/x.1.peak.svg"));
        assert_eq!(made("x"), Path::new("x.peak.svg"));
    }
}
