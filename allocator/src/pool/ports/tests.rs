//! The pool against a set model, and the cases by name.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn wish(proto: Proto, number: Option<u16>) -> PortWish {
    PortWish { proto, number }
}

fn tcp() -> PortWish {
    wish(Proto::Tcp, None)
}

fn draw(pool: &mut PortPool, wishes: &[PortWish], blocked: &Ports) -> Result<Vec<u16>, PortRefusal> {
    let drawn = pool.draw(wishes, blocked)?;
    for (wish, number) in wishes.iter().zip(&drawn.numbers) {
        assert!(pool.take(wish.proto, *number), "{number} was taken already");
    }
    pool.set_cursor(drawn.cursor);
    Ok(drawn.numbers)
}

fn blocked(numbers: &[u16]) -> Ports {
    Ports { tcp: numbers.iter().copied().collect(), udp: PortSet::default() }
}

#[test]
fn numbers_come_in_turn_and_skip_what_is_held() {
    let mut pool = PortPool::new(100..=109, [103], 0);
    assert_eq!(draw(&mut pool, &[tcp(), tcp(), tcp()], &blocked(&[101])), Ok(vec![100, 102, 104]));
    pool.free(Proto::Tcp, 100);
    assert_eq!(
        draw(&mut pool, &[tcp()], &Ports::default()),
        Ok(vec![105]),
        "a number given up goes to the tail"
    );
    assert_eq!(draw(&mut pool, &[tcp(); 4], &Ports::default()), Ok(vec![106, 107, 108, 109]));
    assert_eq!(
        draw(&mut pool, &[tcp(), tcp()], &Ports::default()),
        Ok(vec![100, 101]),
        "the turn goes round"
    );
    assert_eq!(draw(&mut pool, &[tcp()], &Ports::default()), Err(PortRefusal::Exhausted), "103 is excluded");
}

#[test]
fn a_range_can_end_at_the_last_port() {
    let mut pool = PortPool::new(65534..=65535, [], 65535);
    assert_eq!(draw(&mut pool, &[tcp(), tcp()], &Ports::default()), Ok(vec![65535, 65534]));
    assert_eq!(draw(&mut pool, &[tcp()], &Ports::default()), Err(PortRefusal::Exhausted));
}

#[test]
fn all_or_nothing() {
    let pool = PortPool::new(100..=102, [], 100);
    let before = pool.clone();
    assert_eq!(pool.draw(&[tcp(); 4], &Ports::default()), Err(PortRefusal::Exhausted));
    assert_eq!(pool, before);
}

#[test]
fn protocols_do_not_share_numbers_with_each_other() {
    let mut pool = PortPool::new(100..=100, [], 100);
    let both = [tcp(), wish(Proto::Udp, None)];
    assert_eq!(draw(&mut pool, &both, &Ports::default()), Ok(vec![100, 100]));
}

#[test]
fn a_number_asked_for_is_that_or_nothing() {
    let mut pool = PortPool::new(100..=109, [105], 100);
    let fixed = |number| wish(Proto::Tcp, Some(number));
    assert_eq!(
        draw(&mut pool, &[tcp(), fixed(100)], &Ports::default()),
        Ok(vec![101, 100]),
        "no draw in turn takes it"
    );
    assert_eq!(
        draw(&mut pool, &[fixed(105)], &Ports::default()),
        Ok(vec![105]),
        "an excluded number can be asked for"
    );
    assert_eq!(draw(&mut pool, &[fixed(100)], &Ports::default()), Err(PortRefusal::Taken(Proto::Tcp, 100)));
    assert_eq!(draw(&mut pool, &[fixed(107)], &blocked(&[107])), Err(PortRefusal::Taken(Proto::Tcp, 107)));
    assert_eq!(
        draw(&mut pool, &[fixed(108), fixed(108)], &Ports::default()),
        Err(PortRefusal::Taken(Proto::Tcp, 108))
    );
    assert_eq!(draw(&mut pool, &[fixed(99)], &Ports::default()), Err(PortRefusal::Outside(99)));
}

#[test]
fn a_cursor_outside_the_range_begins_at_its_start() {
    for cursor in [0, 99, 110, u16::MAX] {
        assert_eq!(
            draw(&mut PortPool::new(100..=109, [], cursor), &[tcp()], &Ports::default()),
            Ok(vec![100])
        );
    }
}

#[test]
fn a_set_is_a_set() {
    let mut set: PortSet = [0, 63, 64, 65535].into_iter().collect();
    assert!(!set.insert(64));
    set.remove(0);
    assert_eq!(set.iter().collect::<Vec<_>>(), [63, 64, 65535]);
}

#[derive(Clone, Debug)]
enum Action {
    Draw(Vec<(bool, Option<u16>)>),
    Free(usize),
    Block(u16),
    Unblock(u16),
}

fn action() -> impl Strategy<Value = Action> {
    let number = || 100..130_u16;
    let port = (any::<bool>(), proptest::option::weighted(0.2, number()));
    prop_oneof![
        4 => proptest::collection::vec(port, 1..6).prop_map(Action::Draw),
        3 => any::<usize>().prop_map(Action::Free),
        1 => number().prop_map(Action::Block),
        1 => number().prop_map(Action::Unblock),
    ]
}

proptest! {
    #[test]
    fn the_pool_agrees_with_a_set(actions in proptest::collection::vec(action(), 1..80)) {
        let (range, excluded) = (100..=129_u16, BTreeSet::from([104, 105]));
        let mut pool = PortPool::new(range.clone(), excluded.clone(), 117);
        let mut held: Vec<(Proto, u16)> = Vec::new();
        let mut foreign = Ports::default();
        for action in actions {
            match action {
                Action::Block(number) => drop(foreign.tcp.insert(number)),
                Action::Unblock(number) => foreign.tcp.remove(number),
                Action::Free(index) if !held.is_empty() => {
                    let (proto, number) = held.swap_remove(index % held.len());
                    pool.free(proto, number);
                }
                Action::Free(_) => {}
                Action::Draw(ports) => {
                    let proto = |udp| if udp { Proto::Udp } else { Proto::Tcp };
                    let wishes: Vec<_> = ports.into_iter().map(|(udp, number)| wish(proto(udp), number)).collect();
                    let free = |proto: Proto| range.clone().filter(|number| {
                        !excluded.contains(number) && !foreign.of(proto).contains(*number) && !held.contains(&(proto, *number))
                    }).count();
                    let room = [Proto::Tcp, Proto::Udp].map(|proto| {
                        free(proto) >= wishes.iter().filter(|wish| wish.proto == proto).count()
                    });
                    match draw(&mut pool, &wishes, &foreign) {
                        Ok(numbers) => for (wish, number) in wishes.iter().zip(numbers) {
                            prop_assert!(range.contains(&number));
                            prop_assert!(wish.number.is_some() || !excluded.contains(&number));
                            prop_assert!(wish.number.is_none_or(|wished| wished == number));
                            prop_assert!(!foreign.of(wish.proto).contains(number));
                            prop_assert!(!held.contains(&(wish.proto, number)), "{number} is held twice");
                            held.push((wish.proto, number));
                        },
                        Err(PortRefusal::Exhausted) => prop_assert!(room.contains(&false), "there was room"),
                        Err(PortRefusal::Taken(_, number)) => {
                            prop_assert!(wishes.iter().any(|wish| wish.number == Some(number)));
                        }
                        Err(PortRefusal::Outside(number)) => prop_assert!(!range.contains(&number)),
                    }
                }
            }
        }
    }
}
