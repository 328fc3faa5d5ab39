"""A list of bad inputs for the crawler, each with its test. A missing test fails here."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ADDRESSES = "test_hostile_addresses.py::test_nothing_is_sent_to"
SPELLINGS = "test_hostile_spellings.py::test_a_disguised_private_address_is_recognised"
ANSWERS = "test_hostile_answers.py::"
REDIRECTS = "test_hostile_redirects.py::"
DNS = "test_hostile_dns.py::"
DUMPS = "test_dumps.py::"
BOMBS = f"{ANSWERS}test_bombs_are_stored_packed_and_their_extraction_stops_at_its_bound"
PACKED = f"{ANSWERS}test_compressed_bodies_are_stored_as_they_came_and_read_as_far_as_possible"
CHARSETS = f"{ANSWERS}test_pages_without_type_or_with_a_wrong_charset_are_stored_byte_for_byte"
MARKED = f"{ANSWERS}test_opt_outs_in_meta_tags_are_obeyed_and_recorded_before_a_body_is_written"
TLS = "test_hostile_tls.py::test_nothing_is_sent_over_a_connection_that_can_t_be_verified"

# Each case: bad input -> file::test, followed by a bar and the name of its parameter or answer.
CASES = [
    # addresses
    ("127.0.0.1", f"{ADDRESSES}|the loopback address"),
    ("127.255.255.255", f"{ADDRESSES}|the end of the loopback network"),
    ("::1", f"{ADDRESSES}|IPv6's loopback address"),
    ("0.0.0.0", f"{ADDRESSES}|the unspecified address"),
    ("10.0.0.0/8", f"{ADDRESSES}|the private network 10/8"),
    ("172.16.0.0/12", f"{ADDRESSES}|the private network 172.16/12"),
    ("192.168.0.0/16", f"{ADDRESSES}|the private network 192.168/16"),
    ("169.254.169.254", f"{ADDRESSES}|the metadata service of clouds"),
    ("100.64.0.0/10 and its edges", f"{ADDRESSES}|carrier-grade NAT"),
    ("192.0.0.8", f"{ADDRESSES}|IETF protocol assignments"),
    ("198.18.0.0/15", f"{ADDRESSES}|benchmark networks"),
    ("the test networks", f"{ADDRESSES}|documentation networks"),
    ("224.0.0.0/4", f"{ADDRESSES}|multicast"),
    ("240.0.0.0/4 and broadcast", f"{ADDRESSES}|reserved and broadcast addresses"),
    ("::ffff:10.0.0.1", f"{ADDRESSES}|IPv4-mapped IPv6"),
    ("::10.0.0.1", f"{ADDRESSES}|IPv4-compatible IPv6"),
    ("::ffff:0:10.0.0.1", f"{ADDRESSES}|IPv4-translated IPv6"),
    ("64:ff9b::a00:1", f"{ADDRESSES}|NAT64"),
    ("64:ff9b:1::/48", f"{ADDRESSES}|local NAT64"),
    ("2002:a00:1::1", f"{ADDRESSES}|6to4"),
    ("2001::/32", f"{ADDRESSES}|Teredo"),
    ("fc00::/7", f"{ADDRESSES}|unique local addresses"),
    ("fe80::1%eth0", "test_hostile_addresses.py::test_nothing_is_sent_to_a_link_local_address_with_a_zone"),
    ("fec0::", f"{ADDRESSES}|site-local addresses"),
    ("ff02::1", f"{ADDRESSES}|IPv6 multicast"),
    ("2001:db8::, 3fff::, 100::, 5f00::", f"{ADDRESSES}|IPv6 documentation, discard and segment-routing prefixes"),
    ("own port", "test_hostile_addresses.py::test_nothing_is_sent_to_an_address_of_this_machine"),
    # spellings
    ("2130706433", f"{SPELLINGS}|one decimal number"),
    ("0x7f.1", f"{SPELLINGS}|hexadecimal"),
    ("0177.0.0.1", f"{SPELLINGS}|octal"),
    ("127.1", f"{SPELLINGS}|fewer than four numbers"),
    ("IDNA digits", f"{SPELLINGS}|circled digits"),
    ("localhost", "test_hostile_spellings.py::test_localhost_by_any_name_is_refused"),
    ("credentials before a host", f"{SPELLINGS}|a host name as the user"),
    ("backslash", "test_hostile_spellings.py::test_a_backslash_ends_the_host_as_it_does_in_browsers"),
    ("ports 22, 25, 6379", "test_hostile_spellings.py::test_ports_of_other_services_are_refused"),
    ("other schemes", "test_hostile_spellings.py::test_schemes_other_than_http_are_rejected"),
    ("hosts and ports out of bounds", "test_hostile_spellings.py::test_impossible_hosts_and_ports_are_rejected"),
    ("CR, LF, TAB, NUL", "test_hostile_spellings.py::test_control_characters_never_reach_a_request"),
    # names
    ("a private address", f"{DNS}test_a_name_with_a_private_address_is_refused"),
    ("mixed answers", f"{DNS}test_one_private_answer_among_public_ones_refuses_the_name"),
    ("rebinding", f"{DNS}test_a_name_that_changes_its_address_is_connected_to_at_the_checked_one"),
    ("a CNAME chain", f"{DNS}test_an_alias_of_a_private_host_is_rejected_by_its_address"),
    ("NXDOMAIN, SERVFAIL", f"{DNS}test_names_that_are_unknown_or_whose_servers_fail_are_counted"),
    ("a name server that never answers", f"{DNS}test_names_that_are_never_answered_don_t_delay_others"),
    ("answers to other queries, and damaged ones", f"{DNS}test_a_false_or_damaged_answer_leads_to_no_address"),
    ("10,000 A records", f"{DNS}test_ten_thousand_answers_are_all_judged"),
    ("proxy variables", f"{DNS}test_a_proxy_variable_doesn_t_bypass_the_address_rule"),
    # redirects
    ("to a private address", f"{REDIRECTS}test_redirects_to_private_addresses_and_files_are_not_followed|private"),
    ("to a file", f"{REDIRECTS}test_redirects_to_private_addresses_and_files_are_not_followed|file"),
    ("a loop", f"{REDIRECTS}test_a_loop_and_a_chain_that_is_too_long_end|loop"),
    ("http and https in turn", "test_hostile_tls.py::test_a_ping_pong_between_http_and_https_is_a_loop"),
    ("a long chain", f"{REDIRECTS}test_a_loop_and_a_chain_that_is_too_long_end|chain"),
    ("Location of any form", f"{REDIRECTS}test_a_location_of_any_form_is_resolved_or_rejected"),
    ("to an excluded site", f"{REDIRECTS}test_a_redirect_to_an_excluded_site_is_refused"),
    ("cookies and passwords", f"{REDIRECTS}test_cookies_and_passwords_are_not_sent_on_with_a_redirect"),
    ("a refresh inside the page", f"{REDIRECTS}test_a_refresh_inside_a_page_is_not_followed"),
    ("a hostile robots.txt", f"{REDIRECTS}test_a_hostile_robots_file_forbids_everything_or_is_cut"),
    # bodies
    ("a gzip bomb", f"{BOMBS}|gzip"),
    ("deflate, raw or zlib", PACKED),
    ("a brotli bomb", f"{BOMBS}|brotli"),
    ("a zstd bomb", f"{BOMBS}|zstd"),
    ("packed twice", f"{PACKED}|gzip twice"),
    ("empty members", f"{BOMBS}|100,000 empty members"),
    ("truncated gzip", PACKED),
    ("a wrong label", PACKED),
    ("an unknown coding", BOMBS),
    ("an endless body", f"{ANSWERS}test_bodies_that_never_end_are_cut|endless"),
    ("a length too short", f"{ANSWERS}test_lengths_that_do_not_fit_are_never_guessed|shorter than the body"),
    ("a length too long", f"{ANSWERS}test_lengths_that_do_not_fit_are_never_guessed|longer than the body"),
    ("two lengths", f"{ANSWERS}test_lengths_that_do_not_fit_are_never_guessed|two"),
    ("a length beside chunks", f"{ANSWERS}test_lengths_that_do_not_fit_are_never_guessed|beside chunks"),
    ("a negative or huge length", f"{ANSWERS}test_lengths_that_do_not_fit_are_never_guessed|negative"),
    ("chunks and trailers", f"{ANSWERS}test_chunks_of_one_byte_and_endless_trailers_end_in_time"),
    ("204 and 304 with a body", f"{ANSWERS}test_other_statuses_are_counted_by_their_number|304 Not Modified"),
    ("206 and 416 unasked", f"{ANSWERS}test_other_statuses_are_counted_by_their_number|http_416"),
    ("HTTP/0.9 and garbage", f"{ANSWERS}test_an_answer_that_is_not_http_is_a_bad_response|HTTP/0.9"),
    ("a flood of 1xx", f"{ANSWERS}test_endless_interim_answers_are_a_bad_response"),
    # times
    ("accept, never answer", f"{ANSWERS}test_servers_that_never_finish_are_cut_off_at_the_deadline"),
    ("headers drip", f"{ANSWERS}test_servers_that_never_finish_are_cut_off_at_the_deadline|drips headers"),
    ("below the rate", f"{ANSWERS}test_a_body_below_the_minimum_rate_ends_before_the_deadline"),
    ("a handshake stalls", "test_hostile_tls.py::test_a_handshake_that_stalls_ends_in_time"),
    ("close after headers", f"{ANSWERS}test_broken_connections_are_counted_as_failed|after the headers"),
    ("an answer nobody asked for", "test_unsolicited_answers.py::test_each_page_gets_its_own_answer|a whole answer"),
    ("the same over TLS", "test_unsolicited_answers.py::test_each_page_over_tls_gets_its_own_answer"),
    ("an answer before the request", "test_unsolicited_answers.py::test_bytes_before_a_request_never_answer_it"),
    ("reset in the body", f"{ANSWERS}test_broken_connections_are_counted_as_failed|reset in the body"),
    # headers
    ("a line of 50 MB", f"{ANSWERS}test_headers_beyond_the_bounds_are_bad_responses|a line of 50 MB"),
    ("a million headers", f"{ANSWERS}test_headers_beyond_the_bounds_are_bad_responses|a million"),
    ("a folded header", f"{ANSWERS}test_a_folded_header_is_refused_or_one_header"),
    ("NUL, bytes outside ASCII", f"{ANSWERS}test_odd_header_values_are_harmless"),
    ("10,000 cookies", f"{ANSWERS}test_headers_beyond_the_bounds_are_bad_responses|10,000 cookies"),
    ("Retry-After of any form", "test_retries.py::test_a_retry_after_of_any_form_is_a_number_of_seconds|NaN"),
    # content
    ("an image as HTML", f"{ANSWERS}test_files_of_other_types_are_recognised_by_their_first_bytes"),
    ("HTML without type", f"{CHARSETS}|no type"),
    ("a PDF", f"{ANSWERS}test_files_of_other_types_are_recognised_by_their_first_bytes|a PDF as HTML"),
    ("charsets that lie", f"{CHARSETS}|UTF-7"),
    ("a byte order mark", f"{CHARSETS}|a byte order mark"),
    ("one line of 1 GB", f"{ANSWERS}test_bodies_that_never_end_are_cut|one line of a gigabyte"),
    ("opt-outs in meta tags", MARKED),
    ("noindex, noai, TDM", f"{ANSWERS}test_opt_outs_in_headers_are_obeyed_and_recorded"),
    # TLS
    ("bad certificates", f"{TLS}|expired"),
    # dumps
    ("a window of 2 GiB", f"{DUMPS}test_zstandard_windows_up_to_two_gib_are_read"),
    ("truncated streams", f"{DUMPS}test_truncated_streams_yield_their_lines_and_one_failure"),
    ("a character at a chunk's edge", f"{DUMPS}test_chunk_edges_change_nothing"),
    ("nulls and strings", f"{DUMPS}test_null_score_in_late_2017_and_null_url_in_2022_are_read"),
    ("a last line without newline", f"{DUMPS}test_compression_is_detected_from_the_content|no newline"),
    ("a line of 100 MB", f"{DUMPS}test_a_100_mb_line_is_counted_and_never_in_memory"),
    ("a bad line", f"{DUMPS}test_a_bad_line_is_a_counted_reason"),
    ("scores of any size", "test_links.py::test_scores_far_from_any_threshold_are_judged_or_counted"),
    ("a second too late", "test_links.py::test_the_cutoff_is_exact_to_the_second"),
    ("escaped twice", f"{DUMPS}test_urls_are_unescaped_exactly_once_and_only_as_reddit_escapes"),
    ("an id in two months", "test_links.py::test_a_post_in_two_files_counts_once_in_its_latest_reading"),
    ("a crosspost", f"{DUMPS}test_a_crosspost_is_a_post_of_its_own"),
    ("a deleted author", f"{DUMPS}test_a_post_of_a_deleted_author_still_votes"),
    ("a link to itself", f"{DUMPS}test_self_posts_are_recognized_without_is_self"),
    # archives and resuming
    ("kill -9", "test_pages_set.py::test_kills_lose_and_repeat_nothing"),
    ("a full disk", "test_pages_set.py::test_a_full_disk_ends_the_run_with_a_short_error"),
    ("two writers", "test_pages_set.py::test_two_runs_cannot_write_one_folder"),
    ("CRLF in a target URI", "test_warc_writer.py::test_a_url_cannot_forge_a_header_or_a_line_of_the_index"),
    ("a clock set back", "test_retries.py::test_a_clock_that_was_set_back_doesn_t_change_waits"),
]


def test_the_list_is_complete() -> None:
    assert len(CASES) == len({what for what, _ in CASES}) == 121


@pytest.mark.parametrize("place", dict.fromkeys(place for _, place in CASES))
def test_each_case_has_its_test(place: str) -> None:
    where, _, label = place.partition("|")
    name, _, test = where.partition("::")
    assert test in functions(name)
    assert not label or f'"{label}"' in source(name)


@cache
def source(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


@cache
def functions(name: str) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(source(name))) if isinstance(node, ast.FunctionDef)}
