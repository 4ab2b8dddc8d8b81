"""The match cache: bounded, and a change forgets what it concerns and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.routing import match_cache
from penstock.engine.routing.match_cache import MatchCache, Matches
from penstock.engine.routing.trie import SubscriptionTrie
from penstock.engine.values.topic_cache import LONG_TOPIC_CHARACTERS, TOPIC_CHARACTERS_MAX
from penstock.engine.values.topics import topic_matches
from tests.unit.engine.test_trie import FILTERS, TOPICS, entry, session

LEVELS = st.lists(st.sampled_from(["a", "b", "", "c"]), min_size=1, max_size=4)
WANTED = st.lists(st.sampled_from(["a", "b", "", "+"]), min_size=1, max_size=4)


@given(st.lists(LEVELS, max_size=15), WANTED, st.booleans())
def test_topics_that_a_changed_filter_matches_are_forgotten(
    cached: list[list[str]], wanted: list[str], open_end: bool
) -> None:
    cache = MatchCache()
    for levels in cached:
        cache.put("/".join(levels), levels, Matches([], []))
    if open_end:
        wanted = [*wanted, "#"]
    topic_filter = "/".join(wanted)
    left = {topic for topic in cache.topics if not topic_matches(topic_filter, topic)}
    cache.forget(wanted)
    assert set(cache.topics) == left


def test_every_filter_of_the_trie_against_every_topic() -> None:
    """Names that start with $ may be forgotten too often, never too seldom."""
    for topic_filter in FILTERS:
        cache = MatchCache()
        for topic in TOPICS:
            cache.put(topic, topic.split("/"), Matches([], []))
        cache.forget(topic_filter.split("/"))
        assert not [topic for topic in cache.topics if topic_matches(topic_filter, topic)]


def test_a_change_beside_leaves_what_is_cached() -> None:
    trie, one = SubscriptionTrie(), session("one")
    trie.add(one, "plant/+/heat", entry("plant/+/heat", 0))
    before = trie.match("plant/1/heat")
    trie.add(one, "plant/+/flow", entry("plant/+/flow", 0))
    trie.remove(one, "plant/+/flow")
    trie.add(one, "yard/#", entry("yard/#", 0))
    assert trie.match("plant/1/heat") is before
    trie.add(one, "plant/1/#", entry("plant/1/#", 1))
    after = trie.match("plant/1/heat")
    assert after is not before
    assert [match.subscriptions.qos for match in after.sessions] == [1]


def test_a_topic_comes_back_after_it_was_forgotten() -> None:
    cache = MatchCache()
    first, second = Matches([], []), Matches([], [])
    cache.put("a/b", ["a", "b"], first)
    cache.forget(["a", "+"])
    assert cache.topics == {}
    cache.put("a/b", ["a", "b"], second)
    assert cache.topics == {"a/b": second}
    cache.forget(["a", "b"])
    assert cache.topics == {}
    cache.forget(["a", "b"])


def test_the_cache_is_bounded_by_topics_and_by_branches() -> None:
    trie = SubscriptionTrie()
    for number in range(match_cache._TOPICS_MAX + 10):
        trie.match(f"topic/{number}")
        assert len(trie._cache.topics) <= match_cache._TOPICS_MAX
    cache = MatchCache()
    for number in range(2000):
        levels = [str(number), *map(str, range(100))]
        cache.put("/".join(levels), levels, Matches([], []))
        assert cache._branches <= match_cache._BRANCHES_MAX + 101


def test_the_cache_is_bounded_by_matches() -> None:
    """Topics times subscribers: a thousand subscribers of everything must not fill memory."""
    trie = SubscriptionTrie()
    for number in range(1000):
        trie.add(session(str(number)), "#", entry("#", 0))
    for number in range(match_cache._MATCHES_MAX // 1000 + 20):
        assert len(trie.match(f"topic/{number}").sessions) == 1000
        cached = sum(len(matches.sessions) for matches in trie._cache.topics.values())
        assert cached <= match_cache._MATCHES_MAX


def test_the_cache_is_bounded_by_subscription_identifiers() -> None:
    """One session may have thousands of them, each kept with every topic that they match."""
    trie, one = SubscriptionTrie(), session("one")
    for identifier in range(1, 257):
        bits = f"{identifier - 1:08b}".replace("0", "a").replace("1", "+")
        topic_filter = "/".join(bits) + "/#"
        trie.add(one, topic_filter, entry(topic_filter, 0, identifier))
    for number in range(match_cache._MATCHES_MAX // 256 + 2):
        assert trie.match(f"a/a/a/a/a/a/a/a/{number}").identifiers == 256
    cached = sum(matches.identifiers for matches in trie._cache.topics.values())
    assert 0 < cached <= match_cache._MATCHES_MAX


def test_the_cache_is_bounded_by_characters_and_keeps_no_long_topic() -> None:
    """One client that makes up long topics must not fill memory."""
    cache = MatchCache()
    for number in range(10_000):
        topic = f"{number}/" + "x" * 1000
        cache.put(topic, topic.split("/"), Matches([], []))
        assert sum(map(len, cache.topics)) <= TOPIC_CHARACTERS_MAX
    cache.clear()
    cache.put("y" * LONG_TOPIC_CHARACTERS, ["y" * LONG_TOPIC_CHARACTERS], Matches([], []))
    assert cache.topics == {}


def test_many_filters_that_pass_every_branch_are_no_more_work_than_the_topics() -> None:
    """One SUBSCRIBE with thousands of filters such as +/x must not hold everybody up."""
    cache = MatchCache()
    for number in range(5000):
        cache.put(f"{number}/y", [str(number), "y"], Matches([], []))
    visits = 0
    for number in range(1000):
        left, had_topics = cache._visits_left, len(cache.topics) > 0
        cache.forget(["+", f"x{number}"])
        if had_topics:
            visits += left - cache._visits_left if cache.topics else left
    assert visits <= 2 * match_cache._VISITS


def test_a_cache_not_looked_through_to_the_end_is_forgotten_all() -> None:
    """The work to forget has a bound: behind it no topic may keep what it matched before."""
    trie, one = SubscriptionTrie(), session("one")
    for number in range(300):
        assert trie.match(f"{number}/y").sessions == []
    for number in range(match_cache._VISITS // 300 + 10):
        trie.add(one, f"+/x{number}", entry(f"+/x{number}", 0))
    trie.add(one, "+/y", entry("+/y", 0))
    for number in range(300):
        assert len(trie.match(f"{number}/y").sessions) == 1


def test_a_change_costs_the_others_nothing_while_topics_are_in_use() -> None:
    cache = MatchCache()
    for number in range(100):
        cache.put(f"{number}/y", [str(number), "y"], Matches([], []))
    cache.forget(["+", "x"])
    assert len(cache.topics) == 100
