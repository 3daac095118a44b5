//! Every filter: inserted keys are present, other keys no more often than by the formula; and the flash costs that the
//! papers promise.

use std::sync::Arc;

use onefold_chunk::Fingerprint;
use onefold_index::Filter;
use onefold_io::{Dir, Disk, FlashDir, FlashModel, MemDir};
use onefold_papers::filters::{
    Accounting, BlockedBloom, Bloom, BufferOptions, Buffering, Chain, Forest, ForestOptions, Full,
    PageShape, Quotient, SingleLayer, Traverse,
};

use crate::history::key;

const KEYS: u64 = 40_000;
const RATE: f64 = 0.01;

fn flash() -> (FlashDir, Arc<dyn Disk>) {
    let dir = FlashDir::new(Arc::new(MemDir::new()), FlashModel::with_capacity(64 << 20));
    let disk = dir.create("filter").expect("create");
    (dir, disk)
}

fn ask(filter: &mut dyn Filter, numbers: std::ops::Range<u64>) -> usize {
    let keys: Vec<Fingerprint> = numbers.map(key).collect();
    let mut present = vec![false; keys.len()];
    filter
        .may_contain(&keys, &mut present)
        .expect("may_contain");
    present.iter().filter(|present| **present).count()
}

/// Inserts in pieces, asks between them, and compares the false-positive rate with `rate`.
fn conforms(filter: &mut dyn Filter, rate: f64) {
    for start in (0..KEYS).step_by(1000) {
        filter
            .insert(&(start..start + 1000).map(key).collect::<Vec<_>>())
            .expect("insert");
        assert_eq!(ask(filter, start..start + 1000), 1000, "just inserted");
        assert_eq!(
            ask(filter, start / 2..start / 2 + 100),
            100,
            "inserted before"
        );
    }
    assert_eq!(ask(filter, 0..KEYS), KEYS as usize);
    let wrong = ask(filter, 1 << 30..(1 << 30) + 20_000) as f64 / 20_000.0;
    assert!(
        wrong < rate * 1.25 + 0.001,
        "{wrong} false positives, expected {rate}"
    );
}

fn forest(disk: Arc<dyn Disk>, traverse: Traverse, starts_in_flash: bool) -> Forest {
    let shape = PageShape::for_rate(RATE);
    Forest::new(
        disk,
        ForestOptions {
            ram_bytes: 16 << 10,
            shape,
            grown: shape,
            branching: 2,
            traverse,
            group_pages: 4,
            starts_in_flash,
            full: Full::FullestPage,
            accounting: Accounting::OURS,
        },
    )
    .expect("new")
}

#[test]
fn bloom_filters_in_ram_conform() {
    conforms(&mut Bloom::new(KEYS, RATE).expect("new"), RATE);
    conforms(&mut BlockedBloom::new(KEYS, RATE).expect("new"), RATE * 1.3);
}

/// The rate is (1 − e^(−k·N/M))^k for N keys in M bits with k = M/N·ln 2 hashes.
#[test]
fn bloom_filters_of_so_many_bits_conform() {
    for bits in [4.0, 8.0, 12.0] {
        let hashes = f64::round(bits * std::f64::consts::LN_2);
        let rate = (1.0 - (-hashes / bits).exp()).powf(hashes);
        let bytes = (KEYS as f64 * bits / 8.0) as usize;
        conforms(&mut Bloom::with_bytes(bytes, KEYS).expect("new"), rate);
        let mut blocked = BlockedBloom::with_bytes(bytes, KEYS).expect("new");
        // blocks of 512 bits have different numbers of keys
        conforms(&mut blocked, rate * 2.0);
    }
}

/// §3.3: a flush takes the group with the most updates, even where another found no room.
#[test]
fn the_dirtiest_group_is_flushed_first() {
    let (dir, disk) = flash();
    let shape = PageShape::for_rate(RATE);
    let keys = u64::from(shape.keys) * 8;
    let room = BufferOptions::new(Buffering::Pooled, 4096);
    let mut filter = SingleLayer::new(disk, keys, shape, room, 1).expect("new");
    let page = |number: &u64| page_of(&key(*number), 8);
    // most keys into page 3, then one into each page, until something is written
    let most: Vec<_> = (0..4000)
        .filter(|number| page(number) == 3)
        .take(80)
        .collect();
    let others = (4000..20_000).filter(|number| page(number) != 3);
    for number in most.into_iter().chain(others) {
        filter.insert(&[key(number)]).expect("insert");
        if dir.counts().page_writes > 0 {
            break;
        }
    }
    assert_eq!(dir.counts().page_writes, 1);
    let mut bytes = [0; 4096];
    let disk = dir.open("filter").expect("open");
    disk.read_at(&mut bytes, 3 * 4096).expect("read");
    assert!(bytes.iter().any(|byte| *byte != 0), "not page 3");
}

/// The page of a key among `pages`, as filters on flash choose it.
fn page_of(key: &Fingerprint, pages: u32) -> u32 {
    let word = u64::from_le_bytes(key.0[..8].try_into().expect("eight bytes"));
    ((u128::from(word) * u128::from(pages)) >> 64) as u32
}

#[test]
fn a_quotient_filter_that_grows_conforms() {
    let mut filter = Quotient::new(1000, KEYS, RATE).expect("new");
    conforms(&mut filter, RATE);
    assert!(
        filter.ram_bytes() < KEYS as usize * 2,
        "{}",
        filter.ram_bytes()
    );
}

