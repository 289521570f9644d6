use std::path::Path;
use taskheap::profile::symbolize::*;
#[test]
fn tasks() {
    let p = std::env::var("DUMP").unwrap();
    for p in p.split_whitespace() {
        let p = Path::new(&p);
        let start = std::time::Instant::now();
        let mut s = Symbolizer::new();
        let all = s.task_types(p);
        println!("== {} {:?}", p.display(), start.elapsed());
        for (a, n) in all {
            println!(
                "{a:#x} {}{}{}{} {}:{}   {}",
                n.name,
                if n.runtime_own { " OWN" } else { "" },
                if n.is_dyn { " DYN" } else { "" },
                if n.uncertain { " UNCERTAIN" } else { "" },
                n.file,
                n.line,
                &n.full_name
            );
        }
    }
}
