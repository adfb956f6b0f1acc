"""What stands for pytest's own fixture of what is logged."""

from __future__ import annotations

import logging

from heard import Heard

NAME = "refold.of_this_test"


def test_what_is_logged_is_heard_while_it_listens_and_levels_are_put_back():
    logger = logging.getLogger(NAME)
    with Heard().listening() as found:
        logger.info("below the level of all")
        with found.at_level(logging.INFO, NAME):
            logger.info("one of %s", 2)
        found.set_level("DEBUG", NAME)
        logger.debug("two")
        assert found.messages == ["one of 2", "two"] and found.text == "one of 2\ntwo\n"
        assert [r.levelname for r in found.records] == ["INFO", "DEBUG"]
        assert [r.message for r in found.records] == ["one of 2", "two"]
        found.clear()
        assert not found.records
    logger.error("nobody listens any more")
    assert not found.records and logger.level == logging.NOTSET


def test_it_takes_the_place_of_pytests(caplog):
    logging.getLogger(NAME).warning("here")
    assert isinstance(caplog, Heard) and caplog.messages == ["here"]
