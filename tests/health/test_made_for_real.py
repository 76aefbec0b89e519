"""Every check has a test that makes its condition on a real server or in a tree of the kernel's files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pgtop_tune.health.registry import CHECKS
from tests.health import test_access_checks as access
from tests.health import test_assertions as assertions
from tests.health import test_backup_tools as tools
from tests.health import test_bounds as bounds
from tests.health import test_fixes_of_19 as passwords
from tests.health import test_hidden_conditions as hidden
from tests.health import test_listening as listening
from tests.health import test_machine_conditions as conditions
from tests.health import test_machine_tree as tree
from tests.health import test_measure as measuring
from tests.health import test_parity as parity
from tests.health import test_real_databases as databases
from tests.health import test_real_memory as memory
from tests.health import test_real_server as real
from tests.health import test_schema_checks as schema
from tests.support.made_conditions import RULES, all_conditions
from tests.support.made_objects import IN_A_DATABASE, OF_ROLES

MADE: Mapping[Callable[..., Any], Collection[str]] = {
    assertions.test_a_server_that_was_compiled_with_assertions: assertions.FOUND,
    hidden.TestNextStart.test_a_server_that_would_not_start_is_found_before: {"CFG-11"},
    conditions.test_a_control_group_that_holds_its_server_back: {"OS-11", "CPU-02"},
    conditions.test_what_the_kernel_may_still_promise: {"OS-02"},
    conditions.test_a_pool_of_huge_pages_that_the_server_does_not_use: {"HUGE-01"},
    conditions.test_a_file_system_that_runs_out_of_inodes: {"DISK-02"},
    conditions.test_wal_and_data_on_one_disk: {"DISK-07"},
    tree.test_a_spoilt_machine_is_found_out_from_its_files: tree.FOUND,
    measuring.test_a_real_server_is_measured: {"DISK-08"},
    listening.test_a_server_that_listens_to_everybody: listening.FOUND,
    memory.test_a_server_that_asks_for_more_memory_than_there_is: memory.FOUND,
    memory.test_a_server_that_has_worked_with_too_little_for_an_hour: memory.FOUND_AFTER_AN_HOUR,
    memory.test_a_release_without_fixes: {"CFG-04", "CFG-05"},
    databases.test_a_database_with_everything_wrong_is_seen_through: databases.FOUND_IN_IT,
    databases.test_an_index_that_is_being_built_is_work_and_not_broken: {"BEN-03"},
    real.test_a_server_with_everything_wrong: {*real.FOUND_ON_IT, *real.FOUND_BEFORE_18, "REP-02"},
    real.test_a_server_that_works_with_too_little: real.FOUND_AFTER_WORK,
    real.test_backends_that_sync_because_the_checkpointer_does_not_keep_up: {"BGW-03"},
    real.test_the_rate_of_wal_is_that_between_two_looks_at_a_working_server: {"WAL-04"},
    real.test_a_page_that_fails_its_checksum_is_damage: {"DUR-06"},
    real.test_a_standby_is_checked_and_its_primary_sees_it: {"REP-01", "REP-03"},
    real.test_a_server_of_a_major_that_nobody_knows_is_said_to_be_one: {"CFG-07"},
    passwords.test_passwords_that_expire_are_found_by_any_role: {"SEC-07"},
    bounds.test_a_value_that_suits_no_server_is_found_mended_and_put_back: bounds.FOUND,
    schema.test_each_condition_of_a_database_is_found_mended_and_put_back: {row[0] for row in IN_A_DATABASE},
    schema.test_rights_of_roles_are_found_taken_away_and_given_back: {row[0] for row in OF_ROLES},
    schema.test_an_extension_whose_library_is_not_loaded: {"EXT-02"},
    access.test_rules_of_pg_hba_that_let_in_too_many: {row[0] for row in RULES},
    access.test_an_archive_that_has_grown_old: {"ARC-04", "ARC-05"},
    access.test_a_base_backup_that_is_long_ago: {"BAK-01"},
    access.test_a_certificate_that_ends_soon: {"SEC-10", "SEC-11"},
    parity.test_a_standby_with_less_than_its_primary_is_found_before_and_after_it_stops: {"REP-07"},
    tools.test_a_server_is_checked_beside_a_tool_that_is_installed: {"BAK-02"},
    bounds.test_a_server_without_limits_for_sessions: {"CON-06"},
    conditions.test_a_clock_that_nothing_keeps_right: {"TIME-01"},
    conditions.test_a_log_that_nobody_keeps: {"LOG-07"},
    real.test_the_pools_of_a_pooler_are_summed_up: {"CON-03", "CON-04"},
}
"""What each test finds where it has been made."""


def test_the_condition_of_every_check_is_made_for_real() -> None:
    made = {id_ for ids in MADE.values() for id_ in ids}
    known = {check.id for check in CHECKS}
    assert known - made == set()
    assert made - known == set()


def test_the_page_of_conditions_has_every_check() -> None:
    listed = [check for check, _ in all_conditions()]
    assert set(listed) == {check.id for check in CHECKS}
    assert len(listed) == len(set(all_conditions()))
