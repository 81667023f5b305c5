"""The first point of each job's log is its cause, and following its first cure removes it."""

from __future__ import annotations

import pytest

from tests.jobs import judging, running, table
from tests.jobs.__main__ import DOCS

JOBS = running.jobs()


@pytest.mark.every(16)
@pytest.mark.parametrize("name", JOBS)
def test_the_first_point_is_the_cause_and_its_cure_removes_it(name, tmp_path):
    job = JOBS[name]
    faulty = running.run(job, False, tmp_path / "faulty")
    told = judging.Told.of(tmp_path / "faulty" / "log")
    assert not judging.wrong(job, told), told
    if job.noted.get("gone", "none") != "none":
        cured = running.run(job, True, tmp_path / "cured")
        assert not judging.cure_failed(job, faulty, cured)


def test_the_page_has_a_row_for_each_job():
    rows = table.kept(DOCS.read_text(encoding="utf-8"))
    assert list(rows) == list(JOBS)
    assert not [name for name, row in rows.items() if table.NOT_RIGHT in row]


def test_what_was_found_at_the_first_run_is_about_jobs():
    assert set(table.first_run()) <= set(JOBS)


def test_the_lines_to_which_a_reader_should_be_sent_are_marked():
    unmarked = [name for name, job in JOBS.items() if not job.healthy and not job.marked()]
    assert set(unmarked) <= {"ends_in_the_middle", "lr_schedule", "rank_0_hits", "pass_without_uuid", "option_changed",
                             "caches_disabled", "ddp_of_a_library_module", "param_group_added",
                             "some_gradients_missing"}  # fmt: skip
