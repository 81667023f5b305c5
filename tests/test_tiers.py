"""What `make test` leaves out is there, and the others are found by pytest's report."""

import doctest

from tests import tiers


def test_each_test_that_takes_long_is_in_its_file():
    for name in tiers.long_tests():
        file, _, function = name.partition("::")
        assert f"def {function}(" in (tiers.ROOT / file).read_text(), f"{name}: python -m tests.tiers REPORT"


def test_the_examples_hold():
    found = doctest.testmod(tiers)
    assert found.attempted
    assert not found.failed


def test_a_share_has_a_part_of_what_takes_long_and_all_shares_have_all_of_it():
    names = sorted(tiers.long_tests())
    shares = [{name for name in names if tiers.is_in(f"{k}/10", name)} for k in range(10)]
    assert sorted(name for share in shares for name in share) == names
    assert all(shares)
