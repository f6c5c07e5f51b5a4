//! The pool against a set model, and the cases by name.

use proptest::prelude::*;

use super::*;

fn net(text: &str) -> Ipv4Net {
    text.parse().expect("a network")
}

fn pool(block: &str, prefix: u8) -> SubnetPool {
    SubnetPool::new(vec![net(block)], prefix, 0).expect("a pool")
}

fn draw(pool: &mut SubnetPool, prefix: Option<u8>, blocked: &Spans) -> Result<String, SubnetRefusal> {
    let drawn = pool.draw(prefix, blocked)?;
    assert!(pool.take(&drawn.net), "{} overlaps", drawn.net);
    pool.set_cursor(drawn.cursor);
    Ok(drawn.net.to_string())
}

#[test]
fn subnets_come_in_turn() {
    let mut pool = pool("10.252.0.0/22", 24);
    let none = Spans::default();
    assert_eq!(draw(&mut pool, None, &none).as_deref(), Ok("10.252.0.0/24"));
    assert_eq!(draw(&mut pool, None, &none).as_deref(), Ok("10.252.1.0/24"));
    pool.free(&net("10.252.0.0/24"));
    assert_eq!(draw(&mut pool, None, &none).as_deref(), Ok("10.252.2.0/24"), "one given up goes to the tail");
    assert_eq!(draw(&mut pool, None, &none).as_deref(), Ok("10.252.3.0/24"));
    assert_eq!(draw(&mut pool, None, &none).as_deref(), Ok("10.252.0.0/24"), "the turn goes round");
    assert_eq!(draw(&mut pool, None, &none), Err(SubnetRefusal::Exhausted));
}

#[test]
fn what_overlaps_is_skipped_whether_larger_or_smaller() {
    let mut pool = pool("10.252.0.0/21", 24);
    let blocked = Spans::of([net("10.252.0.128/29"), net("10.252.2.0/23"), net("10.252.4.7/32")]);
    assert_eq!(draw(&mut pool, None, &blocked).as_deref(), Ok("10.252.1.0/24"));
    assert_eq!(draw(&mut pool, None, &blocked).as_deref(), Ok("10.252.5.0/24"));
    assert_eq!(pool.touched(&blocked), 4);
}

#[test]
fn sizes_mix() {
    let mut pool = pool("10.252.0.0/24", 26);
    let none = Spans::default();
    assert_eq!(draw(&mut pool, Some(29), &none).as_deref(), Ok("10.252.0.0/29"));
    assert_eq!(draw(&mut pool, Some(26), &none).as_deref(), Ok("10.252.0.64/26"));
    assert_eq!(draw(&mut pool, Some(25), &none).as_deref(), Ok("10.252.0.128/25"));
    assert_eq!(draw(&mut pool, Some(26), &none), Err(SubnetRefusal::Exhausted));
    assert_eq!(
        draw(&mut pool, Some(29), &none).as_deref(),
        Ok("10.252.0.8/29"),
        "the rest of the first quarter"
    );
    assert_eq!(draw(&mut pool, Some(30), &none), Err(SubnetRefusal::Prefix(30)));
    assert_eq!(draw(&mut pool, Some(23), &none), Err(SubnetRefusal::Prefix(23)));
}

#[test]
fn blocks_are_used_one_after_the_other() {
    let blocks = vec![net("10.9.0.0/28"), net("10.3.0.0/28")];
    let mut pool = SubnetPool::new(blocks, 29, u32::from(net("10.9.0.8/32").addr())).expect("a pool");
    let none = Spans::default();
    let all: Vec<_> = (0..4).map(|_| draw(&mut pool, None, &none).expect("there is room")).collect();
    assert_eq!(all, ["10.9.0.8/29", "10.3.0.0/29", "10.3.0.8/29", "10.9.0.0/29"]);
    assert_eq!(pool.capacity(), 4);
}

#[test]
fn the_last_address_of_all_ends_a_walk() {
    let mut pool = pool("192.168.255.0/24", 29);
    pool.set_cursor(u32::MAX);
    assert_eq!(draw(&mut pool, None, &Spans::default()).as_deref(), Ok("192.168.255.0/29"));
}

#[test]
fn a_pool_of_one_subnet_works() {
    let mut pool = pool("10.252.0.0/29", 29);
    assert_eq!(draw(&mut pool, None, &Spans::default()).as_deref(), Ok("10.252.0.0/29"));
    assert_eq!(draw(&mut pool, None, &Spans::default()), Err(SubnetRefusal::Exhausted));
}

