//! Groups of copies on heaps whose answer is known.

use super::roots::Holder;
use super::worlds::World;
use crate::profile;

/// A tree of one large block and ten small ones, whose contents begin with `tag`. Returns its
/// address.
fn rules(world: &mut World, contexts: [u32; 2], tag: u64) -> u64 {
    let parts: Vec<u64> = (0..10)
        .map(|n| world.block(2048, contexts[1], &[n, 7, 8, 9]))
        .collect();
    let mut words = parts;
    words.extend((0..2000).map(|n| n * 3 + 1));
    words.extend([tag; 20]);
    world.block(64 << 10, contexts[0], &words)
}

const TREE: u64 = (64 << 10) + 10 * 2048;

/// Contexts of a large and a small block, made below two ways to the same code.
fn contexts(world: &mut World, poll: u32) -> [u32; 2] {
    let machinery = world.node(poll, true);
    // The same code has the same addresses.
    let base = world.heap.nodes.parent.len();
    let clone = world.node(machinery, false);
    let (large, small) = (world.node(clone, false), world.node(clone, false));
    for (at, address) in (base..).zip([0x5000, 0x5010, 0x5020]) {
        world.heap.nodes.address[at] = address;
    }
    [world.context(large), world.context(small)]
}

#[test]
fn a_tree_per_task_is_one_group_of_whole_trees_whatever_polled_them() {
    let mut world = World::new();
    let ways = [contexts(&mut world, 0), contexts(&mut world, 0)];
    for n in 0..3 {
        let tree = rules(&mut world, ways[n % 2], 5);
        world.task(&[0, tree]);
    }
    let rows = world.copies();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    let row = &rows[0];
    assert_eq!(row.holder, profile::Holder::Task);
    assert_eq!((row.copies, row.bytes_each, row.blocks_each), (3, TREE, 11));
    assert_eq!((row.identical, row.waste_bytes), (Some(true), 2 * TREE));
    assert_eq!(row.owner, Some(profile::OwnerId(1)));
}

#[test]
fn a_few_words_of_garbage_do_not_make_them_different() {
    let mut world = World::new();
    let way = contexts(&mut world, 0);
    for n in 0..4 {
        let tree = rules(&mut world, way, 100 + n);
        world.task(&[0, tree]);
    }
    let rows = world.copies();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].identical, rows[0].waste_bytes),
        (Some(true), 3 * TREE)
    );
    let share = 1.0 - 160.0 / TREE as f64;
    let expected = share;
    assert!(
        (rows[0].equal_share - expected).abs() < 1e-9,
        "{}",
        rows[0].equal_share
    );
}

#[test]
fn equal_shapes_with_other_contents_waste_nothing() {
    let mut world = World::new();
    let node = world.node(0, false);
    let context = world.context(node);
    for n in 0..5u64 {
        let words: Vec<u64> = (0..2048).map(|w| w * 31 + n + 1).collect();
        let buffer = world.block(16 << 10, context, &words);
        world.task(&[0, buffer]);
    }
    let rows = world.copies();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].identical, rows[0].waste_bytes), (Some(false), 0));
    assert_eq!(rows[0].copies, 5);
}

#[test]
fn clones_in_one_vector_are_instances_of_its_holder() {
    let mut world = World::new();
    let way = contexts(&mut world, 0);
    let node = world.node(0, false);
    let of_vector = world.context(node);
    let trees: Vec<u64> = (0..50).map(|_| rules(&mut world, way, 5)).collect();
    let vector = world.block(400, of_vector, &trees);
    world.hold(Holder::Static(0), vector);
    let rows = world.copies();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].holder, profile::Holder::Instance);
    assert_eq!(rows[0].holder_name, "app::POOL");
    assert_eq!((rows[0].copies, rows[0].bytes_each), (50, TREE));
}

#[test]
fn values_of_a_thread_local_are_copies_of_it() {
    let mut world = World::new();
    let way = contexts(&mut world, 0);
    for thread in 0..6 {
        let tree = rules(&mut world, way, 5);
        world.hold(Holder::ThreadLocal { slot: 0, thread }, tree);
    }
    let rows = world.copies();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].holder, profile::Holder::ThreadLocal);
    assert_eq!(
        (rows[0].holder_name.as_str(), rows[0].copies),
        ("app::RULES", 6)
    );
}