#[test]
fn a_quotient_filter_that_is_full_says_of_which_budget() {
    let mut filter = Quotient::new(100, 100, RATE).expect("new");
    let keys: Vec<Fingerprint> = (0..10_000).map(key).collect();
    let full = filter.insert(&keys).expect_err("full");
    let bytes = filter.ram_bytes();
    assert!(
        matches!(full, onefold_index::Error::Budget { budget_bytes, .. } if budget_bytes == bytes),
        "{full}"
    );
}

/// Fewer hashes than the best (§3.4.3): M' = −N·k'/ln(1 − f^(1/k')) bits for the same rate, and fewer updates to
/// buffer.
#[test]
fn any_number_of_hashes_keeps_the_rate() {
    for hashes in [1, 2, 4, 7] {
        let shape = PageShape::with_hashes(RATE, hashes);
        let mut filter = SingleLayer::new(
            flash().1,
            KEYS,
            shape,
            BufferOptions::new(Buffering::Pooled, 16 << 10),
            4,
        )
        .expect("new");
        conforms(&mut filter, RATE);
    }
}

#[test]
fn single_layer_conforms() {
    for buffering in [Buffering::Compartments, Buffering::Pooled] {
        let shape = PageShape::for_rate(RATE);
        let mut filter = SingleLayer::new(
            flash().1,
            KEYS,
            shape,
            BufferOptions::new(buffering, 16 << 10),
            4,
        )
        .expect("new");
        conforms(&mut filter, RATE);
        filter.flush().expect("flush");
        assert_eq!(ask(&mut filter, 0..KEYS), KEYS as usize);
    }
}

/// Where layers and filters take the mean number of keys of their pages, half of the pages hold more: the rate is that
/// of the fuller ones.
#[test]
fn layers_that_are_full_on_the_mean_conform() {
    let mut chain =
        Chain::new(flash().1, 4, PageShape::for_rate(RATE)).closing_when(Full::MeanPage);
    conforms(&mut chain, RATE * 5.0);
    let shape = PageShape::for_rate(RATE);
    let options = ForestOptions {
        ram_bytes: 16 << 10,
        shape,
        grown: shape,
        branching: 2,
        traverse: Traverse::TopDown,
        group_pages: 4,
        starts_in_flash: false,
        full: Full::MeanPage,
        accounting: Accounting::PRINTED,
    };
    let mut forest = Forest::new(flash().1, options).expect("new");
    conforms(&mut forest, RATE * 4.0);
    // 4 pages and 8 take 41,000 keys; by their fullest pages a third layer would have come before
    assert_eq!(forest.height(), 2);
}

#[test]
fn chain_conforms_with_a_rate_for_each_filter() {
    let mut filter = Chain::new(flash().1, 4, PageShape::for_rate(RATE));
    conforms(&mut filter, RATE * 5.0);
    assert!(filter.filters() >= 3);
}

#[test]
fn forest_conforms_with_a_rate_for_each_layer() {
    for traverse in [Traverse::TopDown, Traverse::BottomUp] {
        for starts_in_flash in [false, true] {
            let mut filter = forest(flash().1, traverse, starts_in_flash);
            conforms(&mut filter, RATE * 4.0);
            assert!(filter.height() >= 3, "{}", filter.height());
        }
    }
}

/// Dissertation §3.3: "the pooling buffer could further reduce the total number of flash write operations by 50 %".
#[test]
fn a_pooled_buffer_writes_less_than_compartments() {
    let writes = [Buffering::Compartments, Buffering::Pooled].map(|buffering| {
        let (dir, disk) = flash();
        let mut filter = SingleLayer::new(
            disk,
            KEYS,
            PageShape::for_rate(RATE),
            BufferOptions::new(buffering, 16 << 10),
            4,
        )
        .expect("new");
        filter
            .insert(&(0..KEYS).map(key).collect::<Vec<_>>())
            .expect("insert");
        dir.counts().page_writes as f64
    });
    assert!(writes[1] < writes[0] * 0.8, "{writes:?}");
}

/// The chain writes each page once; the forest answers absent keys with a read a layer, the chain with one a filter.
#[test]
fn chain_and_forest_trade_writes_for_reads() {
    let (chain_dir, chain_disk) = flash();
    let (forest_dir, forest_disk) = flash();
    let mut chain = Chain::new(chain_disk, 4, PageShape::for_rate(RATE));
    let mut forest = forest(forest_disk, Traverse::BottomUp, false);
    let keys: Vec<Fingerprint> = (0..KEYS).map(key).collect();
    chain.insert(&keys).expect("insert");
    forest.insert(&keys).expect("insert");
    assert!(chain_dir.counts().page_writes < forest_dir.counts().page_writes);
    let reads = |dir: &FlashDir, filter: &mut dyn Filter| {
        let before = dir.counts().page_reads;
        ask(filter, 1 << 30..(1 << 30) + 1000);
        (dir.counts().page_reads - before) as f64 / 1000.0
    };
    let (of_chain, of_forest) = (
        reads(&chain_dir, &mut chain),
        reads(&forest_dir, &mut forest),
    );
    assert!(
        of_forest <= forest.height() as f64 && of_chain <= chain.filters() as f64,
        "{of_chain} {of_forest}"
    );
}
