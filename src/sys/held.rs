//! Pointers that a process has handed to the kernel.

use std::fs;

/// Descriptors that are looked at: a server with more keeps its connections elsewhere, too.
const MOST: usize = 200_000;

/// The words that a process has registered with its epoll instances, and will get back with each
/// event: often a pointer that the program keeps nowhere else.
pub fn epoll_words(pid: i32) -> Vec<u64> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let mut words = Vec::new();
    for entry in descriptors.flatten().take(MOST) {
        let is_epoll = fs::read_link(entry.path())
            .is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]");
        if is_epoll && let Some(number) = entry.file_name().to_str() {
            let about = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}"));
            words.extend(about.iter().flat_map(|text| text.lines()).filter_map(data));
        }
    }
    words
}

/// `tfd:        5 events:       19 data: 7f21c8000b70  pos:0 …`
fn data(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("tfd:")?.split_once("data:")?.1;
    u64::from_str_radix(rest.split_whitespace().next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_word_is_found() {
        // SAFETY: no pointer but to our event; the descriptors are ours.
        unsafe {
            let epoll = libc::epoll_create1(0);
            let other = libc::eventfd(0, 0);
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: 0x7f21_c800_0b70,
            };
            let added = libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, other, &mut event);
            assert_eq!(added, 0);
            let words = epoll_words(std::process::id() as i32);
            assert!(words.contains(&0x7f21_c800_0b70), "{words:x?}");
            libc::close(epoll);
            libc::close(other);
        }
    }
}
