"""Random campaigns: small ones run always, large ones with `-m campaign`, all from one seed that failures tell."""

import os
import random

import pytest

SEED = int(os.environ.get("TROT_CAMPAIGN_SEED", "0"))
"""Another one tries other cases."""


def in_a_campaign(*parameters):
    """Parameters of a test that runs with `-m campaign` only."""
    return pytest.param(*parameters, marks=pytest.mark.campaign)


def sized(small, large):
    """Parameters of a test: how many cases, always and in a campaign."""
    return [small, in_a_campaign(large)]


def chances(what, count):
    """One generator per case and what to call it, so that a case does not depend on those before it."""
    for case in range(count):
        yield random.Random(f"{SEED} {what} {case}"), f"{what}, case {case} of TROT_CAMPAIGN_SEED={SEED}"