#[test]
fn bad_pools_are_refused_in_words() {
    let cases = [
        ("10.252.0.1/16", 24, "host bits"),
        ("8.8.0.0/16", 24, "not private"),
        ("100.0.0.0/9", 24, "not private"),
        ("127.0.0.0/8", 24, "not private"),
        ("169.254.0.0/16", 24, "not private"),
        ("172.0.0.0/11", 24, "not private"),
        ("172.0.0.0/8", 24, "not private"),
        ("0.0.0.0/0", 24, "prefix between"),
        ("10.252.0.0/31", 31, "prefix between"),
        ("10.252.0.0/16", 15, "cannot have the prefix 15"),
        ("10.252.0.0/16", 30, "cannot have the prefix 30"),
        ("10.252.0.0/16", 0, "cannot have the prefix 0"),
    ];
    for (block, prefix, words) in cases {
        let block = block.parse().expect("a network");
        let problem = SubnetPool::new(vec![block], prefix, 0).expect_err("it is bad").to_string();
        assert!(problem.contains(words), "{block} {prefix}: {problem}");
    }
    assert!(SubnetPool::new(Vec::new(), 24, 0).is_err());
    for block in ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"] {
        assert!(SubnetPool::new(vec![net(block)], 24, 0).is_ok(), "{block}");
    }
    assert!(SubnetPool::new(vec![net("10.0.0.0/9"), net("10.0.0.0/16")], 24, 0).is_err());
}

#[test]
fn spans_merge() {
    let spans = Spans::of([net("10.0.2.0/24"), net("10.0.0.0/24"), net("10.0.0.128/25"), net("10.0.0.0/23")]);
    assert_eq!(spans.0.len(), 2);
    let meets = |text: &str| {
        let (first, last) = bounds(&net(text));
        spans.meets(first, last).is_some()
    };
    assert!(meets("10.0.1.255/32"));
    assert!(meets("10.0.0.0/8"));
    assert!(!meets("10.0.3.0/24"));
    assert!(!meets("9.255.0.0/16"));
}

#[derive(Clone, Debug)]
enum Action {
    Draw(u8),
    Free(usize),
    Block(u32, u8),
    Clear,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (24..=29_u8).prop_map(Action::Draw),
        3 => any::<usize>().prop_map(Action::Free),
        1 => (0..1024_u32, 22..=32_u8).prop_map(|(offset, prefix)| Action::Block(offset, prefix)),
        1 => Just(Action::Clear),
    ]
}

proptest! {
    #[test]
    fn the_pool_agrees_with_a_set(actions in proptest::collection::vec(action(), 1..60)) {
        let block = net("10.7.4.0/22");
        let mut pool = SubnetPool::new(vec![block], 24, u32::from(block.network()) + 300).expect("a pool");
        let (mut held, mut foreign): (Vec<Ipv4Net>, Vec<Ipv4Net>) = Default::default();
        for action in actions {
            match action {
                Action::Block(offset, prefix) => {
                    let address = u32::from(block.network()) + offset;
                    foreign.push(Ipv4Net::new(address.into(), prefix).expect("a network").trunc());
                }
                Action::Clear => foreign.clear(),
                Action::Free(index) if !held.is_empty() => pool.free(&held.swap_remove(index % held.len())),
                Action::Free(_) => {}
                Action::Draw(prefix) => {
                    let fits = |candidate: &Ipv4Net| !held.iter().chain(&foreign).any(|other| overlap(candidate, other));
                    let room = block.subnets(prefix).expect("the prefix is longer").any(|candidate| fits(&candidate));
                    match draw(&mut pool, Some(prefix), &Spans::of(foreign.iter().copied())) {
                        Ok(text) => {
                            let drawn = net(&text);
                            prop_assert!(block.contains(&drawn) && drawn.prefix_len() == prefix && drawn == drawn.trunc());
                            prop_assert!(fits(&drawn), "{drawn} overlaps");
                            held.push(drawn);
                        }
                        Err(refusal) => {
                            prop_assert_eq!(refusal, SubnetRefusal::Exhausted);
                            prop_assert!(!room, "there was room for a /{}", prefix);
                        }
                    }
                }
            }
        }
    }
}
