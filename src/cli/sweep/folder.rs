//! Where the results of a sweep go. They are written after every run: what was measured stays,
//! whatever becomes of the rest.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::Error;
use crate::profile::{self, Output};

pub const RESULTS: &str = "sweep.json";
pub const CHART: &str = "growth.svg";

pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes it. One that has results of another sweep is taken only by force.
    pub fn create(path: &Path, force: bool) -> Result<Folder, Error> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| Error::Refused {
            what: format!("can't make the folder {}: {error}", path.display()),
            hint: "name another one with -o".to_owned(),
        })?;
        if path.join(RESULTS).exists() && !force {
            return Err(Error::Refused {
                what: format!("{} has the results of a sweep already", path.display()),
                hint: "name another folder with -o, or replace them with --force".to_owned(),
            });
        }
        let path = path.to_owned();
        Ok(Folder { path })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// As a person types it.
    pub fn shown(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// A new file for what a program prints, in the place of an old one.
    pub fn log(&self, name: &str) -> Result<File, Error> {
        let path = self.file(name);
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path);
        opened.map_err(|error| Error::Refused {
            what: format!("can't write {}: {error}", path.display()),
            hint: "name another folder with -o".to_owned(),
        })
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let options = profile::Options { force: true };
        Output::create(&self.file(name), options)?.finish_with(bytes)?;
        Ok(())
    }
}
