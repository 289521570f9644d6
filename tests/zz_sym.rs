use std::path::Path;
use taskheap::profile::symbolize::*;
use taskheap::profile::target::*;
#[test]
fn sym() {
    let p = std::env::var("DUMP").unwrap();
    let p = Path::new(&p);
    let t = inspect_object(p).unwrap();
    let mut s = Symbolizer::new();
    let n: usize = std::env::var("N").unwrap_or("300".into()).parse().unwrap();
    // addresses after every call
    let mut addrs = vec![];
    for f in t.symbols().functions() {
        let code = t.image().read(f.svma, f.size as usize);
        for i in iced_x86::Decoder::with_ip(64, code, f.svma, 0).iter() {
            if matches!(
                i.flow_control(),
                iced_x86::FlowControl::Call | iced_x86::FlowControl::IndirectCall
            ) {
                addrs.push(i.next_ip());
            }
        }
    }
    addrs.sort();
    addrs.dedup();
    let step = (addrs.len() / n).max(1);
    let addrs: Vec<u64> = addrs.into_iter().step_by(step).take(n).collect();
    let start = std::time::Instant::now();
    let q: Vec<Address> = addrs
        .iter()
        .map(|a| Address {
            module: p,
            build_id: &t.build_id,
            svma: *a,
        })
        .collect();
    let r = s.resolve_all(&q, &|_, _| {});
    println!(
        "{} addresses {:?} {:?}",
        q.len(),
        start.elapsed(),
        s.missing()
    );
    if std::env::var("SHOW").is_ok() {
        for (a, fs) in addrs.iter().zip(&r) {
            println!("{a:#x}");
            for f in fs.iter() {
                println!(
                    "    {}{} {}:{} [{}] {:?}",
                    if f.inlined { "~" } else { "" },
                    f.function,
                    f.file,
                    f.line,
                    f.library,
                    f.origin
                );
            }
        }
    }
}
