//! The allocator from outside: the real binary, its sockets, and engines that are real or speak as one.
//!
//! | what went wrong elsewhere | held by |
//! |---|---|
//! | draws that collide at the birthday rate | `api::forty_at_once_never_share_a_port_up_to_the_last_one` |
//! | a probe that is blind in another network namespace | `dialects::published_and_planned_ports_are_passed_over`, `chaos --launcher container` |
//! | a probe of loopback alone, or with `SO_REUSEADDR` | `host::probe::tests::a_strict_dual_stack_bind_meets_every_holder` |
//! | a listed port that nobody listens on: no userland proxy, or its daemon killed | `dialects::published_and_planned_ports_are_passed_over` |
//! | one of two texts of a port conflict unknown | `engine::refusal` tests, `api::a_reported_port_is_swapped_in_the_same_lease` |
//! | outgoing connections take ports of the range | `chaos::leased_ports_survive_churn_squatters_and_kills`, `status::tests::each_trouble_has_its_code` |
//! | a port given again while its container still stops | `docker::a_lease_publishes_and_gives_its_port_back_when_the_container_has_ended` |
//! | listeners that were there first | `api::listeners_that_were_there_first_are_passed_over` |
//! | a range inside the kernel's own | `cli::exit_codes_tell_what_went_wrong` |
//! | a second release frees the next owner's port | `api::a_holder_that_returns_too_late_touches_nobody` |
//! | a draw takes a number that somebody asks for by name | `pool::ports::tests::a_number_asked_for_is_that_or_nothing` |
//! | IPv4 and IPv6 published at different numbers | `dialects::published_and_planned_ports_are_passed_over` |
//! | ports that the kernel is told to reserve are skipped | `host::sysctl` tests |
//! | a bind that fails once; a program of the host on a port after its grant | `api::a_reported_port_is_swapped_in_the_same_lease` |
//! | a phantom port that only a start finds | `book::tests::a_reported_port_is_swapped_in_place_and_quarantined_for_longer_each_time` |
//! | an empty pool, and somebody else's session stopped for it | `api::exhaustion_names_the_pool_its_counts_and_its_holders`, `exhaustion::full_pools_name_their_holders_and_give_again_what_one_lease_gives_back` |
//! | an engine's words for an overlap unknown; list, then create | `dialects::every_engine_s_refusal_of_a_subnet_leads_to_the_next`, `docker::thirty_at_once_with_a_stranger_in_between_each_get_their_own_or_are_told` |
//! | two networks of one name | `dialects::networks_of_one_name_are_told_apart_by_id` |
//! | the engine's own pools used up | `dialects::the_engine_s_own_pools_are_never_asked`, `exhaustion::leases_go_on_where_the_engine_s_own_pools_are_used_up` |
//! | a recreated gateway has lost its networks | `gateway::a_recreated_gateway_waits_for_nobody`, `docker::a_recreated_gateway_is_back_in_every_network_within_two_seconds`, `reconcile::tests::gateway::a_gateway_recreated_under_an_acquire_is_attached_when_that_has_ended` |
//! | two gateways that want one address | `plan::tests::another_gateway_makes_room_for_the_one_that_is_attached`, `docker::the_gateway_of_the_configured_name_takes_its_place_back` |
//! | a launcher that answers for the gateway | `peers::launchers_cannot_answer_for_the_gateway_nor_the_gateway_take_leases` |
//! | sessions that died keep the pool | `dialects::eighty_six_dead_sessions_do_not_keep_the_pool` |
//! | a network pruned before its first container | `dialects::a_pruned_network_is_restored_at_the_event_and_after_a_broken_stream`, `dialects::a_network_that_goes_without_a_word_is_missed`, `docker::a_pruned_network_is_restored_and_routes_are_avoided` |
//! | networks of other drivers and scopes, or malformed | `dialects::odd_networks_do_not_hide_the_others` |
//! | a route, or a network, that is a moment old | `routes::what_came_a_moment_ago_is_avoided_and_what_went_is_given`, `docker::a_pruned_network_is_restored_and_routes_are_avoided` |
//! | a VPN's halves of the world, or a wide route, end everything | `world::tests::routes_inside_the_pool_block_and_routes_over_it_warn` |
//! | a pool that meets the engine's defaults | `status::tests::each_trouble_has_its_code` |
//! | a lost answer makes a second lease | `api::a_client_that_hangs_up_finds_its_lease_with_the_same_key` |
//! | equal requests at once | `dialects::equal_keys_at_once_make_one_network` |
//! | a death between listing and watching | `dialects::an_owner_that_dies_while_the_stream_is_broken_is_missed_all_the_same` |
//! | an error while listing leaves what is known stale | `dialects::a_pruned_network_is_restored_at_the_event_and_after_a_broken_stream` |
//! | clocks that jump or differ | `adversary::a_clock_that_jumps_meanwhile_ends_no_lease`, `time` tests: no stamp of the engine's is used |
//! | a reboot leaks everything | `reconcile::tests::after_a_reboot_leases_without_containers_end` |
//! | an allocator that was stopped, or a host that was suspended | `reconcile::tests::a_stopped_allocator_gives_every_lease_a_grace_before_it_ends_any` |
//! | a holder that returns overwrites the next; expiry left to others | `api::a_holder_that_returns_too_late_touches_nobody`, `api::leases_expire_and_their_ports_come_back` |
//! | a stale socket, a live server displaced | `api::what_was_answered_survives_a_kill_and_a_live_server_is_not_displaced` |
//! | an endpoint left over of a container that is gone | `gateway::an_endpoint_left_over_under_the_gateway_s_name_is_met_with_patience`, `dialects::an_endpoint_that_is_left_over_does_not_keep_a_network` |
//! | an engine that accepts and answers nothing | `adversary::an_engine_that_hangs_keeps_nobody_from_ports_or_from_the_status` |
//! | no engine at all | `adversary::without_any_engine_ports_go_round_for_ever` |
//! | a full disk, no descriptors left | `adversary::a_full_disk_grants_nothing_and_loses_nothing`, `adversary::without_descriptors_nothing_is_granted_and_nothing_lost` |
//! | kills at any moment under many clients | `adversary::kills_at_random_lose_nothing_that_was_answered` |
//! | a store that loses commits, or a vulnerable SQLite | `crash`, `ledger::tests::the_bundled_sqlite_is_one_that_keeps_what_it_commits` |

mod adversary;
mod api;
mod chaos;
mod cli;
mod crash;
mod dialects;
mod docker;
mod exhaustion;
mod gateway;
mod peers;
mod routes;
mod speed;
mod support;