#[test]
fn what_the_same_tasks_have_is_one_group() {
    let mut world = World::new();
    let way = contexts(&mut world, 0);
    let node = world.node(0, false);
    let of_costs = world.context(node);
    for _ in 0..4 {
        let tree = rules(&mut world, way, 5);
        let costs: Vec<u64> = (0..4096).map(|n| n + 1).collect();
        let costs = world.block(32 << 10, of_costs, &costs);
        world.task(&[0, tree, costs]);
    }
    let rows = world.copies();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!((rows[0].copies, rows[0].bytes_each), (4, TREE + (32 << 10)));
    assert_eq!(rows[0].waste_bytes, 3 * (TREE + (32 << 10)));
}

#[test]
fn many_small_equal_blocks_are_one_group_and_different_ones_none() {
    let mut world = World::new();
    let node = world.node(0, false);
    let (equal, different) = (world.context(node), world.context(node));
    let mut words = Vec::new();
    for n in 0..5000 {
        words.push(world.block(24, equal, &[1, 2, 3]));
        words.push(world.block(40, different, &[1, 2, n + 1]));
    }
    let node = world.node(0, false);
    let context = world.context(node);
    let all = world.block(words.len() as u64 * 8, context, &words);
    world.hold(Holder::Data, all);
    let rows = world.copies();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!((rows[0].copies, rows[0].waste_bytes), (5000, 4999 * 24));
}

#[test]
fn a_shared_tree_is_no_copy() {
    let mut world = World::new();
    let way = contexts(&mut world, 0);
    let tree = rules(&mut world, way, 5);
    for _ in 0..10 {
        world.task(&[0, tree]);
    }
    assert!(world.copies().is_empty());
}

#[test]
fn caches_that_have_grown_apart_a_little_are_one_family() {
    let mut world = World::new();
    let way = contexts(&mut world, 0);
    let node = world.node(0, false);
    let (of_pool, of_extra) = (world.context(node), world.context(node));
    for n in 0..40u64 {
        let cache = rules(&mut world, way, 5);
        let extra = world.block(64 + n / 8 * 32, of_extra, &[n]);
        let pool = world.block(512, of_pool, &[cache, extra]);
        world.task(&[0, pool]);
    }
    let rows = world.copies();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!((rows[0].copies, rows[0].identical), (40, Some(true)));
}

#[test]
fn similar_elements_of_one_array_are_no_copies() {
    let mut world = World::new();
    let node = world.node(0, false);
    let (of_text, of_entry) = (world.context(node), world.context(node));
    let mut entries = Vec::new();
    for n in 0..100u64 {
        // Long texts that differ in one word only.
        let mut text = vec![0x3030_3030_3030_3030; 125];
        text[124] = n;
        let text = world.block(1000, of_text, &text);
        entries.push(world.block(2048, of_entry, &[text, 1, 2, n]));
    }
    let all = world.block(800, of_entry, &entries);
    world.hold(Holder::Static(0), all);
    assert!(world.copies().is_empty(), "{:#?}", world.copies());
}

#[test]
fn a_part_that_was_made_elsewhere_does_not_hide_who_made_most() {
    let mut world = World::new();
    let run = world.node(0, true);
    let (opened, burst) = (world.node(run, false), world.node(run, false));
    let send = world.node(burst, false);
    let (of_channel, of_block) = (world.context(opened), world.context(send));
    for _ in 0..10 {
        let last = world.block(33_000, of_block, &[1, 2, 3]);
        let next = world.block(33_000, of_block, &[last, 2, 3]);
        let first = world.block(33_000, of_channel, &[next, 2, 3]);
        let channel = world.block(384, of_channel, &[first, last]);
        world.task(&[0, channel]);
    }
    let rows = world.copies();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].node, Some(profile::NodeId(send)));
}

/// A list of twenty nodes, each with a tree, reached at its middle node.
#[test]
fn elements_of_a_list_are_the_copies_not_its_halves() {
    let mut world = World::new();
    let way = contexts(&mut world, 0);
    let node = world.node(0, false);
    let node = world.context(node);
    let mut next = 0;
    let first = world.block(256, node, &[]);
    let mut halves = [0, 0];
    for half in &mut halves {
        for _ in 0..10 {
            let tree = rules(&mut world, way, 5);
            next = world.block(256, node, &[next, tree]);
        }
        *half = next;
        next = 0;
    }
    world.sketch.put(first, &halves);
    world.hold(Holder::Static(0), first);
    let rows = world.copies();
    assert_eq!(rows[0].copies, 20, "{rows:#?}");
    assert_eq!(rows[0].bytes_each, TREE);
    assert_eq!(rows[0].waste_bytes, 19 * TREE);
}
